//! Retries, which keep a request so that it can go to another endpoint until a part of a response went out.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{RETRY_AFTER, TRAILER};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use tower::retry::budget::Budget;
use tower_service::Service;

use super::attempt::Admitted;
use super::parsed_request::RequestHead;
use super::response_body::BoxError;
use super::response_class::{Refusal, Retry};
use super::{AtMostOnce, RouteBody};
use crate::admit::Tenant;
use crate::clock;
use crate::endpoints::{Decision, Demand, EndpointRef, RouteError};
use crate::gate;
use crate::http::Rejection;
use crate::queue;
use crate::service::{ResponseOptions, ask_for_identity};

/// A request as it came, together with its remaining retries.
pub(super) struct RetryState<S, E> {
    /// The request as it came. Its first arrival is known from the first attempt on.
    request: RequestHead<S>,
    demand: Demand,
    /// The time from the arrival that a retry keeps to the start of the current attempt.
    requeued_after: Duration,
    retries_left: u32,
    /// `true` once the request has waited for its endpoint to be started again.
    has_awaited_start: bool,
    /// `true` if the next attempt awaits a start.
    awaits_start: bool,
    /// The refusals of endpoints that were too full for the request.
    refusals: RefusedBy,
    /// The response to send if the request can be served nowhere else.
    pub(super) failed: Option<Box<FailedResponse<E>>>,
}

/// The endpoints that refused a request because they were too full for it.
#[derive(Default)]
struct RefusedBy {
    /// The endpoints that refused the request since its last pause.
    endpoints: Vec<EndpointRef>,
    /// `true` if one of them refused only this request's tenant, so that its slots stay as they are.
    any_own: bool,
    /// The number of pauses so far.
    pauses: u32,
    /// The end of the pause, from which on the request may go to these endpoints again.
    until: Option<Instant>,
}

/// The first pause before a refused request may go to the same endpoint again. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause before a refused request may go to the same endpoint again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The number of pauses after which a refused request lets others go first, because it may be the cause itself.
const STEPS_ASIDE_AFTER: u32 = 3;

/// The number of times that the pause of such a request doubles.
const MOST_DOUBLINGS: u32 = 6;
/// The longest time for which a request steps aside, beside that of the endpoint's next slot. Nobody else may want the slots.
const LONGEST_ASIDE: Duration = Duration::from_secs(10);

/// The number of pauses after which a request whose wait has no end gets the refusal.
const MOST_PAUSES: u32 = 16;

/// The state for retries of the request, or the reason why the request cannot be retried.
pub(super) type Retryable<S, E> = Result<Box<RetryState<S, E>>, NotRetryable>;

/// The response of an endpoint that failed.
pub(super) struct FailedResponse<E> {
    pub(super) result: Result<Response<Bytes>, E>,
    pub(super) decision: Decision,
    /// The total wait of all attempts.
    pub(super) waited: Duration,
    pub(super) options: ResponseOptions,
}

/// The reason why a request cannot be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotRetryable {
    /// The request has not been read yet, or its retries are used elsewhere.
    NotKept,
    /// The body of the request is too large to be kept.
    TooLarge,
    /// The body of the request is streamed.
    Streamed,
}

impl NotRetryable {
    /// Logs the reason why a failed request is not retried, if it may be a surprise.
    pub(super) fn log(self, decision: &Decision) {
        let endpoint = decision.endpoint.name();
        match self {
            Self::NotKept => {}
            Self::TooLarge => tracing::warn!(
                endpoint,
                "request not retried: its body is larger than `retry_body_limit_bytes`"
            ),
            Self::Streamed => {
                tracing::debug!(endpoint, "request not retried: its body is streamed")
            }
        }
    }
}

