//! The protocols of services, which decide the form of a rejection and the time for which a slot is held.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::classify::{Classify, ClassifyContext, DefaultPriority, FromHeaders};
use super::error::QueueError;
use super::future::QueueHandler;
use super::queue_time::QueueTime;
use super::response_body::{QueueResponseBody, RenderedBody};
use crate::admit::{Priority, RejectReason, SlotPool, Ticket};
use crate::gate::{BodyPermit, Gate, Permit, PermitExtension, RoomFull};
use crate::http::{Rejection, grpc_content_type, is_overload, queue_full, wants_stream};
use crate::service::{
    JustQueued, LayerState, ResponseOptions, Settings, StatusStream, ask_for_identity,
    asks_for_status, hold_in_body, insert_waited, status_response,
};

/// The protocol of the service behind a queue: [`Http`] or [`Plain`].
///
/// For a service that is not HTTP, create the queue with [`QueueLayer::plain`](super::QueueLayer::plain):
///
/// ```
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let next = service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) });
/// let service = QueueLayer::plain(QueueConfig::new(8)).layer(next);
/// assert_eq!(service.oneshot(1).await?, 2);
/// # Ok(())
/// # }
/// ```
///
/// With [`QueueLayer::new`](super::QueueLayer::new), the same code does not compile:
///
/// ```compile_fail,E0277
/// # use tower::{Layer, ServiceExt, service_fn};
/// # use tower_triage::{QueueConfig, QueueLayer};
/// # async fn send() {
/// # let next = service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) });
/// let service = QueueLayer::new(QueueConfig::new(8)).layer(next);
/// let response = service.oneshot(1).await;
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{S}` is no service that `{Self}` can answer for",
    label = "not an HTTP service, or a classifier that can't read `{Req}`",
    note = "`QueueLayer::new` is for a `Service<http::Request<_>>` that returns an `http::Response` with a body of `Bytes`",
    note = "the service, its future and error, the request and the bodies must be `Send` and borrow nothing: a response may begin while its request waits",
    note = "for any other service, make the layer with `QueueLayer::plain`"
)]
pub trait Protocol<Req, S: Service<Req>>: Clone + sealed::Sealed {
    /// The response to callers. For [`Http`], it is the inner response with its body in a [`QueueResponseBody`].
    type Response;
    /// The error for callers: the inner service's error for [`Http`], and a [`QueueError`] for [`Plain`].
    type Error;

    #[doc(hidden)]
    fn ticket(&self, request: &Req, settings: &sealed::Settings<'_>, arrival: Instant) -> Ticket;

    #[doc(hidden)]
    fn on_queued(
        queued: sealed::Queued<'_, S, Req, Self>,
    ) -> Option<Result<Self::Response, Self::Error>>
    where
        S: Clone;

    /// Returns the request's priority, if it is read without the rest of its ticket.
    #[doc(hidden)]
    fn priority(&self, request: &Req, settings: &sealed::Settings<'_>) -> Option<Priority>;

    #[doc(hidden)]
    fn reject(
        &self,
        request: &Req,
        rejected: sealed::Rejected<'_>,
    ) -> Result<Self::Response, Self::Error>;

    /// Takes the permit of this gate that the request brings along, if there is one.
    #[doc(hidden)]
    fn carried(&self, _: &mut Req, _: &Gate<SlotPool>) -> Option<Permit<SlotPool>> {
        None
    }

    /// Prepares the request, which waited for this time, for the inner service.
    #[doc(hidden)]
    fn on_admitted(&self, _request: &mut Req, _waited: Duration) {}

    /// Returns `true` if the result shows that the service is overloaded.
    #[doc(hidden)]
    fn is_overloaded(result: &Result<S::Response, S::Error>) -> bool {
        result.is_err()
    }

    #[doc(hidden)]
    fn respond(
        result: Result<S::Response, S::Error>,
        permit: Option<Permit<SlotPool>>,
        waited: Duration,
        options: sealed::Options,
    ) -> Result<Self::Response, Self::Error>;
}

pub(super) mod sealed {
    use super::{
        Duration, JustQueued, LayerState, QueueHandler, RejectReason, ResponseOptions, RoomFull,
        SlotPool,
    };

    /// A trait that only the protocols of this module implement.
    pub trait Sealed {}
    /// The settings with which a classifier reads a ticket.
    pub struct Settings<'a>(pub(in crate::queue) &'a super::Settings);
    /// The reason of a rejection, and the data with which the rejection is written.
    pub struct Rejected<'a> {
        pub(in crate::queue) state: &'a LayerState<SlotPool>,
        pub(in crate::queue) reason: RejectReason,
        pub(in crate::queue) waited: Duration,
        /// The notice of the full room, if the request was rejected without the lock.
        pub(in crate::queue) full: Option<RoomFull>,
    }
    /// A request that has just been queued.
    pub struct Queued<'a, S, Req, P>(
        pub(in crate::queue) JustQueued<'a, SlotPool, S, Req, QueueHandler<P>>,
    );
    /// The options with which a response is passed on.
    #[derive(Clone, Copy)]
    pub struct Options(pub(in crate::queue) ResponseOptions);
}

/// The protocol of HTTP and gRPC services. Rejections are responses, and the slot is held until the body ends (see
/// [`Hold`](super::Hold)).
///
/// The inner service takes `http::Request<_>` and returns an `http::Response` with a body of [`Bytes`], like services
/// of axum, tonic and hyper. The service's error is passed on unchanged. All of these types are `Send` and `'static`,
/// because a response may [begin while its request waits](super::QueueLayer#status-while-waiting).
#[derive(Clone)]
pub struct Http<K = FromHeaders> {
    pub(super) classify: K,
    pub(super) render: Option<Arc<Render>>,
    /// `true` if a request's extensions tell the time that it waited.
    pub(super) tells_queue_time: bool,
}

