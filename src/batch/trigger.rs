//! When a batch goes.

use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::RequestQueue;
use super::state::State;
use super::worker::BatchLimits;
use crate::gate::with_lock::WithLock;

/// When a batch goes: what is sooner is less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trigger {
    Now,
    /// Unless requests leave before.
    At(Instant),
    /// Only when enough requests have arrived: the end of their delay is beyond what the clock can hold.
    Filled,
    /// No request waits.
    NoRequest,
}

/// When the task that makes batches is to be woken.
#[derive(Debug, Clone, Copy)]
pub(super) enum WakeWhen {
    /// A batch is due sooner than before, or never again: as [`Over`](Self::Over).
    Sooner(BatchLimits, Trigger),
    /// No request waits, and none can arrive any more.
    Over,
}

/// The task that makes batches, while it waits.
#[derive(Debug)]
pub(super) struct BatchWaiter {
    until: WakeWhen,
    pub(super) waker: Waker,
}

impl<T> RequestQueue<T> {
    pub(super) fn due(&self, limits: &BatchLimits) -> Trigger {
        // An expired request makes no batch due.
        let mut change = self.shared.change();
        let (state, deferred) = change.parts();
        state.advance_if_timed(deferred);
        state.due(limits)
    }

    /// Resolves once it is time. One task can wait for that.
    pub(super) fn poll_until(&self, cx: &Context<'_>, until: WakeWhen) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.shared.lock();
        let (poll, unused) = if state.is_time(until) {
            (Poll::Ready(()), Some(waker))
        } else {
            let old = state.batcher.replace(BatchWaiter { until, waker });
            (Poll::Pending, old.map(|batcher| batcher.waker))
        };
        drop(state);
        drop(unused); // without the lock
        poll
    }
}

impl<T> State<T> {
    fn due(&self, limits: &BatchLimits) -> Trigger {
        let queue = &self.queue;
        let Some(oldest) = queue.oldest() else {
            return Trigger::NoRequest;
        };
        let most = limits.max_count.min(queue.config().max_size);
        // No other request can join, or none will.
        if queue.len() >= most || self.cost >= limits.budget.into() || queue.is_closed() {
            return Trigger::Now;
        }
        let end = oldest.checked_add(limits.max_delay);
        end.map_or(Trigger::Filled, Trigger::At)
    }

    fn is_time(&self, until: WakeWhen) -> bool {
        let is_deserted = self.queue.is_closed() && self.queue.is_empty();
        is_deserted
            || match until {
                WakeWhen::Sooner(limits, than) => self.due(&limits) < than,
                WakeWhen::Over => false,
            }
    }

    /// The batcher's waker, if it is time.
    pub(super) fn call_batcher(&mut self) -> Option<Waker> {
        let until = self.batcher.as_ref()?.until;
        if !self.is_time(until) {
            return None;
        }
        self.batcher.take().map(|batcher| batcher.waker)
    }
}
