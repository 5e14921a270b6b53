//! The response of a request that joins a batch.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use super::worker::BatchItem;
use super::{BatchError, RequestGuard};

/// The response of a [`Batch`](super::Batch).
///
/// # Cancel safety
///
/// Dropping it takes the request out of the queue, if the request has not joined a batch. When the futures of all
/// requests of a batch are dropped, the batch is dropped, too.
#[must_use = "futures do nothing unless polled"]
pub struct BatchFuture<Req, A, E, I>(Step<Req, A, E, I>);

enum Step<Req, A, E, I> {
    Failed(BatchError<E, I>),
    Waiting {
        guard: RequestGuard<BatchItem<Req, A, E, I>>,
        answer: oneshot::Receiver<Result<A, BatchError<E, I>>>,
    },
    Done,
}

/// The future is `Unpin` because its fields are never pinned.
impl<Req, A, E, I> Unpin for BatchFuture<Req, A, E, I> {}

impl<Req, A, E, I> BatchFuture<Req, A, E, I> {
    pub(super) fn failed(error: BatchError<E, I>) -> Self {
        Self(Step::Failed(error))
    }

    pub(super) fn waiting(
        guard: RequestGuard<BatchItem<Req, A, E, I>>,
        answer: oneshot::Receiver<Result<A, BatchError<E, I>>>,
    ) -> Self {
        Self(Step::Waiting { guard, answer })
    }
}

impl<Req, A, E, I> Future for BatchFuture<Req, A, E, I> {
    type Output = Result<A, BatchError<E, I>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Step::Waiting { answer, .. } = &mut self.0 {
            let answer = ready!(Pin::new(answer).poll(cx));
            if let Step::Waiting { guard, .. } = std::mem::replace(&mut self.0, Step::Done) {
                // The request has already been taken out of the queue, so the guard has nothing to remove.
                guard.disarm();
            }
            // The sender was dropped without an answer if the batch broke off.
            return Poll::Ready(answer.unwrap_or(Err(BatchError::Lost)));
        }
        match std::mem::replace(&mut self.0, Step::Done) {
            Step::Failed(error) => Poll::Ready(Err(error)),
            Step::Waiting { .. } | Step::Done => {
                panic!("`BatchFuture` polled after completion")
            }
        }
    }
}

impl<Req, A, E, I> fmt::Debug for BatchFuture<Req, A, E, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.0 {
            Step::Failed(_) => "failed",
            Step::Waiting { .. } => "waiting",
            Step::Done => "done",
        };
        f.debug_tuple("BatchFuture").field(&step).finish()
    }
}
