//! First come, first served; refused on arrival if the estimated wait is longer than a share of the callers' patience.
//!
//! The simplest form of what a room bounded by time does, without a ramp, levels or bursts: a yardstick for the others.
//! The estimate is the number of requests ahead, itself included, times the average time that a slot is held, over the
//! number of slots. No product is known to do this.

use std::collections::HashMap;
use std::time::Duration;

use super::Setting;
use super::slot_queue::SlotQueue;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};

pub(crate) struct Estimate {
    queue: SlotQueue<()>,
    slots: usize,
    /// The longest estimate that may wait.
    target: Duration,
    patience: Duration,
    started: HashMap<RequestId, Duration>,
    /// In seconds, of those that ended: an average over about the last hundred.
    hold: Option<f64>,
}

/// The weight of a new hold time in the average.
const WEIGHT: f64 = 0.02;

impl Estimate {
    pub(crate) fn new(setting: &Setting, share: f64) -> Self {
        Self {
            queue: SlotQueue::new(setting.slots),
            slots: setting.slots,
            target: setting.patience.mul_f64(share),
            patience: setting.patience,
            started: HashMap::new(),
            hold: None,
        }
    }

    /// 0 before a hold time is known.
    fn estimate(&self) -> Duration {
        let ahead = self.queue.waiters.len() + 1;
        let seconds = self.hold.unwrap_or(0.0) * ahead as f64 / self.slots as f64;
        Duration::from_secs_f64(seconds)
    }

    fn note_starts(&mut self, decisions: &[Decision], now: Duration) {
        for decision in decisions {
            if let Decision::Admit(id) = decision {
                self.started.insert(*id, now);
            }
        }
    }
}

impl Policy for Estimate {
    fn arrive(&mut self, arrival: Arrival, now: Duration, decisions: &mut Vec<Decision>) {
        if self.queue.free == 0 && self.estimate() > self.target {
            decisions.push(Decision::Refuse(arrival.id));
            return;
        }
        let end = Some(now + self.patience);
        self.queue.admit_or_wait(arrival.id, (), end, decisions);
        self.note_starts(decisions, now);
    }

    fn release(
        &mut self,
        id: RequestId,
        ended: Ended,
        now: Duration,
        decisions: &mut Vec<Decision>,
    ) {
        let started = self.started.remove(&id);
        if let (Some(started), Ended::Finished) = (started, ended) {
            let seconds = (now - started).as_secs_f64();
            let old = self.hold.unwrap_or(seconds);
            self.hold = Some(old + WEIGHT * (seconds - old));
        }
        self.queue.release(decisions);
        self.note_starts(decisions, now);
    }

    fn leave(&mut self, id: RequestId, _: Duration, _: &mut Vec<Decision>) {
        self.queue.waiters.remove(id);
    }

    fn next_timeout(&self) -> Option<Duration> {
        self.queue.waiters.next_end()
    }

    fn advance(&mut self, now: Duration, decisions: &mut Vec<Decision>) {
        self.queue.refuse_ended(now, decisions);
    }
}
