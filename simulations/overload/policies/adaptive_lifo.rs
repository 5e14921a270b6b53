//! Adaptive LIFO with controlled delay, of Facebook (Maurer, "Fail at Scale", ACM Queue 2015).
//!
//! A queue that was empty within the last interval (100 ms) is FIFO, and an arrival may wait for the interval. A queue that
//! has been standing for longer is LIFO, and an arrival may wait for the target (5 ms). The published times are meant for
//! services of a few milliseconds; scaled, the interval is the callers' patience, and the target a twentieth of it.

use std::time::Duration;

use super::Setting;
use super::slot_queue::SlotQueue;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};

pub(crate) struct AdaptiveLifo {
    queue: SlotQueue<()>,
    interval: Duration,
    target: Duration,
    /// When the queue was empty for the last time.
    last_empty: Duration,
}

impl AdaptiveLifo {
    /// With the published times.
    pub(crate) fn published(setting: &Setting) -> Self {
        Self::new(
            setting,
            Duration::from_millis(100),
            Duration::from_millis(5),
        )
    }

    pub(crate) fn scaled(setting: &Setting) -> Self {
        Self::new(setting, setting.patience, setting.patience / 20)
    }

    fn new(setting: &Setting, interval: Duration, target: Duration) -> Self {
        Self {
            queue: SlotQueue::new(setting.slots),
            interval,
            target,
            last_empty: Duration::ZERO,
        }
    }

    /// To be asked before a waiter comes or goes.
    fn is_standing(&mut self, now: Duration) -> bool {
        if self.queue.waiters.is_empty() {
            self.last_empty = now;
        }
        now - self.last_empty > self.interval
    }
}

impl Policy for AdaptiveLifo {
    fn arrive(&mut self, arrival: Arrival, now: Duration, decisions: &mut Vec<Decision>) {
        let longest = match self.is_standing(now) {
            true => self.target,
            false => self.interval,
        };
        self.queue
            .admit_or_wait(arrival.id, (), Some(now + longest), decisions);
    }

    fn release(&mut self, _: RequestId, _: Ended, now: Duration, decisions: &mut Vec<Decision>) {
        let next = match self.is_standing(now) {
            true => self.queue.waiters.pop_last(),
            false => self.queue.waiters.pop_first(),
        };
        self.queue.release_to(next, decisions);
        self.is_standing(now);
    }

    fn leave(&mut self, id: RequestId, now: Duration, _: &mut Vec<Decision>) {
        self.queue.waiters.remove(id);
        self.is_standing(now);
    }

    fn next_timeout(&self) -> Option<Duration> {
        self.queue.waiters.next_end()
    }

    fn advance(&mut self, now: Duration, decisions: &mut Vec<Decision>) {
        self.queue.refuse_ended(now, decisions);
        self.is_standing(now);
    }
}
