//! The task that drives the batches, one for each inner service.
//!
//! Without the task, one of the callers would have to drive the batch of all, and the batch would end if that caller
//! went away.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tower_service::Service;

use super::layer::Answers;
use super::trigger::{Trigger, WakeWhen};
use super::{BatchError, RequestQueue};
use crate::gate::now;

/// The limits at which a batch is full, and the delay after which it goes even if it is not full.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    pub(super) max_count: usize,
    pub(super) max_delay: Duration,
    pub(super) budget: u64,
}

/// The next step of the task.
enum Next<E> {
    /// A batch is due, and the inner service is ready for it.
    Send,
    /// A batch is due, but the inner service panicked in `poll_ready`.
    Lose,
    /// All requests have left.
    Nothing,
    Fail(E),
}

/// A mark that the inner service panicked in `poll_ready`.
struct Panicked;

/// The error with which an inner service has failed for good, if it has.
pub(super) type InnerFailure<E> = Arc<OnceLock<Arc<E>>>;

pub(super) struct Worker<S, Req, M>
where
    S: Service<Vec<Req>>,
    M: Answers<S::Response>,
{
    inner: S,
    pub(super) waiting: Waiting<Req, M::Answer, S::Error, M::ItemError>,
    pub(super) failure: InnerFailure<S::Error>,
    limits: BatchLimits,
}

/// The requests that wait for a batch. If the worker is dropped, it answers them with an error, because the task that
/// would take them is gone.
pub(super) struct Waiting<Req, A, E, I>(pub(super) BatchItems<Req, A, E, I>);

impl<S, Req, M> Worker<S, Req, M>
where
    S: Service<Vec<Req>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + Sync + 'static,
    M: Answers<S::Response> + 'static,
    M::Answer: Send + 'static,
    M::ItemError: Send + 'static,
    Req: Send + 'static,
{
    pub(super) fn new(
        inner: S,
        queue: BatchItems<Req, M::Answer, S::Error, M::ItemError>,
        limits: BatchLimits,
    ) -> Self {
        Self {
            inner,
            waiting: Waiting(queue),
            failure: InnerFailure::default(),
            limits,
        }
    }

    /// Sends batches until the queue is empty and closed to further requests.
    pub(super) async fn run(mut self) {
        while self.waiting.0.wait_nonempty().await {
            match self.next().await {
                Next::Send => self.send(),
                Next::Lose => self.lose(),
                Next::Nothing => {}
                Next::Fail(error) => return self.fail(error),
            }
        }
    }

    /// Waits until a batch is due and the inner service is ready, or has failed.
    async fn next(&mut self) -> Next<S::Error> {
        while self.waiting.is_due(&self.limits).await {
            let ready = self.is_ready().await;
            if let Ok(Err(error)) = ready {
                return Next::Fail(error);
            }
            // The requests that made the batch due may have left meanwhile.
            if let Trigger::Now = self.waiting.due(&self.limits) {
                return ready.map_or(Next::Lose, |_| Next::Send);
            }
        }
        Next::Nothing
    }

    /// Waits until the inner service is ready, or panics, or until all requests that need it are gone.
    async fn is_ready(&mut self) -> Result<Result<(), S::Error>, Panicked> {
        poll_fn(|cx| {
            // A panic costs this batch, but the task goes on.
            let polled = catch_unwind(AssertUnwindSafe(|| self.inner.poll_ready(cx)));
            match polled {
                Ok(Poll::Ready(ready)) => Poll::Ready(Ok(ready)),
                // The service has the waker now. `poll_until` also gives it to the queue, because the queue may become
                // empty.
                Ok(Poll::Pending) => self
                    .waiting
                    .0
                    .poll_until(cx, WakeWhen::Over)
                    .map(|()| Ok(Ok(()))),
                Err(_) => Poll::Ready(Err(Panicked)),
            }
        })
        .await
    }

    /// Fails the present batch after the inner service's `poll_ready` panicked. The service is polled again for the
    /// next one.
    fn lose(&self) {
        for item in self.waiting.take_batch(&self.limits) {
            item.fail(BatchError::Lost);
        }
    }

    /// Sends a batch to the inner service, and spawns a task that passes the responses on.
    fn send(&mut self) {
        let batch = self.waiting.take_batch(&self.limits);
        if batch.is_empty() {
            return; // all requests have left
        }
        let items = batch.into_iter().map(|item| (item.request, item.reply));
        let (requests, replies): (Vec<_>, Vec<_>) = items.unzip();
        // If `call` panics, the loss is limited to this batch.
        let called = catch_unwind(AssertUnwindSafe(|| self.inner.call(requests)));
        match called {
            // The batch runs in a task of its own, so that the next one can be sent meanwhile.
            Ok(answers) => drop(tokio::spawn(answer::<_, _, _, M>(answers, replies))),
            Err(_) => replies
                .into_iter()
                .for_each(|reply| respond(reply, Err(BatchError::Lost))),
        }
    }

    /// Fails all requests, because the inner service will never be ready again.
    fn fail(self, error: S::Error) {
        let error = Arc::new(error);
        // The error is stored before the requests are answered, because their callers may ask for the reason at once.
        let _ = self.failure.set(Arc::clone(&error));
        self.waiting.fail(|| BatchError::Inner(Arc::clone(&error)));
    }
}

