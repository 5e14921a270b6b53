//! The response future of a queue with an observer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::observation::Observation;
use super::{ObservedBody, Observer};
use crate::queue::delayed_head::DelayedHead;
use crate::queue::future::QueueFuture;
use crate::queue::protocol::Protocol;
use crate::queue::request::QueueRequest;

pin_project! {
    /// The response future of an [`Observed`](super::Observed) queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping it at any time gives up the place in the waiting room, or the slot, at once. The observer is told.
    pub struct ObservedFuture<S, B, P, O>
    where
        S: Service<Request<B>>,
        Request<B>: QueueRequest<S, P>,
        O: Observer,
    {
        // Dropped first, because the slot is free by the time of the last event.
        #[pin]
        future: QueueFuture<S, Request<B>, P>,
        // `None` once the request has its response.
        observation: Option<Observation<O>>,
    }
}

impl<S, B, P, O> ObservedFuture<S, B, P, O>
where
    Request<B>: QueueRequest<S, P>,
    O: Observer,
{
    #[inline]
    pub(super) fn new(
        future: QueueFuture<S, Request<B>, P>,
        mut observation: Observation<O>,
    ) -> Self {
        observation.set_polled(false);
        observation.follow(future.admission.progress());
        Self {
            future,
            observation: Some(observation),
        }
    }
}

impl<S, B, P, R, O> Future for ObservedFuture<S, B, P, O>
where
    Request<B>: QueueRequest<S, P>,
    P: Protocol<Request<B>, S, Response = Response<R>>,
    R: Body,
    O: Observer,
{
    type Output = Result<Response<ObservedBody<R, O>>, P::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(observation) = this.observation {
            observation.set_polled(true);
        }
        let polled = this.future.as_mut().poll(cx);
        let Some(observation) = this.observation else {
            unreachable!("the queue's future panics when it is polled after its end");
        };
        observation.set_polled(false);
        observation.follow(this.future.admission.progress());
        let Poll::Ready(answer) = polled else {
            observation.queue();
            return Poll::Pending;
        };
        let delayed = settle::<S, B, P, R, O>(observation, &answer);
        let observation = this.observation.take();
        Poll::Ready(answer.map(|response| ObservedBody::wrap(response, observation, delayed)))
    }
}

/// Reports the answer, if it is the end of the request. Returns the place for the head of the final answer, if the response
/// began while its request waited.
#[inline]
fn settle<S, B, P, R, O>(
    observation: &mut Observation<O>,
    answer: &Result<Response<R>, P::Error>,
) -> Option<DelayedHead>
where
    S: Service<Request<B>>,
    P: Protocol<Request<B>, S, Response = Response<R>>,
    O: Observer,
{
    if observation.is_waiting() {
        return settle_waiting::<S, B, P, R, O>(observation, answer);
    }
    match answer {
        Ok(response) => observation.respond(response.status()),
        Err(_) => observation.fail(),
    }
    None
}

/// Reports the answer to a request that was not admitted.
#[cold]
fn settle_waiting<S, B, P, R, O>(
    observation: &mut Observation<O>,
    answer: &Result<Response<R>, P::Error>,
) -> Option<DelayedHead>
where
    S: Service<Request<B>>,
    P: Protocol<Request<B>, S, Response = Response<R>>,
    O: Observer,
{
    let Ok(response) = answer else {
        // The inner service failed in `poll_ready`.
        observation.admit_late();
        observation.fail();
        return None;
    };
    if let Some(reason) = P::reason(answer) {
        observation.reject(reason, response.status());
        return None;
    }
    observation.queue(); // it goes on waiting in its body
    response.extensions().get().cloned()
}

impl<S, B, P, O> fmt::Debug for ObservedFuture<S, B, P, O>
where
    Request<B>: QueueRequest<S, P>,
    O: Observer,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedFuture").finish_non_exhaustive()
    }
}
