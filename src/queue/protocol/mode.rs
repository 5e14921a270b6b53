//! The modes of HTTP services: the time that a request holds its slot, and the body of its response.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::http::{Http, rejection};
use super::sealed;
use crate::admit::RejectReason;
use crate::gate::BodyPermit;
use crate::http::{LimitedHold, wants_stream};
use crate::queue::exempt::Exempt;
use crate::queue::on_reject::OnReject;
use crate::queue::queue_time::QueueTime;
use crate::queue::request_head::RequestHead;
use crate::queue::response_body::{OwnContent, QueueResponseBody};
use crate::service::{ResponseOptions, insert_timing};

/// The time that the requests of an HTTP service hold their slots, and the body of its responses.
///
/// [`UntilBodyEnds`], [`UntilHeaders`] and [`WithStatus`](super::WithStatus) implement it, each for the services that it
/// supports.
pub trait HttpMode<K, B, R, S>: Clone + sealed::Sealed
where
    S: Service<Request<B>, Response = Response<R>>,
{
    /// The body of the responses to callers.
    type Body;

    /// Returns the response to a request that has just been queued, if the response may begin before the wait is over.
    #[doc(hidden)]
    #[inline]
    fn on_queued<E>(
        _: sealed::Queued<'_, S, Request<B>, Http<K, Self, E>>,
    ) -> Option<Response<Self::Body>>
    where
        S: Clone,
        E: Exempt<Request<B>> + Clone + Send + 'static,
    {
        None
    }

    #[doc(hidden)]
    fn reject(
        &self,
        request: &RequestHead<'_>,
        rejected: sealed::Rejected<'_>,
    ) -> Response<Self::Body>;

    /// Returns the reason of the rejection, if the request was rejected with this response. The response to an admitted
    /// request may look the same.
    #[doc(hidden)]
    fn reason(response: &Response<Self::Body>) -> Option<&RejectReason>;

    /// Polls the call of a request that did not wait, and passes its response on.
    #[doc(hidden)]
    #[inline(always)]
    fn poll_call(
        future: Pin<&mut S::Future>,
        permit: &mut Option<BodyPermit>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<Self::Body>, S::Error>> {
        let result = ready!(future.poll(cx));
        let permit = permit.take(); // an error gives the slot back at once
        Poll::Ready(result.map(|response| Self::respond(response, permit, Duration::ZERO)))
    }

    #[doc(hidden)]
    fn respond(
        response: Response<R>,
        permit: Option<BodyPermit>,
        waited: Duration,
    ) -> Response<Self::Body>;

    /// Passes the response of a request on that may hold its slot for a limited time.
    #[doc(hidden)]
    fn respond_limited(
        response: Response<R>,
        permit: BodyPermit,
        waited: Duration,
        _hold: sealed::CallHold,
    ) -> Response<Self::Body> {
        Self::respond(response, Some(permit), waited)
    }
}

/// The mode in which a request holds its slot until the response's body ends, fails or is dropped. The setting
/// [`hold`](crate::QueueConfig::hold) can shorten that to the response's head.
#[derive(Clone, Default)]
pub struct UntilBodyEnds {
    pub(in crate::queue) on_reject: Option<OnReject>,
}

impl fmt::Debug for UntilBodyEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilBodyEnds").finish_non_exhaustive()
    }
}

impl sealed::Sealed for UntilBodyEnds {}

