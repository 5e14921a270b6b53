//! Status while waiting: a client that asks for it gets its 200 at once, and is told its position while it waits.

use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};

use crate::http::{EVENT_STREAM, grpc_content_type};
use crate::queue::DelayedHead;

/// The header with which a client asks for its status.
const X_QUEUE_STATUS: HeaderName = HeaderName::from_static("x-queue-status");

/// The header that makes nginx, and proxies that follow it, pass a stream on as it comes.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Returns `true` if a request asks for its status while it waits. The request has to accept a stream, too, which the
/// caller checks.
pub(crate) fn asks_for_status<B>(request: &Request<B>) -> bool {
    let asked = request.headers().get(X_QUEUE_STATUS);
    asked.is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"sse"))
        && grpc_content_type(request.headers()).is_none()
        // The response to these methods has an empty body, which cannot drive the wait.
        && ![Method::HEAD, Method::CONNECT].contains(request.method())
}

/// Asks the inner service for a body that is not encoded, because the head that would name the encoding has gone out.
pub(crate) fn ask_for_identity(request: &mut HeaderMap) {
    // This fails if the map is full. An encoded answer is then refused.
    let _ = request.try_insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Returns a response with this body, and with `delayed` for the head of the answer as an extension.
pub(crate) fn status_response<B>(body: B, delayed: DelayedHead) -> Response<B> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response.extensions_mut().insert(delayed);
    response
}
