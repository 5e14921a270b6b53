//! The protocol of HTTP and gRPC services.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use tower_service::Service;

use super::mode::{HttpMode, UntilBodyEnds};
use super::{Protocol, sealed};
use crate::admit::{Priority, RejectReason, SlotPool, Ticket};
use crate::gate::{BodyPermit, Gate, Permit, PermitExtension};
use crate::http::{at_once, grpc_content_type, is_overload, wants_stream};
use crate::queue::classify::{Classify, ClassifyContext, FromHeaders};
use crate::queue::exempt::{Exempt, NoExemptions};
use crate::queue::queue_time::QueueTime;
use crate::queue::request_head::RequestHead;
use crate::service::insert_timing;

/// HTTP and gRPC, where rejections are responses.
///
/// The inner service takes `http::Request<_>` and returns an `http::Response` with a body of
/// [`Bytes`], as those of axum, tonic and hyper have. The service's error is passed on. The mode `M` determines the time
/// that a slot is held and the body of a response: [`UntilBodyEnds`], [`UntilHeaders`](super::UntilHeaders) or
/// [`WithStatus`](super::WithStatus). The rule `E` names the requests that pass without a slot: [`NoExemptions`], or the
/// closure of [`QueueLayer::exempt`](crate::QueueLayer::exempt).
#[derive(Clone)]
pub struct Http<K = FromHeaders, M = UntilBodyEnds, E = NoExemptions> {
    pub(in crate::queue) classify: K,
    pub(in crate::queue) mode: M,
    pub(in crate::queue) exempt: E,
    /// `true` if the inner service gets the time of the wait as an extension of the request.
    pub(in crate::queue) tells_queue_time: bool,
    /// `true` if the inner service gets a hold on its slot as an extension of the request.
    pub(in crate::queue) shares_slots: bool,
}

impl<K, M> Http<K, M> {
    pub(in crate::queue) fn new(classify: K, mode: M) -> Self {
        Self {
            classify,
            mode,
            exempt: NoExemptions,
            tells_queue_time: false,
            shares_slots: false,
        }
    }
}

impl<K, M, E> fmt::Debug for Http<K, M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

impl<K, M, E> sealed::Sealed for Http<K, M, E> {}

#[diagnostic::do_not_recommend]
impl<B, R, S, K, M, E> Protocol<Request<B>, S> for Http<K, M, E>
where
    S: Service<Request<B>, Response = Response<R>>,
    K: Classify<Request<B>> + Clone,
    M: HttpMode<K, B, R, S>,
    E: Exempt<Request<B>> + Clone + Send + 'static,
{
    type Response = Response<M::Body>;
    type Error = S::Error;

    #[inline(always)]
    fn exempts(&self, request: &mut Request<B>) -> bool {
        let is_exempt = self.exempt.is_exempt(request);
        if is_exempt {
            self.on_admitted(request, None, Duration::ZERO);
        }
        is_exempt
    }

    #[inline]
    fn ticket(
        &self,
        request: &Request<B>,
        settings: &sealed::Settings<'_>,
        arrival: Instant,
    ) -> Ticket {
        let settings = settings.0;
        let context = ClassifyContext::new(Some(arrival), &settings.classifier);
        let mut ticket = self.classify.ticket(request, &context);
        ticket.wait &= !(settings.rejects_streams() && wants_stream(request.headers()));
        ticket
    }

    fn priority(&self, request: &Request<B>, settings: &sealed::Settings<'_>) -> Option<Priority> {
        let context = ClassifyContext::new(None, &settings.0.classifier);
        self.classify.priority(request, &context)
    }

    #[inline]
    fn on_queued(
        queued: sealed::Queued<'_, S, Request<B>, Self>,
    ) -> Option<Result<Self::Response, S::Error>>
    where
        S: Clone,
    {
        M::on_queued(queued).map(Ok)
    }

    #[inline]
    fn reject(
        &self,
        request: &Request<B>,
        rejected: sealed::Rejected<'_>,
    ) -> Result<Self::Response, S::Error> {
        Ok(self.mode.reject(&RequestHead::of(request), rejected))
    }

    fn head(&self, request: &Request<B>) -> Request<()> {
        let mut head = Request::new(());
        *head.method_mut() = request.method().clone();
        *head.uri_mut() = request.uri().clone();
        *head.version_mut() = request.version();
        *head.headers_mut() = request.headers().clone();
        *head.extensions_mut() = request.extensions().clone();
        head
    }

    fn reject_head(
        &self,
        head: &Request<()>,
        rejected: sealed::Rejected<'_>,
    ) -> Result<Self::Response, S::Error> {
        Ok(self.mode.reject(&RequestHead::of(head), rejected))
    }

    fn reason(answer: &Result<Self::Response, S::Error>) -> Option<&RejectReason> {
        M::reason(answer.as_ref().ok()?)
    }

    fn carried(&self, request: &mut Request<B>, gate: &Gate<SlotPool>) -> Option<Permit<SlotPool>> {
        PermitExtension::take_from(request.extensions_mut(), gate)
    }

    #[inline]
    fn changes_requests(&self) -> bool {
        self.tells_queue_time || self.shares_slots
    }

    fn on_admitted(
        &self,
        request: &mut Request<B>,
        permit: Option<&mut Permit<SlotPool>>,
        waited: Duration,
    ) {
        if self.tells_queue_time {
            request.extensions_mut().insert(QueueTime(waited));
        }
        if let (true, Some(permit)) = (self.shares_slots, permit) {
            let outer = request.extensions_mut().remove();
            request.extensions_mut().insert(permit.hold(outer));
        }
    }

    fn is_overloaded(result: &Result<Response<R>, S::Error>) -> bool {
        result
            .as_ref()
            .map_or(true, |response| is_overload(response.status()))
    }

    #[inline(always)]
    fn poll_call(
        future: Pin<&mut S::Future>,
        permit: &mut Option<BodyPermit>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::Response, S::Error>> {
        M::poll_call(future, permit, cx)
    }

    #[inline(always)]
    fn respond(
        result: Result<Response<R>, S::Error>,
        permit: Option<BodyPermit>,
        waited: Duration,
    ) -> Result<Self::Response, S::Error> {
        Ok(M::respond(result?, permit, waited))
    }

    fn respond_limited(
        result: Result<Response<R>, S::Error>,
        permit: BodyPermit,
        waited: Duration,
        hold: sealed::CallHold,
    ) -> Result<Self::Response, S::Error> {
        Ok(M::respond_limited(result?, permit, waited, hold))
    }
}

/// Returns the response to a rejected request, as HTTP or gRPC by the headers of the request.
#[inline]
pub(super) fn rejection(headers: &HeaderMap, rejected: &sealed::Rejected<'_>) -> Response<Bytes> {
    let sealed::Rejected {
        state,
        ref reason,
        waited,
        full,
    } = *rejected;
    match full {
        // Overload rejects often, so the response is the clone of a cached one for this number of seconds.
        Some(full) if grpc_content_type(headers).is_none() => {
            let settings = state.settings();
            let status = settings.config.overload_status;
            at_once(reason, status, settings.retry_after(full.estimated_wait))
        }
        _ => {
            let wants_stream = || wants_stream(headers);
            let rejection = state.rejection(reason, wants_stream, || rejected.estimated_wait());
            let mut response = rejection.render_to(headers);
            insert_timing(response.headers_mut(), waited, state.options());
            response
        }
    }
}