/// A function that writes a rejection as a whole response, in the form that the user wants.
pub(super) type Render =
    dyn Fn(&Rejection, &http::HeaderMap) -> http::Response<RenderedBody> + Send + Sync;

impl<K> fmt::Debug for Http<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

impl<K> Http<K> {
    pub(super) fn new(classify: K) -> Self {
        Self {
            classify,
            render: None,
            tells_queue_time: false,
        }
    }
}

impl<K> sealed::Sealed for Http<K> {}

#[diagnostic::do_not_recommend]
impl<B, R, S, K> Protocol<http::Request<B>, S> for Http<K>
where
    S: Service<http::Request<B>, Response = http::Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    K: Classify<http::Request<B>> + Clone + Send + 'static,
{
    type Response = http::Response<QueueResponseBody<R>>;
    type Error = S::Error;

    fn ticket(
        &self,
        request: &http::Request<B>,
        settings: &sealed::Settings<'_>,
        arrival: Instant,
    ) -> Ticket {
        let settings = settings.0;
        let context = ClassifyContext::new(arrival, &settings.classifier);
        let ticket = self.classify.ticket(request, &context);
        if settings.rejects_streams() && wants_stream(request.headers()) {
            return ticket.no_wait();
        }
        ticket
    }

    fn priority(
        &self,
        request: &http::Request<B>,
        settings: &sealed::Settings<'_>,
    ) -> Option<Priority> {
        self.classify.priority(request, &settings.0.classifier)
    }

    fn on_queued(
        queued: sealed::Queued<'_, S, http::Request<B>, Self>,
    ) -> Option<Result<Self::Response, S::Error>>
    where
        S: Clone,
    {
        let mut queued = queued.0;
        let (handler, request) = queued.parts()?;
        if !asks_for_status(request)
            || !wants_stream(request.headers())
            || !handler.state.settings().config.status_stream
        {
            return None;
        }
        ask_for_identity(request.headers_mut());
        let stream = StatusStream::new(queued.take());
        let delayed = stream.delayed_head();
        let body = QueueResponseBody::rendered(RenderedBody::new(stream));
        Some(Ok(status_response(body, delayed)))
    }

    #[inline]
    fn reject(
        &self,
        request: &http::Request<B>,
        rejected: sealed::Rejected<'_>,
    ) -> Result<Self::Response, S::Error> {
        let sealed::Rejected {
            state,
            reason,
            waited,
            full,
        } = rejected;
        let estimated_wait = || match full {
            Some(full) => full.estimated_wait, // cached with the notice, so that the lock is not needed
            None => state.gate.estimated_wait(),
        };
        let headers = request.headers();
        let mut response = match &self.render {
            Some(render) => {
                let rejection = state.rejection(&reason, estimated_wait);
                let mut response = render(&rejection, headers);
                insert_waited(&mut response, waited, state.options());
                response.map(QueueResponseBody::rendered)
            }
            // A full room rejects often, so a cached response for each number of seconds is cloned.
            None if full.is_some() && grpc_content_type(headers).is_none() => {
                let seconds = state.retry_after(estimated_wait());
                queue_full(seconds).map(QueueResponseBody::rejection)
            }
            None => {
                let rejection = state.rejection(&reason, estimated_wait);
                let response = state.write_rejection(rejection, headers, waited);
                response.map(QueueResponseBody::rejection)
            }
        };
        response.extensions_mut().insert(reason);
        Ok(response)
    }

    fn carried(
        &self,
        request: &mut http::Request<B>,
        gate: &Gate<SlotPool>,
    ) -> Option<Permit<SlotPool>> {
        PermitExtension::take_from(request.extensions_mut(), gate)
    }

    #[inline]
    fn on_admitted(&self, request: &mut http::Request<B>, waited: Duration) {
        if self.tells_queue_time {
            request.extensions_mut().insert(QueueTime(waited));
        }
    }

    fn is_overloaded(result: &Result<http::Response<R>, S::Error>) -> bool {
        result
            .as_ref()
            .map_or(true, |response| is_overload(response.status()))
    }

    #[inline(always)]
    fn respond(
        result: Result<http::Response<R>, S::Error>,
        permit: Option<Permit<SlotPool>>,
        waited: Duration,
        options: sealed::Options,
    ) -> Result<Self::Response, S::Error> {
        let permit = permit.map(BodyPermit::from);
        let response = hold_in_body(result?, permit, waited, options.0);
        Ok(response.map(QueueResponseBody::held))
    }
}

