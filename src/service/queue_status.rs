//! Status while waiting: a client that asks for it gets its 200 at once, and is told its position while it waits.

use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};

use crate::http::{EVENT_STREAM, grpc_content_type};
use crate::queue::DelayedHead;

const X_QUEUE_STATUS: HeaderName = HeaderName::from_static("x-queue-status");

/// Tells nginx, and proxies that follow it, to pass a stream on as it comes.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether a request asks for its status while it waits. It has to be one for a stream, too.
pub(crate) fn asks_for_status<B>(request: &Request<B>) -> bool {
    let asked = request.headers().get(X_QUEUE_STATUS);
    asked.is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"sse"))
        && grpc_content_type(request.headers()).is_none()
        // Its response has no body that could drive the wait.
        && ![Method::HEAD, Method::CONNECT].contains(request.method())
}

/// Asks the inner service for a body that is not encoded: the head that would name the encoding has gone out.
pub(crate) fn ask_for_identity(request: &mut HeaderMap) {
    // Fails if the map can hold no more headers. An encoded answer is refused then.
    let _ = request.try_insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Returns the response with this body, in which the answer with the head `delayed` will be.
pub(crate) fn status_response<B>(body: B, delayed: DelayedHead) -> Response<B> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response.extensions_mut().insert(delayed);
    response
}
