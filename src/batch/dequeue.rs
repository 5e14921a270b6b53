//! The futures that wait for a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::coop;

use super::RequestQueue;

/// A future that waits for a request and takes it. It is returned by [`RequestQueue::dequeue`].
///
/// # Cancel safety
///
/// Dropping it at any time loses no request, because only the poll that returns a request takes it. If this consumer
/// was woken for a request, another one is woken instead.
#[must_use = "futures do nothing unless polled"]
pub struct Dequeue<'a, T>(Consumer<'a, T>);

/// A future that waits until there is a request, and leaves it in the queue. It is returned by
/// [`RequestQueue::wait_nonempty`], and is as cancel-safe as [`Dequeue`].
#[must_use = "futures do nothing unless polled"]
pub struct WaitNonEmpty<'a, T>(Consumer<'a, T>);

/// A consumer of the queue. If it was woken, dropping it passes the wake-up to the next consumer.
struct Consumer<'a, T> {
    queue: &'a RequestQueue<T>,
    /// The id, which is given when the consumer first waits.
    id: Option<u64>,
}

impl<'a, T> Dequeue<'a, T> {
    pub(super) fn new(queue: &'a RequestQueue<T>) -> Self {
        Self(Consumer { queue, id: None })
    }
}

impl<'a, T> WaitNonEmpty<'a, T> {
    pub(super) fn new(queue: &'a RequestQueue<T>) -> Self {
        Self(Consumer { queue, id: None })
    }
}

impl<T: Send + 'static> Consumer<'_, T> {
    /// Returns `true` if this is the first poll and the queue is empty, so that the consumer waits. This is the common
    /// case, and takes the lock only once.
    #[inline]
    fn waits_at_once(&mut self, cx: &Context<'_>) -> bool {
        let shared = &self.queue.shared;
        self.id.is_none()
            && shared.is_empty() // read without the lock
            && shared.wait_if_empty(cx, &mut self.id) // checked again with the lock
    }
}

impl<T: Send + 'static> Future for Dequeue<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.0.waits_at_once(cx) {
            return Poll::Pending;
        }
        // A consumer that always finds an item must let other tasks of its runtime run.
        let budget = ready!(coop::poll_proceed(cx));
        let Consumer { queue, id } = &mut self.0;
        let found = ready!(queue.shared.poll_dequeue(cx, id));
        budget.made_progress();
        Poll::Ready(found)
    }
}

impl<T: Send + 'static> Future for WaitNonEmpty<'_, T> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        if self.0.waits_at_once(cx) {
            return Poll::Pending;
        }
        let budget = ready!(coop::poll_proceed(cx)); // as in `Dequeue`
        let Consumer { queue, id } = &mut self.0;
        let found = ready!(queue.shared.poll_nonempty(cx, id));
        budget.made_progress();
        Poll::Ready(found)
    }
}

impl<T> Drop for Consumer<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // A consumer without an id has never waited, so the queue knows nothing of it.
        if self.id.is_some() {
            self.queue.shared.forget_consumer(self.id);
        }
    }
}

impl<T> fmt::Debug for Dequeue<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dequeue").field(self.0.queue).finish()
    }
}

impl<T> fmt::Debug for WaitNonEmpty<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitNonEmpty").field(self.0.queue).finish()
    }
}
