//! tower's `LoadShed` around `ConcurrencyLimit`: a request that finds no slot is refused at once.

use std::time::Duration;

use super::Setting;
use super::slot_queue::SlotQueue;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};

pub(crate) struct TowerLoadShed(SlotQueue<()>);

impl TowerLoadShed {
    pub(crate) fn new(setting: &Setting) -> Self {
        Self(SlotQueue::new(setting.slots))
    }
}

impl Policy for TowerLoadShed {
    fn arrive(&mut self, arrival: Arrival, _: Duration, decisions: &mut Vec<Decision>) {
        if !self.0.try_admit(arrival.id, decisions) {
            decisions.push(Decision::Refuse(arrival.id));
        }
    }

    fn release(&mut self, _: RequestId, _: Ended, _: Duration, decisions: &mut Vec<Decision>) {
        self.0.release(decisions);
    }

    fn leave(&mut self, _: RequestId, _: Duration, _: &mut Vec<Decision>) {}
}
