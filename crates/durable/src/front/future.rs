//! The response future of the durable service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower::util::Oneshot;
use tower_service::Service;

use super::body::{DurableBody, OwnBody};

pin_project! {
    /// The response future of [`Durable`](super::Durable). It resolves to a response of the inner service, a stored
    /// response, or a page about a stored request.
    pub struct DurableFuture<S: Service<Request<B>>, B> {
        #[pin]
        step: Step<S, B>,
    }
}

pin_project! {
    #[project = StepProj]
    enum Step<S: Service<Request<B>>, B> {
        Inner { #[pin] future: Oneshot<S, Request<B>> },
        Own { future: OwnFuture },
    }
}

pub(super) type OwnFuture = Pin<Box<dyn Future<Output = Response<OwnBody>> + Send>>;

impl<S: Service<Request<B>>, B> DurableFuture<S, B> {
    pub(super) fn inner(future: Oneshot<S, Request<B>>) -> Self {
        let step = Step::Inner { future };
        Self { step }
    }

    pub(super) fn own(future: OwnFuture) -> Self {
        let step = Step::Own { future };
        Self { step }
    }
}

impl<S, B, R> Future for DurableFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<DurableBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().step.project() {
            StepProj::Inner { future } => future
                .poll(cx)
                .map_ok(|response| response.map(DurableBody::inner)),
            StepProj::Own { future } => future
                .as_mut()
                .poll(cx)
                .map(|response| Ok(response.map(DurableBody::own))),
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for DurableFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableFuture").finish_non_exhaustive()
    }
}
