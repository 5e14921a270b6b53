//! One attempt at a request: the choice of its endpoint and the outcome.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed; // a counter that guards no other memory
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::observer::observer;
use super::request_body::BufferedBody;
use super::response_body::BoxError;
use super::rewrite::Rewrite;
use super::shared::RouterShared;
use super::{RouteBody, RouteObserver};
use crate::admit::{Priority, RejectReason, Ticket};
use crate::endpoints::{
    Decision, Demand, EndpointRef, Endpoints, Requirements, RouteError, TokenBounds,
};
use crate::gate::{self, ClientStall, Gate, Permit, PermitExtension};
use crate::http::{CallHold, HoldLimits, wants_stream};
use crate::queue::{ClassifyContext, QueueTime, RequestHead};
use crate::service::{
    Admission, AdmissionHandler, HoldPermit, JustQueued, ResponseOptions, ask_for_identity,
    asks_for_status,
};

/// One attempt at a request, which acts as the request's handler at the gate.
#[derive(Clone)]
pub(super) struct Attempt {
    pub(super) shared: Arc<RouterShared>,
    /// The body of the request, which can be sent again. `None` if the body is streamed or has not been read yet.
    pub(super) body: Option<BufferedBody>,
    /// `true` if the request asks for a stream.
    pub(super) stream: bool,
    /// `true` if a stream of the request shows the load of its model while it waits for that.
    pub(super) shows_load: bool,
    /// Bounds on the tokens that the request may cost.
    pub(super) tokens: TokenBounds,
    /// The time since which the body was read. `None` if the whole body was there at once.
    pub(super) since: Option<Instant>,
    /// The first arrival of the request, if this attempt is a retry.
    pub(super) first_arrival: Option<Instant>,
    /// `true` if the request waits for others than the slot that it had.
    pub(super) left_slot: bool,
    /// The endpoint at which the request failed last, if this attempt is a retry.
    pub(super) failed_at: Option<EndpointRef>,
    /// The level at which the request waits, and the start of the wait. Both are set when the attempt gets its ticket.
    pub(super) waits: Option<(Priority, Instant)>,
}

/// The form of the status of a request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusForm {
    /// Comments with the position, because the client has asked for them.
    Comments,
    /// Chunks about the load of the model.
    LoadReport,
}

/// The future of one attempt.
pub(super) type Admitted<S, B, R> = Admission<
    Endpoints,
    S,
    Request<RouteBody<B>>,
    Attempt,
    Option<AttemptOutcome<R, <S as Service<Request<RouteBody<B>>>>::Error>>,
>;

/// An endpoint's answer to an attempt, or its failure to answer.
pub(super) struct Answer<R, E> {
    pub(super) result: Result<Response<R>, E>,
    pub(super) permit: Permit<Endpoints>,
    pub(super) waited: Duration,
    pub(super) options: ResponseOptions,
    /// The limits on the time of the slot, if there are any.
    pub(super) hold: Option<CallHold>,
}

/// The outcome of one attempt.
pub(super) enum AttemptOutcome<R, E> {
    Answered(Answer<R, E>),
    /// The inner service failed before it was called, so there is only an error.
    NotCalled(Result<Response<R>, E>),
    /// The request was rejected before it got a slot.
    Refused {
        headers: HeaderMap,
        why: RejectReason<RouteError>,
        waited: Duration,
    },
}

impl Attempt {
    pub(super) fn new(shared: Arc<RouterShared>) -> Self {
        Self {
            shared,
            body: None,
            stream: false,
            shows_load: false,
            tokens: TokenBounds::default(),
            since: None,
            first_arrival: None,
            left_slot: false,
            failed_at: None,
            waits: None,
        }
    }

    /// Records the properties of the request that the attempt needs later.
    #[inline]
    pub(super) fn ask(&mut self, asked: &Requirements<'_>) {
        (self.stream, self.tokens) = (asked.stream, asked.into());
    }

    /// Returns the ticket of a request with this `head`. The client's timeout counts from the start of the body or from
    /// the first arrival, and otherwise from `now`.
    pub(super) fn classify(&self, head: &RequestHead<'_>, now: Instant) -> Ticket {
        let arrived = self.since.or(self.first_arrival).unwrap_or(now);
        let settings = self.shared.state.settings();
        let context = ClassifyContext::new(Some(arrived), &settings.classifier);
        self.shared.options.client_rules.ticket(head, &context)
    }

    /// Reads the ticket of the request for its observer.
    #[cold]
    pub(super) fn report_ticket(&self, head: &RequestHead<'_>, observer: &dyn RouteObserver) {
        let ticket = self.classify(head, gate::now());
        self.report(&ticket, observer);
    }

    fn report(&self, ticket: &Ticket, observer: &dyn RouteObserver) {
        let settings = self.shared.state.settings();
        let level = settings.classifier.levels().name(ticket.priority);
        observer.on_ticket(ticket, level);
    }

