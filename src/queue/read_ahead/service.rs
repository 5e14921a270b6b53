//! The service outside of the queue, which reads the bodies of requests that wait.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body::Body;
use tower_service::Service;

use super::Limits;
use super::future::ReadAheadFuture;
use super::waiting::WaitingBody;

/// A queue that reads the bodies of waiting requests. Created by [`ReadAheadLayer`](super::ReadAheadLayer).
#[derive(Clone)]
pub struct ReadAhead<Q> {
    queue: Q,
    limits: Arc<Limits>,
}

impl<Q> ReadAhead<Q> {
    pub(super) fn new(queue: Q, limits: &Arc<Limits>) -> Self {
        Self {
            queue,
            limits: Arc::clone(limits),
        }
    }

    /// Returns a reference to the queue.
    #[must_use]
    pub fn get_ref(&self) -> &Q {
        &self.queue
    }
}

/// Returns `true` if the body of a request holds up others while it is unread.
///
/// Over HTTP/1, a connection has one request at a time. A client that waits for `100 Continue` sends nothing before its body is
/// read, so reading it early would make the client send a body that may be refused.
fn holds_up_others<B: Body>(request: &Request<B>) -> bool {
    request.version() >= Version::HTTP_2
        && !request.body().is_end_stream()
        && !request.headers().contains_key(EXPECT)
}

impl<Q, B> Service<Request<B>> for ReadAhead<Q>
where
    Q: Service<Request<WaitingBody<B>>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Response = Q::Response;
    type Error = Q::Error;
    type Future = ReadAheadFuture<Q::Future, B>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Q::Error>> {
        self.queue.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !holds_up_others(&request) {
            let request = request.map(WaitingBody::whole);
            return ReadAheadFuture::new(self.queue.call(request), None);
        }
        let (head, body) = request.into_parts();
        let (body, shared) = WaitingBody::shared(body);
        let future = self.queue.call(Request::from_parts(head, body));
        ReadAheadFuture::new(future, Some((shared, Arc::clone(&self.limits))))
    }
}

/// Keeps the name of the gRPC service, as [`Queue`](crate::queue::Queue) does.
#[cfg(feature = "tonic")]
impl<Q: tonic::server::NamedService> tonic::server::NamedService for ReadAhead<Q> {
    const NAME: &'static str = Q::NAME;
}

impl<Q: fmt::Debug> fmt::Debug for ReadAhead<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
