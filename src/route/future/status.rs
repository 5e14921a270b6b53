//! A routed request that is answered while it waits. The rest of its future moves into the response's body.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{Attempts, NotRetryable, RouteBody, Routed, State, StateProj};
use crate::gate::QueuePlace;
use crate::http::PermitBody;
use crate::route::response_body::{RouteResponseBody, RoutedBody};
use crate::service::{PendingAnswer, StatusStream, status_response};

impl<S, B, R> Attempts<S, B, R>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Body<Data = Bytes> + Send + 'static,
{
    /// Begins the response to a request that still waits for a slot.
    #[cold]
    #[inline(never)]
    pub(super) fn status_response(self: Pin<&mut Self>) -> Result<Routed<R>, S::Error> {
        let this = self.project();
        let admission = match this.state.project() {
            StateProj::Admitted { admission } => admission.take_queued(),
            _ => None,
        };
        let mut retry = std::mem::replace(this.retry, Err(NotRetryable::NoRetries));
        if let Ok(retry) = &mut retry {
            retry.ask_for_identity();
        }
        let Some(admission) = admission else {
            unreachable!("only a request that waits is answered meanwhile");
        };
        let pending = Self {
            state: State::Admitted { admission },
            retry,
            metrics: this.metrics.take(),
        };
        let stream = StatusStream::new(pending);
        let delayed = stream.delayed_head();
        let body = PermitBody::new(RouteResponseBody::status(stream), None);
        Ok(status_response(body, delayed))
    }
}

impl<S, B, R> PendingAnswer<RoutedBody<R>> for Attempts<S, B, R>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Body<Data = Bytes> + Send + 'static,
{
    fn poll_answer(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Routed<R>>> {
        // A retry that waits resolves with `None` as well. It is polled again at once, because its status is shown
        // already.
        loop {
            if let Some(response) = ready!(self.as_mut().poll_response(cx)) {
                return Poll::Ready(response.ok());
            }
        }
    }

    fn place(&self) -> Option<QueuePlace> {
        match &self.state {
            State::Admitted { admission } => admission.place(),
            _ => None,
        }
    }
}