    /// Sets the tenant that a slot belongs to, if tenants share slots and it was given without a ticket.
    #[inline]
    fn set_share<B>(&self, request: &Request<B>, demand: &Demand, permit: &mut Permit<Endpoints>) {
        if self.shared.state.gate.is_fair() {
            let ticket = self.classify(&RequestHead::of(request), gate::now());
            permit.set_share(demand, &ticket);
        }
    }

    /// Returns the form of the status of a request that waits, if its client gets the status.
    pub(super) fn status_form<B>(&self, request: &Request<RouteBody<B>>) -> Option<StatusForm> {
        if asks_for_status(request)
            && (self.stream || wants_stream(request.headers()))
            && self.shared.state.settings().config.status_stream
        {
            return Some(StatusForm::Comments);
        }
        self.shows_load.then_some(StatusForm::LoadReport)
    }

    /// Changes the body to what the endpoint of the decision gets: the model's name, and parameters. Returns the tokens that
    /// the request may cost then, if that has changed.
    #[inline]
    fn rewrite<B: Body<Data = Bytes, Error: Into<BoxError>>>(
        &self,
        request: &mut Request<RouteBody<B>>,
        decision: &Decision,
    ) -> Option<TokenBounds> {
        let rewrite = Rewrite::new(decision, || self.shared.endpoints().routing())?;
        self.apply(&rewrite, request)
    }

    fn apply<B: Body<Data = Bytes, Error: Into<BoxError>>>(
        &self,
        rewrite: &Rewrite<'_>,
        request: &mut Request<RouteBody<B>>,
    ) -> Option<TokenBounds> {
        let with_params = self.body.as_ref().and_then(|it| rewrite.with_params(it));
        let mut tokens = None;
        let sent = request.body_mut();
        match (&self.body, with_params) {
            (_, Some(bytes)) => {
                let bytes = match &self.shared.body_memory {
                    Some(memory) => memory.count(bytes),
                    None => bytes,
                };
                let asked = Requirements::read(&bytes, false).ok();
                tokens = asked.map(|(asked, _)| (&asked).into());
                *sent = BufferedBody::whole(bytes).unchanged();
            }
            (Some(body), None) => *sent = body.clone().naming(rewrite.model_name()),
            (None, None) => sent.rename_in_form(rewrite.model_name()),
        }
        let body = self.body.as_ref();
        if body.is_none_or(|body| body.model_at.is_none()) {
            rewrite.rename_in_query(request.uri_mut());
        }
        let length = request.body().size_hint().exact();
        if let (Some(length), Some(old)) = (length, request.headers_mut().get_mut(CONTENT_LENGTH)) {
            *old = length.into();
        }
        tokens
    }

    /// Returns the stalls of the client of a request that has this slot, if tenants share slots.
    fn client_stall_of(&self, permit: &Permit<Endpoints>) -> Option<Arc<ClientStall>> {
        match self.shared.state.gate.is_fair() {
            true => permit.client_stall(),
            false => None,
        }
    }
}

impl HoldPermit<Endpoints> for Attempt {
    type Held = Permit<Endpoints>;
}

