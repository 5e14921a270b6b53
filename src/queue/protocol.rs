//! Protocols: what a rejection looks like, and for how long a slot is held.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::classify::{Classify, ClassifyContext, DefaultPriority, FromHeaders};
use super::common::{Common, Settings};
use super::error::QueueError;
use super::queue_time::QueueTime;
use super::response_body::{QueueResponseBody, RenderedBody};
use crate::admission::Tail;
use crate::admit::{Capacity, RejectReason, SlotPool, Ticket};
use crate::gate::Permit;
use crate::http::{
    AnswerFormat, PermitBody, Rejection, ToRejection, insert_server_timing, queue_full,
    wants_stream,
};
use crate::queue::Hold;

/// How the service behind a queue is spoken to: [`Http`] or [`Plain`].
///
/// A service that is not HTTP has a queue made by [`QueueLayer::plain`](super::QueueLayer::plain):
///
/// ```
/// use tower::{Layer, Service, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// fn is_service<Req, S: Service<Req>>(_: &S) {}
///
/// let next = service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) });
/// is_service::<u32, _>(&QueueLayer::plain(QueueConfig::new(8)).layer(next));
/// ```
///
/// With [`QueueLayer::new`](super::QueueLayer::new), the same does not compile:
///
/// ```compile_fail
/// # use tower::{Layer, Service, service_fn};
/// # use tower_triage::{QueueConfig, QueueLayer};
/// # fn is_service<Req, S: Service<Req>>(_: &S) {}
/// # let next = service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) });
/// is_service::<u32, _>(&QueueLayer::new(QueueConfig::new(8)).layer(next));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{S}` is no service that `{Self}` can answer for",
    label = "not an HTTP service, or a classifier that can't read `{Req}`",
    note = "`QueueLayer::new` is for a `Service<http::Request<_>>` that returns an `http::Response` with a body of `Bytes`",
    note = "for any other service, make the layer with `QueueLayer::plain`"
)]
pub trait Protocol<Req, S: Service<Req>>: Clone + sealed::Sealed {
    /// What callers get: for [`Http`] the inner response, its body in a [`QueueResponseBody`].
    type Response;
    /// What callers get instead: for [`Http`] the inner service's error, for [`Plain`] a [`QueueError`].
    type Error;

    #[doc(hidden)]
    fn ticket(&self, request: &Req, settings: &sealed::Settings<'_>, arrival: Instant) -> Ticket;

    #[doc(hidden)]
    fn refuse(
        &self,
        request: Req,
        why: RejectReason,
        waited: Duration,
        common: &sealed::Common<'_>,
    ) -> Result<Self::Response, Self::Error>;

    /// Turns a request away, if every chair is taken and nothing but that needs to be known of it.
    #[doc(hidden)]
    fn turn_away(&self, request: &Req, common: &sealed::Common<'_>) -> Option<sealed::Notice>;

    /// The answer of one that was turned away.
    #[doc(hidden)]
    fn turned_away(notice: sealed::Notice) -> Result<Self::Response, Self::Error>;

    #[doc(hidden)]
    fn answer(
        result: Result<S::Response, S::Error>,
        permit: Option<Permit<SlotPool>>,
        waited: Duration,
        tail: sealed::Tail,
    ) -> Result<Self::Response, Self::Error>;
}

pub(super) mod sealed {
    /// Keeps the protocols to those that are here.
    pub trait Sealed {}
    /// What a ticket is read by.
    pub struct Settings<'a>(pub(in crate::queue) &'a super::Settings);
    /// What a rejection is written by.
    pub struct Common<'a>(pub(in crate::queue) &'a super::Common<crate::admit::SlotPool>);
    /// What one that was turned away is told.
    #[derive(Clone, Copy)]
    pub struct Notice {
        pub(in crate::queue) format: super::AnswerFormat,
        pub(in crate::queue) server_timing: bool,
        /// In seconds.
        pub(in crate::queue) retry_after: u64,
    }
    /// How an answer is passed on.
    #[derive(Clone, Copy)]
    pub struct Tail(pub(in crate::queue) super::Tail);
}

/// HTTP and gRPC: rejections are responses, and the slot is held until the body ends (see
/// [`Hold`](super::Hold)).
///
/// The inner service takes `http::Request<_>` and returns an `http::Response` with a body of
/// [`Bytes`], as those of axum, tonic and hyper have. The service's error stays what it is.
#[derive(Clone)]
pub struct Http<K = FromHeaders> {
    pub(super) classify: K,
    pub(super) render: Option<Arc<Render>>,
}

/// Writes a rejection: the whole response, as the user wants it.
pub(super) type Render =
    dyn Fn(&Rejection, &http::HeaderMap) -> http::Response<RenderedBody> + Send + Sync;

impl<K> fmt::Debug for Http<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

impl<K> Http<K> {
    pub(super) fn new(classify: K) -> Self {
        let render = None;
        Self { classify, render }
    }
}

impl<K> sealed::Sealed for Http<K> {}

