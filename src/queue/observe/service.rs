//! The service of a queue with an observer.

use std::fmt;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::observation::Observation;
use super::{ObservedBody, ObservedFuture, Observer};
use crate::queue::future::QueueFuture;
use crate::queue::protocol::Protocol;
use crate::queue::request::QueueRequest;

/// A [`Queue`](crate::queue::Queue) or a [`PerKeyQueue`](crate::queue::PerKeyQueue) whose requests are observed. Created by [`ObservedLayer`](super::ObservedLayer).
#[derive(Clone)]
pub struct Observed<Q, O> {
    queue: Q,
    observer: O,
}

impl<Q, O> Observed<Q, O> {
    pub(super) fn new(queue: Q, observer: O) -> Self {
        Self { queue, observer }
    }
}

impl<Q, S, B, P, R, O> Service<Request<B>> for Observed<Q, O>
where
    Q: Service<Request<B>, Error = P::Error, Future = QueueFuture<S, Request<B>, P>>,
    Request<B>: QueueRequest<S, P>,
    P: Protocol<Request<B>, S, Response = Response<R>>,
    R: Body,
    O: Observer + Clone,
{
    type Response = Response<ObservedBody<R, O>>;
    type Error = P::Error;
    type Future = ObservedFuture<S, B, P, O>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), P::Error>> {
        self.queue.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let observation = Observation::start(self.observer.clone(), &request);
        ObservedFuture::new(self.queue.call(request), observation)
    }
}

/// Keeps the name of the gRPC service, as [`Queue`](crate::queue::Queue) does.
#[cfg(feature = "tonic")]
impl<Q: tonic::server::NamedService, O> tonic::server::NamedService for Observed<Q, O> {
    const NAME: &'static str = Q::NAME;
}

impl<Q: fmt::Debug, O> fmt::Debug for Observed<Q, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
