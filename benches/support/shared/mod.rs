//! The services that are measured, and their callers.

mod crowd;
mod echo;
mod peers;

pub use crowd::{TASKS, crowd};
pub use echo::{Echo, EchoFuture, Handle, SmallBody, calls};
pub use peers::{LimitToBodyEnd, PrioritySemaphoreLimit};

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Empty;

/// Runs a future that never has to wait.
///
/// # Panics
///
/// If it has to.
#[inline]
pub fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future had to wait"),
    }
}

/// A client's headers.
pub fn client_headers() -> HeaderMap {
    let headers = [
        ("x-priority", "high"),
        ("x-tenant-id", "team-a"),
        ("x-request-timeout", "30"),
        ("content-type", "application/json"),
    ];
    let parsed = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    HeaderMap::from_iter(parsed)
}

/// A request with these headers and no body.
#[inline]
pub fn request(headers: HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.headers_mut() = headers;
    request
}