impl<S, B, R> AdmissionHandler<Endpoints, Request<RouteBody<B>>, S> for Attempt
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>>,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
    R: Body<Data = Bytes>,
{
    /// The outcome of the attempt. `None` while the request waits, if it is to be answered with its status meanwhile.
    type Answer = Option<AttemptOutcome<R, S::Error>>;

    fn gate(&self) -> &Gate<Endpoints> {
        &self.shared.state.gate
    }

    fn ticket(&mut self, request: &Request<RouteBody<B>>, now: Instant) -> Ticket {
        let mut ticket = self.classify(&RequestHead::of(request), now);
        self.waits = Some((ticket.priority, now));
        if let Some(observer) = observer(request.extensions()) {
            self.report(&ticket, &**observer);
            observer.on_queued(now);
        }
        // The position in the queue counts from the end of the body. An attempt after the first keeps its own.
        ticket.arrival = Some(self.first_arrival.unwrap_or(now));
        ticket.requeued = self.first_arrival.is_some();
        ticket.left_slot = self.left_slot;
        if self.shared.charges_tokens() {
            ticket = ticket.cost(self.tokens.prompt);
        }
        let rejects_streams = self.shared.state.settings().rejects_streams();
        match rejects_streams && (self.stream || wants_stream(request.headers())) {
            true => ticket.no_wait(),
            false => ticket,
        }
    }

    /// Charges a request that skipped the queue. Such a request has no ticket yet, so the ticket is made here.
    #[inline]
    fn on_fast_path(
        &self,
        request: &Request<RouteBody<B>>,
        demand: &Demand,
        permit: &mut Permit<Endpoints>,
    ) {
        self.set_share(request, demand, permit);
    }

    /// Takes the slot that the request brings along. If the slot's endpoint cannot serve the request, the slot goes
    /// back.
    fn carried(
        &self,
        request: &mut Request<RouteBody<B>>,
        demand: &Demand,
    ) -> Option<Permit<Endpoints>> {
        let gate = &self.shared.state.gate;
        let mut permit = PermitExtension::take_from(request.extensions_mut(), gate)?;
        let table = gate.capacity().table.load();
        if !table.fits(&demand.asked, permit.lease()) {
            return None;
        }
        if permit.charger().is_none() {
            // The slot was taken without a ticket.
            self.set_share(request, demand, &mut permit);
        }
        Some(permit)
    }

    fn on_queued(
        mut queued: JustQueued<'_, Endpoints, S, Request<RouteBody<B>>, Self>,
    ) -> Option<Self::Answer> {
        let (attempt, request) = queued.parts()?;
        attempt.status_form(request)?;
        ask_for_identity(request.headers_mut());
        Some(None)
    }

    #[inline]
    fn changes_requests(&self) -> bool {
        true
    }

    /// Turns the request into one for the endpoint of `lease`.
    fn on_admitted(
        &self,
        request: &mut Request<RouteBody<B>>,
        permit: &mut Permit<Endpoints>,
        waited: Duration,
    ) {
        let stall = self.client_stall_of(permit);
        let lease = permit.lease_mut();
        let decision = lease.decision();
        let rewritten = self.rewrite(request, decision);
        if let Some(failed_at) = &self.failed_at {
            failed_at.state().cold.retries.fetch_add(1, Relaxed);
            self.shared.metrics.retried(failed_at);
        }
        request
            .body_mut()
            .set_endpoint(&decision.endpoint, stall.as_ref());
        if let Some(stall) = stall {
            request.extensions_mut().insert(stall); // for `Forward`
        }
        request.extensions_mut().insert(decision.clone());
        if self.shared.options.tells_queue_time {
            request.extensions_mut().insert(QueueTime(waited));
        }
        let now = gate::now();
        lease.called = Some(now);
        lease.activity = lease.endpoint().state().cold.activity.load(Relaxed);
        // The prompt stays that of the client, for which the ticket was charged.
        let prompt = self.tokens.prompt;
        lease.tokens = rewritten.unwrap_or(self.tokens);
        lease.tokens.prompt = prompt;
        let mut counts_tokens = self.shared.charges_tokens();
        if let Some(observer) = observer(request.extensions()) {
            observer.on_called(lease.decision(), now);
            // Pages of a model's server are better compressed.
            counts_tokens |= *request.method() == Method::POST && observer.wants_tokens();
        }
        if counts_tokens {
            ask_for_identity(request.headers_mut()); // `usage` is read from the answer
        }
        if lease.probe.is_some() {
            // Only this probe uses the endpoint for now, so waiters for the endpoint may move on to a fallback.
            self.shared.state.gate.capacity_changed();
        }
        // A request that got its slot at once may have a ticket, too, because it arrived while others waited for
        // another endpoint. Only a real wait is counted.
        if let Some((priority, since)) = self.waits.filter(|_| !waited.is_zero()) {
            let settings = self.shared.state.settings();
            let (levels, waited) = (
                settings.classifier.levels(),
                now.saturating_duration_since(since),
            );
            self.shared.metrics.waited(levels, priority, waited);
        }
    }

    fn reject(
        &self,
        request: Request<RouteBody<B>>,
        why: RejectReason<RouteError>,
        waited: Duration,
    ) -> Self::Answer {
        let headers = request.into_parts().0.headers;
        Some(AttemptOutcome::Refused {
            headers,
            why,
            waited,
        })
    }

    fn respond(
        result: Result<Response<R>, S::Error>,
        permit: Option<Permit<Endpoints>>,
        waited: Duration,
    ) -> Self::Answer {
        Some(match permit {
            Some(permit) => AttemptOutcome::Answered(Answer {
                options: ResponseOptions::from_bits_retain(permit.layer_bits()),
                result,
                permit,
                waited,
                hold: None,
            }),
            None => AttemptOutcome::NotCalled(result),
        })
    }

    fn respond_limited(
        result: Result<Response<R>, S::Error>,
        permit: Permit<Endpoints>,
        waited: Duration,
        hold: CallHold,
    ) -> Self::Answer {
        Some(AttemptOutcome::Answered(Answer {
            options: ResponseOptions::from_bits_retain(permit.layer_bits()),
            result,
            permit,
            waited,
            hold: Some(hold),
        }))
    }

    #[inline]
    fn hold_limits(&self) -> Option<HoldLimits> {
        self.shared.state.hold_limits()
    }

    fn head(&self, request: &Request<RouteBody<B>>) -> Request<()> {
        let mut head = Request::new(());
        *head.headers_mut() = request.headers().clone();
        head
    }

    fn client_stall(&self, permit: &Permit<Endpoints>) -> Option<Arc<ClientStall>> {
        self.client_stall_of(permit)
    }

    fn reject_late(
        &self,
        head: Request<()>,
        why: RejectReason<RouteError>,
        waited: Duration,
    ) -> Self::Answer {
        Some(AttemptOutcome::Refused {
            headers: head.into_parts().0.headers,
            why,
            waited,
        })
    }
}
