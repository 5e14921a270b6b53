//! A request that is being served: its waits for the client, and the ways to end it.

use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::task::AbortHandle;

use super::wait::WaitMark;

/// A request, from the arrival of its head to the end of its response.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Waits for the next piece of the request's body.
    pub(super) upload: WaitMark,
    /// `true` once the request's body has ended, or its reader has dropped it.
    uploaded: AtomicBool,
    /// Waits for the client to take the next piece of the response. Only HTTP/2 needs it: over HTTP/1 the socket itself
    /// takes nothing.
    pub(super) download: WaitMark,
    /// This is set once, when the next piece of the request's body is late.
    is_late: AtomicBool,
    /// `true` once there is a response.
    has_response: AtomicBool,
    /// The task that waits for the response.
    waiting: AtomicWaker,
    /// The task of the stream; HTTP/2 only.
    stream: OnceLock<AbortHandle>,
}

impl Exchange {
    /// Waits for `response`. Returns `None` if a piece of the request's body came too late; the future has to be dropped
    /// then, which gives back what the request had.
    pub(super) fn poll_response<F: Future>(
        &self,
        response: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<F::Output>> {
        if self.is_late() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(response) = response.poll(cx) {
            self.has_response.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(response));
        }
        // Acquire, so that a body which another task has read is seen as a whole.
        if self.uploaded.load(Ordering::Acquire) {
            return Poll::Pending; // the common case: no piece can be late any more
        }
        self.waiting.register(cx.waker());
        match self.is_late() {
            true => Poll::Ready(None), // it became late before the waker was registered
            false => Poll::Pending,
        }
    }

    /// Marks the end of the request's body.
    pub(super) fn uploaded(&self) {
        self.upload.go_on();
        self.uploaded.store(true, Ordering::Release);
    }

    pub(super) fn is_late(&self) -> bool {
        // Acquire pairs with the release in `fail_upload`.
        self.is_late.load(Ordering::Acquire)
    }

    /// Fails the request because a piece of its body is late. Returns `false` if it has a response already.
    pub(super) fn fail_upload(&self) -> bool {
        self.is_late.store(true, Ordering::Release);
        self.waiting.wake();
        !self.has_response.load(Ordering::Relaxed)
    }

    /// Sets the task of the stream.
    pub(super) fn set_stream(&self, task: AbortHandle) {
        _ = self.stream.set(task); // a stream has one task
    }

    /// Resets the stream of an HTTP/2 request, and drops what serves it. Returns `false` over HTTP/1.
    pub(super) fn reset_stream(&self) -> bool {
        let stream = self.stream.get();
        stream.map(AbortHandle::abort).is_some()
    }
}