impl<K, B, R, S> HttpMode<K, B, R, S> for UntilBodyEnds
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    type Body = QueueResponseBody<R>;

    #[inline]
    fn reject(
        &self,
        request: &RequestHead<'_>,
        rejected: sealed::Rejected<'_>,
    ) -> Response<Self::Body> {
        let Some(on_reject) = &self.on_reject else {
            let response = rejection(request.headers(), &rejected);
            let sealed::Rejected { reason, waited, .. } = rejected;
            return response.map(|body| QueueResponseBody::rejection(body.into(), reason, waited));
        };
        let response = answer(on_reject, request, &rejected);
        response.map(|body| QueueResponseBody::rejection(body, rejected.reason, rejected.waited))
    }

    fn reason(response: &Response<Self::Body>) -> Option<&RejectReason> {
        response.body().reason()
    }

    #[inline(always)]
    fn respond(
        mut response: Response<R>,
        permit: Option<BodyPermit>,
        waited: Duration,
    ) -> Response<Self::Body> {
        let options = options_of(permit.as_ref());
        insert_timing(response.headers_mut(), waited, options);
        let is_held = options.hold_body(response.headers()) && !response.body().is_end_stream();
        // The permit is dropped before the response moves, because a destructor in between would cost a copy.
        let permit = permit.filter(|_| is_held);
        response.map(|body| QueueResponseBody::held(body, permit, waited))
    }

    fn respond_limited(
        mut response: Response<R>,
        permit: BodyPermit,
        waited: Duration,
        hold: sealed::CallHold,
    ) -> Response<Self::Body> {
        let options = options_of(Some(&permit));
        let is_held = options.hold_body(response.headers()) && !response.body().is_end_stream();
        if !is_held {
            return <Self as HttpMode<K, B, R, S>>::respond(response, Some(permit), waited);
        }
        insert_timing(response.headers_mut(), waited, options);
        let hold = LimitedHold::new(permit, &hold.0);
        response.map(|body| QueueResponseBody::limited(body, hold, waited))
    }
}

/// Returns the response of the user's closure to a rejected request.
#[cold]
fn answer(
    on_reject: &OnReject,
    request: &RequestHead<'_>,
    rejected: &sealed::Rejected<'_>,
) -> Response<OwnContent> {
    let (state, reason) = (rejected.state, &rejected.reason);
    let wants_stream = || wants_stream(request.headers());
    let rejection = state.rejection(reason, wants_stream, || rejected.estimated_wait());
    let mut response = on_reject.respond(&rejection, request);
    insert_timing(response.headers_mut(), rejected.waited, state.options());
    response
}

/// Returns the options of the layer that gave this permit. A service that was not called answered nothing to write to.
#[inline]
fn options_of(permit: Option<&BodyPermit>) -> ResponseOptions {
    permit.map_or(ResponseOptions::empty(), |permit| {
        ResponseOptions::from_bits_retain(permit.layer_bits())
    })
}

/// The mode in which a request holds its slot until the response's head is there. The body is the inner service's own. It
/// has to be [`From<Bytes>`], as those of axum and `http_body_util::Full` are, because rejections have the same type of body.
#[derive(Debug, Clone, Copy, Default)]
pub struct UntilHeaders;

impl sealed::Sealed for UntilHeaders {}

impl<K, B, R, S> HttpMode<K, B, R, S> for UntilHeaders
where
    S: Service<Request<B>, Response = Response<R>>,
    R: From<Bytes>,
{
    type Body = R;

    #[inline]
    fn reject(&self, request: &RequestHead<'_>, rejected: sealed::Rejected<'_>) -> Response<R> {
        let mut response = rejection(request.headers(), &rejected).map(R::from);
        // The inner service's body has no room for the two.
        let extensions = response.extensions_mut();
        if !rejected.waited.is_zero() {
            extensions.insert(QueueTime(rejected.waited));
        }
        extensions.insert(rejected.reason);
        response
    }

    fn reason(response: &Response<R>) -> Option<&RejectReason> {
        response.extensions().get()
    }

    #[inline(always)]
    fn poll_call(
        future: Pin<&mut S::Future>,
        permit: &mut Option<BodyPermit>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, S::Error>> {
        // The result is passed on whole, because taking it apart would copy the response.
        let polled = future.poll(cx);
        if polled.is_ready() {
            *permit = None;
        }
        polled
    }

    fn respond(
        mut response: Response<R>,
        permit: Option<BodyPermit>,
        waited: Duration,
    ) -> Response<R> {
        insert_timing(response.headers_mut(), waited, options_of(permit.as_ref()));
        drop(permit);
        response
    }
}