impl<S: Clone, E> RetryState<S, E> {
    /// Keeps a copy of the request for retries, or returns the reason why it cannot be retried.
    pub(super) fn keep(request: &RequestHead<S>, demand: &Demand) -> Retryable<S, E> {
        let attempt = &request.attempt;
        let table = attempt.shared.endpoints().table.load();
        let routing = &table.rules.config;
        let body = attempt.body.as_ref().ok_or(NotRetryable::Streamed)?;
        if body.bytes.len() > routing.retry_body_limit_bytes {
            return Err(NotRetryable::TooLarge);
        }
        Ok(Box::new(Self {
            request: request.clone(),
            demand: demand.clone(),
            requeued_after: Duration::ZERO,
            retries_left: routing.max_retries,
            has_awaited_start: false,
            awaits_start: false,
            refusals: RefusedBy::default(),
            failed: None,
        }))
    }
}

impl<S, E> RetryState<S, E> {
    /// Records an attempt at `model` that arrived at `arrived` and waited for `waited`. Returns the total wait of all
    /// attempts.
    #[inline]
    pub(super) fn attempted(
        &mut self,
        model: &str,
        arrived: Instant,
        waited: Duration,
    ) -> Duration {
        let attempt = &mut self.request.attempt;
        if attempt.first_arrival.is_none() {
            attempt.first_arrival = Some(arrived);
            // The deposit is made at the first attempt and not on arrival, because rejected requests are not load and
            // so must not earn retries.
            let table = attempt.shared.endpoints().table.load();
            if let Some(budget) = table.retry_budget(model) {
                budget.deposit();
            }
        }
        // `waited` counts from the arrival that a retry keeps, so only the part since the requeueing is new.
        let before = self.failed.as_ref().map(|failed| failed.waited);
        before.unwrap_or_default() + waited.saturating_sub(self.requeued_after)
    }

    /// Takes the failure that the client gets because a retry was refused a slot. `waited` is counted as in
    /// [`attempted`](Self::attempted).
    pub(super) fn refused(&mut self, waited: Duration) -> Option<Box<FailedResponse<E>>> {
        let mut failed = self.failed.take()?;
        failed.waited += waited.saturating_sub(self.requeued_after);
        Some(failed)
    }

    /// Returns `true` if the request may be retried after it failed by the decision `failed`. The retry is then withdrawn from
    /// the budget of its model, and the demand excludes the endpoint.
    pub(super) fn may_retry(&mut self, failed: &Decision, advice: Retry) -> bool {
        match advice {
            Retry::No => return false,
            Retry::Once => self.retries_left = self.retries_left.min(1),
            Retry::Yes => {}
        }
        if self.retries_left == 0 {
            return false;
        }
        if self.is_too_late() {
            tracing::debug!("request not retried: its deadline has passed");
            return false;
        }
        let shared = &self.request.attempt.shared;
        let elsewhere = self.demand.clone().retry(&failed.endpoint);
        let table = shared.endpoints().table.load();
        if table.pools_in_order(&elsewhere.asked).is_empty() {
            tracing::debug!("request not retried: no other endpoint could serve it");
            return false;
        }
        // This check is the last one, because it takes a retry from the budget.
        let budget = table.retry_budget(&failed.model);
        if budget.is_some_and(|budget| !budget.withdraw()) {
            tracing::debug!("request not retried: the budget for retries is spent");
            return false;
        }
        self.retries_left -= 1;
        self.demand = elsewhere;
        true
    }

    /// Returns the error that replaces the missing response of an endpoint, if every endpoint of a fallback chain has
    /// been tried.
    pub(super) fn exhausted_chain(&self, failed: &Decision) -> Option<RouteError> {
        let elsewhere = self.demand.clone().retry(&failed.endpoint);
        let table = self.request.attempt.shared.endpoints().table.load();
        table.exhausted_chain(&elsewhere.asked)
    }

