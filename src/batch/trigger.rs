//! The conditions under which a batch is sent.

use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::RequestQueue;
use super::state::State;
use super::worker::BatchLimits;
use crate::gate::with_lock::WithLock;

/// The time at which a batch is due. A sooner trigger is less than a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trigger {
    Now,
    /// The batch is due at this instant, unless requests leave before.
    At(Instant),
    /// The batch is only due when enough requests have arrived, because the end of their delay is beyond the range of
    /// the clock.
    Filled,
    /// The queue is empty.
    NoRequest,
}

/// The condition on which the task that makes batches is woken.
#[derive(Debug, Clone, Copy)]
pub(super) enum WakeWhen {
    /// A batch is due sooner than before, or [`Over`](Self::Over) holds.
    Sooner(BatchLimits, Trigger),
    /// The queue is empty and closed to further requests.
    Over,
}

/// The task that makes batches, while it waits.
#[derive(Debug)]
pub(super) struct BatchWaiter {
    until: WakeWhen,
    pub(super) waker: Waker,
}

impl<T> RequestQueue<T> {
    /// Returns the time at which a batch is due. Expired requests are rejected first.
    pub(super) fn due(&self, limits: &BatchLimits) -> Trigger {
        // Expired requests leave first, so that a batch is not sent for them.
        let mut change = self.shared.change();
        let (state, deferred) = change.parts();
        state.advance_if_timed(deferred);
        state.due(limits)
    }

    /// Resolves once the condition `until` holds. Only one task can wait at a time, because a later one takes its
    /// place.
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
        drop(unused); // dropped without the lock
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
        // In these cases other requests cannot join, or will not.
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

    /// Returns the waker of the task that makes batches, if its condition holds.
    pub(super) fn call_batcher(&mut self) -> Option<Waker> {
        let until = self.batcher.as_ref()?.until;
        if !self.is_time(until) {
            return None;
        }
        self.batcher.take().map(|batcher| batcher.waker)
    }
}
