//! Waits for a client: the marks that a task leaves when one begins and ends, and their measure.
//!
//! A mark takes one store and no look at the clock, because most waits end at once. The task of the connection looks at
//! the marks at intervals, and measures a wait from the time at which it first sees it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A count of the changes between going on and waiting. It is odd while the task waits for the client.
///
/// One task at a time writes it, so a load and a store are enough. All accesses are relaxed, because no code draws a
/// conclusion about other memory from it.
#[derive(Debug, Default)]
pub(super) struct WaitMark(AtomicUsize);

impl WaitMark {
    /// Marks the begin of a wait, unless it has begun already.
    #[inline]
    pub(super) fn wait(&self) {
        let mark = self.0.load(Ordering::Relaxed);
        if mark.is_multiple_of(2) {
            self.0.store(mark.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Marks the end of a wait, if there is one.
    #[inline]
    pub(super) fn go_on(&self) {
        let mark = self.0.load(Ordering::Relaxed);
        if !mark.is_multiple_of(2) {
            self.0.store(mark.wrapping_add(1), Ordering::Relaxed);
        }
    }

    fn read(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A state that lasts as long as its number is the same, and the time at which it was first seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lasting {
    state: usize,
    since: Instant,
}

impl Lasting {
    pub(super) fn new(now: Instant) -> Self {
        let (state, since) = (0, now);
        Self { state, since }
    }

    /// Returns the time for which `state` has lasted.
    pub(super) fn for_time(&mut self, state: usize, now: Instant) -> Duration {
        if self.state != state {
            *self = Self { state, since: now };
        }
        now.duration_since(self.since)
    }

    /// Returns the time for which the wait of `mark` has lasted, or `None` if it is over.
    pub(super) fn wait(&mut self, mark: &WaitMark, now: Instant) -> Option<Duration> {
        let state = mark.read();
        let lasted = self.for_time(state, now);
        (!state.is_multiple_of(2)).then_some(lasted)
    }
}
