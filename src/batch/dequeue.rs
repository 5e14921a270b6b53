//! Waiting for a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::coop;

use super::RequestQueue;

/// Waits for a request, and takes it. Made by [`RequestQueue::dequeue`].
///
/// # Cancel safety
///
/// Dropping it at any time loses no request: one is taken only at the instant at which this resolves. If it had
/// been woken for one, another consumer is.
#[must_use = "futures do nothing unless polled"]
pub struct Dequeue<'a, T>(Consumer<'a, T>);

/// Waits until there is a request, and leaves it. Made by [`RequestQueue::wait_nonempty`]; as cancel-safe as
/// [`Dequeue`].
#[must_use = "futures do nothing unless polled"]
pub struct WaitNonEmpty<'a, T>(Consumer<'a, T>);

/// Dropping it gives up its place among the consumers.
struct Consumer<'a, T> {
    queue: &'a RequestQueue<T>,
    /// Its number, once it had to wait.
    number: Option<u64>,
}

impl<'a, T> Dequeue<'a, T> {
    pub(super) fn new(queue: &'a RequestQueue<T>) -> Self {
        Self(Consumer {
            queue,
            number: None,
        })
    }
}

impl<'a, T> WaitNonEmpty<'a, T> {
    pub(super) fn new(queue: &'a RequestQueue<T>) -> Self {
        Self(Consumer {
            queue,
            number: None,
        })
    }
}

impl<T: Send + 'static> Consumer<'_, T> {
    /// Whether it has just come, nobody is there yet, and it waits for the first.
    #[inline]
    fn comes_to_nobody(&mut self, cx: &Context<'_>) -> bool {
        let shared = &self.queue.shared;
        self.number.is_none()
            && shared.is_empty()
            && shared.wait_for_the_first(cx, &mut self.number)
    }
}

impl<T: Send + 'static> Future for Dequeue<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.0.comes_to_nobody(cx) {
            return Poll::Pending;
        }
        // A consumer that always finds something must let others of its runtime run.
        let budget = ready!(coop::poll_proceed(cx));
        let Consumer { queue, number } = &mut self.0;
        let found = ready!(queue.shared.poll_dequeue(cx, number));
        budget.made_progress();
        Poll::Ready(found)
    }
}

impl<T: Send + 'static> Future for WaitNonEmpty<'_, T> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        if self.0.comes_to_nobody(cx) {
            return Poll::Pending;
        }
        let budget = ready!(coop::poll_proceed(cx));
        let Consumer { queue, number } = &mut self.0;
        let found = ready!(queue.shared.poll_nonempty(cx, number));
        budget.made_progress();
        Poll::Ready(found)
    }
}

impl<T> Drop for Consumer<'_, T> {
    fn drop(&mut self) {
        if self.number.is_some() {
            self.queue.shared.forget_consumer(self.number);
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
