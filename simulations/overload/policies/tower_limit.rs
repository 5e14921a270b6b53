//! tower's `ConcurrencyLimit`: a semaphore in front of the service, with a FIFO queue without a bound.
//!
//! A caller that leaves drops its future, and its place with it.

use std::time::Duration;

use super::Setting;
use super::slot_queue::SlotQueue;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};

pub(crate) struct TowerLimit(SlotQueue<()>);

impl TowerLimit {
    pub(crate) fn new(setting: &Setting) -> Self {
        Self(SlotQueue::new(setting.slots))
    }
}

impl Policy for TowerLimit {
    fn arrive(&mut self, arrival: Arrival, _: Duration, decisions: &mut Vec<Decision>) {
        self.0.admit_or_wait(arrival.id, (), None, decisions);
    }

    fn release(&mut self, _: RequestId, _: Ended, _: Duration, decisions: &mut Vec<Decision>) {
        self.0.release(decisions);
    }

    fn leave(&mut self, id: RequestId, _: Duration, _: &mut Vec<Decision>) {
        self.0.waiters.remove(id);
    }
}
