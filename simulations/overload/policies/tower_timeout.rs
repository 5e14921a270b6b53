//! tower's `Timeout` around `ConcurrencyLimit`, set to the callers' patience.
//!
//! It is modelled at its best: with something between the two that is always ready, as axum's `Router` or a `Buffer` is.
//! Directly around the limit, it would not bound the wait at all: that is in `poll_ready`, and the timeout starts in
//! `call`. The timeout ends with the head of the response, which is that of the service where callers are patient until
//! they are answered, and is near its start where they are patient until then.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::Setting;
use super::slot_queue::SlotQueue;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};
use crate::workload::Until;

pub(crate) struct TowerTimeout {
    queue: SlotQueue<()>,
    timeout: Duration,
    /// Whether it ends a request that a slot works for.
    covers_service: bool,
    ends: HashMap<RequestId, Duration>,
    running: BTreeSet<(Duration, RequestId)>,
}

impl TowerTimeout {
    pub(crate) fn new(setting: &Setting) -> Self {
        Self {
            queue: SlotQueue::new(setting.slots),
            timeout: setting.patience,
            covers_service: setting.until == Until::Answered,
            ends: HashMap::new(),
            running: BTreeSet::new(),
        }
    }

    /// Notes the ends of the requests that were admitted.
    fn watch(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            if let Decision::Admit(id) = decision
                && self.covers_service
                && let Some(&end) = self.ends.get(id)
            {
                self.running.insert((end, *id));
            }
        }
    }
}

impl Policy for TowerTimeout {
    fn arrive(&mut self, arrival: Arrival, now: Duration, decisions: &mut Vec<Decision>) {
        let end = now + self.timeout;
        self.ends.insert(arrival.id, end);
        self.queue
            .admit_or_wait(arrival.id, (), Some(end), decisions);
        self.watch(decisions);
    }

    fn release(&mut self, id: RequestId, _: Ended, _: Duration, decisions: &mut Vec<Decision>) {
        if let Some(end) = self.ends.remove(&id) {
            self.running.remove(&(end, id));
        }
        self.queue.release(decisions);
        self.watch(decisions);
    }

    fn leave(&mut self, id: RequestId, _: Duration, _: &mut Vec<Decision>) {
        self.ends.remove(&id);
        self.queue.waiters.remove(id);
    }

    fn next_timeout(&self) -> Option<Duration> {
        let running = self.running.first().map(|(end, _)| *end);
        running
            .into_iter()
            .chain(self.queue.waiters.next_end())
            .min()
    }

    fn advance(&mut self, now: Duration, decisions: &mut Vec<Decision>) {
        // First, so that no slot goes to a waiter that is over time itself.
        self.queue.refuse_ended(now, decisions);
        while let Some(&(end, id)) = self.running.first()
            && end <= now
        {
            self.running.pop_first();
            self.ends.remove(&id);
            decisions.push(Decision::Abort(id));
            let decided = decisions.len();
            self.queue.release(decisions);
            self.watch(&decisions[decided..]);
        }
    }
}
