//! Dynamo's router with its policy `wspt`: weighted shortest processing time first.
//!
//! Requests are held while every worker is busy. Urgent levels go first; within one, those with the fewest input tokens
//! that are not cached (here none is), whatever their age: long prompts may starve, which its users report (Dynamo
//! #10571). The queue has no bound unless one is set.

use std::time::Duration;

use super::Setting;
use super::slot_queue::SlotQueue;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};

pub(crate) struct Dynamo(SlotQueue<(u8, u32)>);

impl Dynamo {
    pub(crate) fn new(setting: &Setting) -> Self {
        Self(SlotQueue::new(setting.slots))
    }
}

impl Policy for Dynamo {
    fn arrive(&mut self, arrival: Arrival, _: Duration, decisions: &mut Vec<Decision>) {
        let key = (arrival.level, arrival.input_tokens);
        self.0.admit_or_wait(arrival.id, key, None, decisions);
    }

    fn release(&mut self, _: RequestId, _: Ended, _: Duration, decisions: &mut Vec<Decision>) {
        self.0.release(decisions);
    }

    fn leave(&mut self, id: RequestId, _: Duration, _: &mut Vec<Decision>) {
        self.0.waiters.remove(id);
    }
}