/// The protocol of all other services. Rejections are [`QueueError`]s, and the slot is held until the response is
/// there.
///
/// Some fields of the configuration are ignored here: [`streaming`](super::QueueConfig::streaming),
/// [`status_stream`](super::QueueConfig::status_stream), [`server_timing`](super::QueueConfig::server_timing),
/// [`retry_after`](super::QueueConfig::retry_after) and [`hold`](super::QueueConfig::hold). The header names matter
/// only for a classifier that [reads headers](super::ClassifyContext::ticket_from_headers).
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain<K = DefaultPriority> {
    pub(super) classify: K,
}

impl<K> sealed::Sealed for Plain<K> {}

impl<Req, S, K> Protocol<Req, S> for Plain<K>
where
    S: Service<Req>,
    K: Classify<Req> + Clone,
{
    type Response = S::Response;
    type Error = QueueError<S::Error>;

    fn ticket(&self, request: &Req, settings: &sealed::Settings<'_>, arrival: Instant) -> Ticket {
        let context = ClassifyContext::new(arrival, &settings.0.classifier);
        self.classify.ticket(request, &context)
    }

    fn priority(&self, request: &Req, settings: &sealed::Settings<'_>) -> Option<Priority> {
        self.classify.priority(request, &settings.0.classifier)
    }

    fn on_queued(_: sealed::Queued<'_, S, Req, Self>) -> Option<Result<S::Response, Self::Error>>
    where
        S: Clone,
    {
        None
    }

    fn reject(&self, _: &Req, rejected: sealed::Rejected<'_>) -> Result<S::Response, Self::Error> {
        Err(QueueError::Rejected(rejected.reason))
    }

    fn respond(
        result: Result<S::Response, S::Error>,
        _: Option<Permit<SlotPool>>,
        _: Duration,
        _: sealed::Options,
    ) -> Result<S::Response, Self::Error> {
        result.map_err(QueueError::Inner)
    }
}
