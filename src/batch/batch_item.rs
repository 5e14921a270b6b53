//! A request on its way through a batch.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

use super::{BatchError, RequestQueue};

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
