//! A service that allocates nothing, and its callers.

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use tower::{Service, ServiceExt};

use super::{client_headers, now};

/// Answers with the headers of the request, so that no pass allocates any.
#[derive(Clone)]
pub struct Echo;

/// The future of [`Echo`].
pub struct EchoFuture<B>(Option<Response<B>>);

impl<B> Unpin for EchoFuture<B> {}

impl<B> Future for EchoFuture<B> {
    type Output = Result<Response<B>, Infallible>;

    /// Not inlined, as the future of a handler of any size is not: otherwise the copies of the response disappear.
    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(self.0.take().expect("polled once")))
    }
}

impl<B> Service<Request<B>> for Echo {
    type Response = Response<B>;
    type Error = Infallible;
    type Future = EchoFuture<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let mut response = Response::new(body);
        *response.headers_mut() = head.headers;
        EchoFuture(Some(response))
    }
}

/// Drops the response, and with it the permit. Its headers are those of the next request.
fn headers_of<B>(response: Response<B>) -> HeaderMap {
    let mut headers = black_box(response).into_parts().0.headers;
    if headers.len() > 4 {
        headers.remove("server-timing");
    }
    headers
}

/// The ways in which callers use the service.
#[derive(Clone, Copy)]
pub enum Handle {
    /// One handle for all requests.
    Kept,
    /// A clone for each request, as axum and tonic make it.
    Cloned,
}

/// Runs requests, one after the other.
///
/// # Panics
///
/// If a request has to wait.
pub fn calls<S, B, R>(handle: Handle, mut service: S) -> impl FnMut(u64) + use<S, B, R>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible> + Clone,
    B: Default,
{
    let mut spare = client_headers();
    move |n| {
        for _ in 0..n {
            spare = call(handle, &mut service, std::mem::take(&mut spare));
        }
    }
}

/// Runs one request. It is a function of its own, as the task of a connection is to a server.
#[inline(never)]
fn call<S, B, R>(handle: Handle, service: &mut S, headers: HeaderMap) -> HeaderMap
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible> + Clone,
    B: Default,
{
    let mut request = Request::new(B::default());
    *request.headers_mut() = headers;
    let response = match handle {
        Handle::Kept => {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(service.poll_ready(&mut cx).is_ready());
            now(service.call(request))
        }
        Handle::Cloned => now(service.clone().oneshot(request)),
    };
    let Ok(response) = response;
    headers_of(response)
}

/// An empty body of one word, which could have the bytes of a rejection.
#[derive(Default)]
#[allow(dead_code, reason = "its size is all that counts")]
pub struct SmallBody(Option<Box<Bytes>>);

impl From<Bytes> for SmallBody {
    fn from(bytes: Bytes) -> Self {
        Self(Some(Box::new(bytes)))
    }
}