    /// Returns the headers of the request.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.request.head.headers
    }

    /// Returns `true` if the request may go elsewhere or back to its place in line, because the endpoint of `refused` was too
    /// full for it and did not run it. That costs neither a retry nor a part of the budget. If the refusal `is_own` trouble of
    /// the request's tenant, the endpoint goes on to serve others.
    pub(super) fn may_wait_again(
        &mut self,
        refused: &Decision,
        refusal: Refusal,
        is_own: bool,
    ) -> bool {
        let now = gate::now();
        let end = self.end_of_wait(now);
        // Without a timer, neither the request's pause nor the endpoint's would end.
        if end.is_some_and(|end| end <= now) || clock::sleep_until(now).is_none() {
            return false;
        }
        if end.is_none() && self.refusals.pauses >= MOST_PAUSES {
            return false;
        }
        let is_late = |at: Instant| end.is_some_and(|end| at > end);
        let comes_too_late = |after| now.checked_add(after).is_none_or(is_late);
        if refusal.is_final || refusal.retry_after.is_some_and(comes_too_late) {
            // Another endpoint may be in time.
            self.demand = self.demand.clone().retry(&refused.endpoint);
            let table = self.request.attempt.shared.endpoints().table.load();
            return !table.pools_in_order(&self.demand.asked).is_empty();
        }
        let refusals = &mut self.refusals;
        if refusals.endpoints.is_empty() {
            let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(refusals.pauses));
            refusals.until = Some(now + pause.min(LONGEST_PAUSE));
        }
        if refusals.pauses >= STEPS_ASIDE_AFTER
            && let Some(next_slot) = refused.endpoint.pause_for_refusals()
        {
            // Behind the endpoint's next slot, because the request would be the first to get it otherwise. Then behind more
            // and more slots, because several such requests would get all of them in turn.
            let times = (refusals.pauses - STEPS_ASIDE_AFTER).min(MOST_DOUBLINGS);
            let slots = next_slot.saturating_mul(2_u32.pow(times));
            let slots = slots.min(next_slot.max(LONGEST_ASIDE));
            let until = Some(now + slots + FIRST_PAUSE);
            refusals.until = refusals.until.max(until);
        }
        refusals.endpoints.push(refused.endpoint.clone());
        refusals.any_own |= is_own;
        true
    }

    /// Returns the demand of the next attempt. After refusals, the request goes to an endpoint that has not refused it, if one
    /// is free. Otherwise it waits for any endpoint, or for others while those that refused it are to be left alone.
    fn next_demand(&mut self) -> Demand {
        let endpoints = &self.refusals.endpoints;
        if endpoints.is_empty() {
            return self.demand.clone();
        }
        let others = endpoints.iter().fold(self.demand.clone(), Demand::retry);
        let table = self.request.attempt.shared.endpoints().table.load();
        if table.has_free_slot(&others) {
            return others;
        }
        if self.steps_aside() {
            return self.demand.clone().refused_by(endpoints);
        }
        // The endpoints that refused the request are at their limit now, so it gets a slot when one is free there.
        self.end_pause();
        self.demand.clone()
    }

    /// Returns `true` if others get the slot of the endpoint that refused the request. A request that is refused again and again
    /// may be the cause.
    fn steps_aside(&self) -> bool {
        self.refusals.any_own || self.refusals.pauses >= STEPS_ASIDE_AFTER
    }

    /// Returns the end of the pause after a refusal. From then on the request may go to any endpoint again.
    pub(super) fn pause(&self) -> Option<Instant> {
        self.refusals.until
    }

    /// Ends the pause after a refusal.
    pub(super) fn end_pause(&mut self) {
        let pauses = self.refusals.pauses + 1;
        self.refusals = RefusedBy {
            pauses,
            ..RefusedBy::default()
        };
    }

    /// Returns the tenant of the request.
    pub(super) fn tenant(&self) -> Tenant {
        let head = queue::RequestHead::of_parts(&self.request.head);
        self.request.attempt.classify(&head, gate::now()).tenant
    }

    /// Returns `true`, once, if the request may wait for a slot again because an on-demand endpoint, which may have ended a
    /// moment ago, refused the connection. The wait costs neither a retry nor a part of the budget.
    pub(super) fn may_await_start(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.has_awaited_start, true);
        // A request that was sent over a kept connection before may have ended the endpoint, and it may end the next
        // one, too. So at most one retry is left.
        self.retries_left = self.retries_left.min(1);
        self.awaits_start = is_first && !self.is_too_late();
        self.awaits_start
    }

    /// Returns `true` if the request must not go to another endpoint after one endpoint may have worked on it.
    pub(super) fn is_at_most_once(&self) -> bool {
        self.request.head.extensions.get::<AtMostOnce>().is_some()
    }

    /// Makes the later attempts ask for a response without a content encoding.
    pub(super) fn ask_for_identity(&mut self) {
        ask_for_identity(&mut self.request.head.headers);
    }

    fn is_too_late(&self) -> bool {
        let now = gate::now();
        self.deadline(now).is_some_and(|deadline| deadline <= now)
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        let head = queue::RequestHead::of_parts(&self.request.head);
        self.request.attempt.classify(&head, now).deadline
    }

    /// Returns the instant at which the request stops to wait for a slot, unless it may wait for ever.
    fn end_of_wait(&self, now: Instant) -> Option<Instant> {
        let attempt = &self.request.attempt;
        let max_wait = attempt.shared.state.settings().config.room.max_wait;
        let arrived = attempt.first_arrival.unwrap_or(now);
        let longest = max_wait.and_then(|max_wait| arrived.checked_add(max_wait));
        let ends = [longest, self.deadline(now)];
        ends.into_iter().flatten().min()
    }

    /// Completes the response of the failed attempt with its body. If the body could not be read, only the status and
    /// `Retry-After` are kept, and a short explanation replaces the body.
    pub(super) fn failed_with(&mut self, body: Option<Bytes>) {
        let Some(failed) = &mut self.failed else {
            return;
        };
        let Ok(response) = &mut failed.result else {
            return;
        };
        if let Some(body) = body {
            response.headers_mut().remove(TRAILER); // trailers are not kept
            *response.body_mut() = body;
            return;
        }
        let status = match response.status() {
            status if status.is_success() => StatusCode::BAD_GATEWAY, // its body says that it is an error
            status => status,
        };
        let why = format!(
            "Endpoint '{}' answered {status}, at such length that nothing else of it was kept while \
             another endpoint was looked for",
            failed.decision.endpoint.name(),
        );
        let after = response.headers_mut().remove(RETRY_AFTER);
        let rejection = Rejection::new(status, "upstream_failed", why);
        *response = rejection.into_response_to(&self.request.head.headers);
        if let Some(after) = after {
            response.headers_mut().insert(RETRY_AFTER, after);
        }
    }

    /// Begins the next attempt. The slot of the failed attempt is already free.
    pub(super) fn next_attempt<B, R>(&mut self) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes, Error: Into<BoxError>>,
        R: Body<Data = Bytes>,
    {
        let is_refused = !self.refusals.endpoints.is_empty();
        // The endpoint of a request that awaits a start has no slots for others.
        let awaits_start = std::mem::take(&mut self.awaits_start);
        let left_slot = !awaits_start && (!is_refused || self.steps_aside());
        let attempt = &mut self.request.attempt;
        attempt.left_slot = left_slot;
        attempt.shared.pass_probe_on(); // if the failed attempt was a probe, a waiter may be the next one
        let now = gate::now();
        let first_arrival = *attempt.first_arrival.get_or_insert(now);
        self.requeued_after = now.saturating_duration_since(first_arrival);
        let failed = self.failed.as_ref().filter(|_| !is_refused);
        attempt.failed_at = failed.map(|it| it.decision.endpoint.clone());
        self.admit()
    }

    /// Lets the request wait again at the end of a pause, in its place in line and for all endpoints.
    pub(super) fn after_pause<B, R>(&mut self) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes, Error: Into<BoxError>>,
        R: Body<Data = Bytes>,
    {
        self.end_pause();
        self.request.attempt.left_slot = false;
        self.admit()
    }

    fn admit<B, R>(&mut self) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes, Error: Into<BoxError>>,
        R: Body<Data = Bytes>,
    {
        let demand = self.next_demand();
        let body = self.request.attempt.body.clone().unwrap_or_default();
        self.request.clone().admit(demand, body.unchanged())
    }
}
