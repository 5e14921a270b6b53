//! A limit on the time for which a body may be silent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::clock;

/// A limit on the time between two pieces of a body.
///
/// The clock runs only while a piece is awaited. One timer serves the whole body: the first wait sets it, and it is moved
/// when it fires, so each later wait costs one read of the clock.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    limit: Duration,
    /// The start of the current wait. `None` while no piece is awaited.
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    #[inline]
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            since: None,
            timer: None,
        }
    }

    /// Returns the longest time for which the body may be silent.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns the start of the current wait, or `None` while no piece is awaited.
    #[cfg(feature = "client")]
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Ends the wait, because a piece has come.
    #[inline]
    pub(crate) fn on_piece(&mut self) {
        self.since = None;
    }

    /// Waits until a piece has been awaited for the whole limit. The first call after a piece begins the wait.
    #[inline]
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_within(self.limit, cx)
    }

    /// Waits until a piece has been awaited for `limit`, in place of the timer's own limit.
    pub(crate) fn poll_within(&mut self, limit: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.since.get_or_insert_with(clock::now);
        let Some(end) = since.checked_add(limit) else {
            return Poll::Pending; // the limit is endless
        };
        if self.timer.is_none() {
            self.timer = clock::sleep_until(end).map(Box::pin);
        }
        let Some(timer) = &mut self.timer else {
            return Poll::Pending; // there is no timer without Tokio's clock
        };
        ready!(timer.as_mut().poll(cx));
        // The timer may be from an earlier wait, or from a shorter limit.
        while timer.deadline().into_std() < end {
            timer.as_mut().reset(end.into());
            ready!(timer.as_mut().poll(cx));
        }
        Poll::Ready(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{advance, timeout};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Returns `true` if the timer expires within `wait`.
    async fn expires(timer: &mut IdleTimer, wait: Duration) -> bool {
        let expired = poll_fn(|cx| timer.poll_expired(cx));
        timeout(wait, expired).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_after_the_limit() {
        let mut timer = IdleTimer::new(LIMIT);
        assert!(!expires(&mut timer, LIMIT - Duration::from_millis(1)).await);
        assert!(expires(&mut timer, Duration::from_millis(2)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn each_piece_begins_a_new_wait() {
        let mut timer = IdleTimer::new(LIMIT);
        for _ in 0..5 {
            assert!(!expires(&mut timer, LIMIT * 9 / 10).await);
            timer.on_piece();
        }
        assert!(!expires(&mut timer, LIMIT * 9 / 10).await);
        assert!(expires(&mut timer, LIMIT * 2 / 10).await);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nothing_is_awaited_does_not_count() {
        let mut timer = IdleTimer::new(LIMIT);
        assert!(!expires(&mut timer, LIMIT / 2).await);
        timer.on_piece();
        advance(LIMIT * 5).await;
        assert!(!expires(&mut timer, LIMIT * 9 / 10).await);
        assert!(expires(&mut timer, LIMIT * 2 / 10).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_wait_is_followed_by_the_rest_of_the_limit() {
        let mut timer = IdleTimer::new(LIMIT);
        poll_fn(|cx| timer.poll_within(LIMIT / 10, cx)).await;
        assert!(!expires(&mut timer, LIMIT * 8 / 10).await);
        assert!(expires(&mut timer, LIMIT * 2 / 10).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_limit_never_expires() {
        let mut timer = IdleTimer::new(Duration::MAX);
        assert!(!expires(&mut timer, LIMIT * 1_000_000).await);
    }
}