impl<Req, A, E, I> Waiting<Req, A, E, I> {
    /// Waits until a batch is due. Returns `false` if all requests have left.
    async fn is_due(&self, limits: &BatchLimits) -> bool {
        loop {
            let due = self.due(limits);
            let sooner = poll_fn(|cx| self.0.poll_until(cx, WakeWhen::Sooner(*limits, due)));
            match due {
                Trigger::Now => return true,
                Trigger::At(end) => {
                    // The next round finds out when the batch is due, so both outcomes are the same here.
                    let _ = timeout_at(end.into(), sooner).await;
                }
                Trigger::Filled => sooner.await,
                Trigger::NoRequest => return false,
            }
        }
    }

    fn take_batch(&self, limits: &BatchLimits) -> Vec<BatchItem<Req, A, E, I>> {
        self.0.take_batch(limits.max_count, limits.budget)
    }

    /// Returns the time at which a batch is due.
    fn due(&self, limits: &BatchLimits) -> Trigger {
        match self.0.due(limits) {
            Trigger::At(end) if end <= now() => Trigger::Now,
            due => due,
        }
    }

    /// Stops accepting requests, and fails those that wait.
    fn fail(&self, why: impl Fn() -> BatchError<E, I>) {
        // Draining comes first, because a request that arrived after the others were taken would never be answered.
        self.0.drain();
        for item in self.0.clear() {
            item.fail(why());
        }
    }
}

impl<Req, A, E, I> Drop for Waiting<Req, A, E, I> {
    fn drop(&mut self) {
        self.fail(|| BatchError::Lost);
    }
}

/// Passes the responses of a batch on to its callers, as long as one of them waits.
async fn answer<F, R, E, M>(answers: F, mut replies: Vec<Reply<M::Answer, E, M::ItemError>>)
where
    F: Future<Output = Result<R, E>>,
    M: Answers<R>,
{
    let Some(result) = unless_all_left(answers, &mut replies).await else {
        return;
    };
    let requests = replies.len();
    let answers: Vec<_> = match result.map(M::split) {
        Ok(answers) if answers.len() == requests => answers
            .into_iter()
            .map(|answer| answer.map_err(BatchError::Item))
            .collect(),
        Ok(answers) => {
            let answers = answers.len();
            let wrong = || Err(BatchError::WrongCount { requests, answers });
            std::iter::repeat_with(wrong).take(requests).collect()
        }
        Err(error) => {
            let error = Arc::new(error);
            let failed = || Err(BatchError::Inner(Arc::clone(&error)));
            std::iter::repeat_with(failed).take(requests).collect()
        }
    };
    // There are as many answers as callers by now.
    for (reply, answer) in replies.into_iter().zip(answers) {
        respond(reply, answer);
    }
}

/// Waits for `answers`, or returns `None` as soon as all callers have left.
async fn unless_all_left<F: Future, A, E, I>(
    answers: F,
    replies: &mut [Reply<A, E, I>],
) -> Option<F::Output> {
    let mut answers = pin!(answers);
    let mut left = pin!(async {
        // The loop waits for one caller after the other, because only the last one counts.
        for reply in replies {
            reply.closed().await;
        }
    });
    // The answers are polled first, so that they are not thrown away if both are ready.
    poll_fn(|cx| match answers.as_mut().poll(cx) {
        Poll::Ready(answers) => Poll::Ready(Some(answers)),
        Poll::Pending => left.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// A request, with the channel for its response.
pub(super) struct BatchItem<Req, A, E, I> {
    pub(super) request: Req,
    pub(super) reply: Reply<A, E, I>,
}

/// The channel for a response. If it is dropped, the caller learns that its batch is lost.
pub(super) type Reply<A, E, I> = oneshot::Sender<Result<A, BatchError<E, I>>>;

/// The queue of requests that wait for their batch.
pub(super) type BatchItems<Req, A, E, I> = RequestQueue<BatchItem<Req, A, E, I>>;

impl<Req, A, E, I> BatchItem<Req, A, E, I> {
    /// Answers the request without a batch, if its caller still waits.
    pub(super) fn fail(self, why: BatchError<E, I>) {
        respond(self.reply, Err(why));
        discard(self.request);
    }
}

/// Sends a response, if the caller still waits. A panic of the caller's waker, or of the response's destructor, is
/// caught here.
pub(super) fn respond<A, E, I>(reply: Reply<A, E, I>, answer: Result<A, BatchError<E, I>>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(reply.send(answer))));
}

/// Drops a value of one caller. A panic of its destructor is caught here, because it concerns only that caller.
pub(super) fn discard<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}
