//! The response future of a queue that reads the bodies of waiting requests.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Body;
use pin_project_lite::pin_project;

use super::Limits;
use super::waiting::Shared;

pin_project! {
    /// The response future of a [`ReadAhead`](super::ReadAhead).
    ///
    /// # Cancel safety
    ///
    /// Dropping it at any time gives up the place in the waiting room or the slot, and drops what was read.
    pub struct ReadAheadFuture<F, B: Body> {
        #[pin]
        future: F,
        // The body that is read while the request waits. `None` once there is nothing to read before the request has a slot.
        waiting: Option<(Shared<B>, Arc<Limits>)>,
    }
}

impl<F, B: Body> ReadAheadFuture<F, B> {
    pub(super) fn new(future: F, waiting: Option<(Shared<B>, Arc<Limits>)>) -> Self {
        Self { future, waiting }
    }
}

impl<F, B> Future for ReadAheadFuture<F, B>
where
    F: Future,
    B: Body<Data = Bytes> + Unpin,
{
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        // The queue goes first, because it may pass the body on.
        let polled = this.future.poll(cx);
        if polled.is_pending()
            && let Some((body, limits)) = this.waiting
            && body.poll_ahead(limits, cx).is_ready()
        {
            *this.waiting = None;
        }
        polled
    }
}

impl<F, B: Body> fmt::Debug for ReadAheadFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAheadFuture").finish_non_exhaustive()
    }
}
