//! The service inside of the queue, which takes over the body of a request that has a slot.

use std::task::{Context, Poll};

use http::Request;
use http_body::Body;
use tower_service::Service;

use super::body::ReadAheadBody;
use super::waiting::WaitingBody;

/// The inner service of a [`ReadAhead`](super::ReadAhead) as its queue sees it.
#[derive(Debug, Clone)]
pub struct ReadAheadInner<S>(pub(super) S);

impl<S, B> Service<Request<WaitingBody<B>>> for ReadAheadInner<S>
where
    S: Service<Request<ReadAheadBody<B>>>,
    B: Body,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<WaitingBody<B>>) -> S::Future {
        self.0.call(request.map(WaitingBody::into_inner))
    }
}

/// Keeps the name of the gRPC service, as [`Queue`](crate::queue::Queue) does.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService> tonic::server::NamedService for ReadAheadInner<S> {
    const NAME: &'static str = S::NAME;
}
