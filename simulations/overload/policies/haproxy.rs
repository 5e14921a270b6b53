//! HAProxy: `maxconn` slots on the server, a queue without a bound, and `timeout queue` set to the callers' patience.
//!
//! With `http-request set-priority-class` by level, so that urgent requests go first. A caller that leaves is taken out of
//! the queue (`option abortonclose`).

use std::time::Duration;

use super::Setting;
use super::slot_queue::SlotQueue;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};

pub(crate) struct HaProxy {
    queue: SlotQueue<u8>,
    timeout_queue: Duration,
}

impl HaProxy {
    pub(crate) fn new(setting: &Setting) -> Self {
        Self {
            queue: SlotQueue::new(setting.slots),
            timeout_queue: setting.patience,
        }
    }
}

impl Policy for HaProxy {
    fn arrive(&mut self, arrival: Arrival, now: Duration, decisions: &mut Vec<Decision>) {
        let end = Some(now + self.timeout_queue);
        self.queue
            .admit_or_wait(arrival.id, arrival.level, end, decisions);
    }

    fn release(&mut self, _: RequestId, _: Ended, _: Duration, decisions: &mut Vec<Decision>) {
        self.queue.release(decisions);
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