#[diagnostic::do_not_recommend]
impl<B, R, S, K> Protocol<http::Request<B>, S> for Http<K>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    R: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
    K: Classify<http::Request<B>> + Clone,
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

    fn refuse(
        &self,
        request: http::Request<B>,
        why: RejectReason,
        waited: Duration,
        common: &sealed::Common<'_>,
    ) -> Result<Self::Response, S::Error> {
        let common = common.0;
        let rejection = common.with_retry_after(why.to_rejection());
        let mut response = match &self.render {
            Some(render) => {
                let mut response = render(&rejection, request.headers());
                common.insert_timing(&mut response, waited);
                response.map(QueueResponseBody::rendered)
            }
            None => {
                let response = common.write(rejection, request.headers(), waited);
                response.map(QueueResponseBody::rejection)
            }
        };
        response.extensions_mut().insert(why);
        insert_queue_time(&mut response, waited);
        Ok(response)
    }

    fn turn_away(
        &self,
        request: &http::Request<B>,
        common: &sealed::Common<'_>,
    ) -> Option<sealed::Notice> {
        // The user's own words are for a request that is still there.
        if self.render.is_some() {
            return None;
        }
        let full = common.0.gate.turn_away()?;
        tracing::debug!(reason = %RejectReason::<Infallible>::Full, "request rejected");
        Some(sealed::Notice {
            format: AnswerFormat::of(request.headers()),
            server_timing: common.0.tail().server_timing,
            retry_after: common.0.retry_after(full.estimated_wait),
        })
    }

    fn turned_away(notice: sealed::Notice) -> Result<Self::Response, S::Error> {
        let response = queue_full(notice.format, notice.retry_after, notice.server_timing);
        Ok(response.map(QueueResponseBody::rejection))
    }

    #[inline]
    fn answer(
        result: Result<http::Response<R>, S::Error>,
        permit: Option<Permit<SlotPool>>,
        waited: Duration,
        tail: sealed::Tail,
    ) -> Result<Self::Response, S::Error> {
        let mut response = result?;
        insert_queue_time(&mut response, waited);
        let wrap = QueueResponseBody::held;
        Ok(pass_on(response, permit, waited, tail.0, wrap))
    }
}

/// Tells the layers around how long the request waited, if it did.
#[inline]
fn insert_queue_time<B>(response: &mut http::Response<B>, waited: Duration) {
    if !waited.is_zero() {
        response.extensions_mut().insert(QueueTime(waited));
    }
}

/// The response with the permit in its body, which is passed through `wrap`.
#[inline]
pub(crate) fn pass_on<R: Body<Data = Bytes>, G, W>(
    mut response: http::Response<R>,
    permit: Option<G>,
    waited: Duration,
    tail: Tail,
    wrap: impl FnOnce(PermitBody<R, G>) -> W,
) -> http::Response<W> {
    if tail.server_timing {
        insert_server_timing(response.headers_mut(), waited);
    }
    let permit = permit.filter(|_| tail.hold == Hold::Body);
    let (head, body) = response.into_parts();
    http::Response::from_parts(head, wrap(PermitBody::new(body, permit)))
}

impl<C: Capacity> Common<C> {
    /// Tells a client that may come back when to.
    pub(crate) fn with_retry_after(&self, rejection: Rejection) -> Rejection {
        if !rejection.is_retryable() {
            return rejection;
        }
        let seconds = self.retry_after(self.gate.estimated_wait());
        rejection.with_retry_after(Duration::from_secs(seconds))
    }

    /// Writes a rejection in its client's protocol.
    pub(crate) fn write(
        &self,
        rejection: Rejection,
        headers: &http::HeaderMap,
        waited: Duration,
    ) -> http::Response<Bytes> {
        let mut response = rejection.into_response_to(headers);
        self.insert_timing(&mut response, waited);
        response
    }

    /// Inserts `server-timing`, if the configuration says so.
    fn insert_timing<B>(&self, response: &mut http::Response<B>, waited: Duration) {
        if self.tail().server_timing {
            insert_server_timing(response.headers_mut(), waited);
        }
    }
}

/// Anything else: rejections are [`QueueError`]s, and the slot is held until the response is there.
///
/// [`streaming`](super::QueueConfig::streaming), [`server_timing`](super::QueueConfig::server_timing),
/// [`retry_after`](super::QueueConfig::retry_after), [`hold`](super::QueueConfig::hold) and the header names
/// of the configuration mean nothing here.
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

    fn refuse(
        &self,
        _: Req,
        why: RejectReason,
        _: Duration,
        _: &sealed::Common<'_>,
    ) -> Result<S::Response, Self::Error> {
        Err(QueueError::Rejected(why))
    }

    fn turn_away(&self, _: &Req, common: &sealed::Common<'_>) -> Option<sealed::Notice> {
        common.0.gate.turn_away()?;
        Some(sealed::Notice {
            format: AnswerFormat::Http,
            server_timing: false,
            retry_after: 0,
        })
    }

    fn turned_away(_: sealed::Notice) -> Result<S::Response, Self::Error> {
        Err(QueueError::Rejected(RejectReason::Full))
    }

    fn answer(
        result: Result<S::Response, S::Error>,
        _: Option<Permit<SlotPool>>,
        _: Duration,
        _: sealed::Tail,
    ) -> Result<S::Response, Self::Error> {
        result.map_err(QueueError::Inner)
    }
}
