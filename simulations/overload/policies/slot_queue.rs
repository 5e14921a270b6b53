//! A known number of slots, and waiters that get them in order: what most policies are built of.

use std::time::Duration;

use super::waiters::Waiters;
use crate::policy::{Decision, RequestId};

#[derive(Debug)]
pub(crate) struct SlotQueue<K> {
    pub(crate) free: usize,
    pub(crate) waiters: Waiters<K>,
}

impl<K: Ord + Copy> SlotQueue<K> {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            free: slots,
            waiters: Waiters::new(),
        }
    }

    /// Admits a request if a slot is free.
    pub(crate) fn try_admit(&mut self, id: RequestId, decisions: &mut Vec<Decision>) -> bool {
        let is_free = self.free > 0;
        if is_free {
            self.free -= 1;
            decisions.push(Decision::Admit(id));
        }
        is_free
    }

    /// Admits a request, or has it wait until `end`.
    pub(crate) fn admit_or_wait(
        &mut self,
        id: RequestId,
        key: K,
        end: Option<Duration>,
        decisions: &mut Vec<Decision>,
    ) {
        if !self.try_admit(id, decisions) {
            self.waiters.push(id, key, end);
        }
    }

    /// A slot is free: it goes to the first waiter.
    pub(crate) fn release(&mut self, decisions: &mut Vec<Decision>) {
        let next = self.waiters.pop_first();
        self.release_to(next, decisions);
    }

    /// A slot is free: it goes to `next`.
    pub(crate) fn release_to(&mut self, next: Option<RequestId>, decisions: &mut Vec<Decision>) {
        match next {
            Some(next) => decisions.push(Decision::Admit(next)),
            None => self.free += 1,
        }
    }

    /// Refuses the waiters that have waited until their end.
    pub(crate) fn refuse_ended(&mut self, now: Duration, decisions: &mut Vec<Decision>) {
        while let Some(id) = self.waiters.pop_ended(now) {
            decisions.push(Decision::Refuse(id));
        }
    }
}
