//! Slots that were granted and never taken, because the request's task polls something else.
//!
//! A grant that comes before the end of a wait wins, and its task takes it at its next poll. A task that is stuck would
//! keep the slot idle, so the slot goes on to the next waiter when the wait is over, and the request has timed out.

use std::time::Instant;

use super::WaitingRoom;
use super::outcome::State;
use crate::admit::Capacity;
use crate::admit::nanos::{NEVER, Nanos};
use crate::admit::waiters::Waiters;

/// The time that a task has to take its slot even if its wait is over: a busy runtime polls it late.
const GRACE: Nanos = 2_000_000_000;

/// The least time between two looks, because each looks at all entries.
const BETWEEN_LOOKS: Nanos = 1_000_000_000;

/// The slots that a room took back from waiters.
pub(crate) struct Revoked<C: Capacity> {
    /// The leases, which the caller has to release.
    pub(crate) leases: Vec<C::Lease>,
    /// The instant of the next look, if it may find such a slot.
    pub(crate) next: Option<Instant>,
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Takes back slots that are not taken although the waits for them are over, and rejects their waiters. Costs O(n)
    /// in the number of waiters, at most once a second.
    pub(crate) fn revoke_uncollected(&mut self, now: Instant) -> Revoked<C> {
        let now = self.base_mut().clock.set_now(now);
        let mut due = Vec::new();
        let mut next = NEVER;
        if self.uncollected == 0 {
            // There is nothing to look for.
        } else if now < self.next_uncollected_look {
            next = self.next_uncollected_look;
        } else {
            for (idx, _, waiter) in self.waiters().iter() {
                if let State::Leased { waited, .. } = waiter.state {
                    match collect_by(self.waiters(), idx, waited) {
                        end if end <= now => due.push(idx),
                        end => next = next.min(end),
                    }
                }
            }
            self.next_uncollected_look = now.saturating_add(BETWEEN_LOOKS);
            next = next.max(self.next_uncollected_look);
        }
        Revoked {
            leases: due.into_iter().filter_map(|idx| self.revoke(idx)).collect(),
            next: self.base().clock.epoch.instant(next),
        }
    }

    /// Rejects a waiter that has not taken its slot, and returns the slot.
    fn revoke(&mut self, idx: u32) -> Option<C::Lease> {
        let max_wait = self.base().bounds().max_wait;
        let meta = self.waiters().meta(idx);
        let (why, priority) = (meta.limits.why_expired(max_wait), meta.priority);
        let tenant = meta.is_counted.then(|| meta.tenant().clone());
        self.uncollected -= 1;
        let counters = &mut self.base_mut().counters;
        counters.stats.unclaimed += 1;
        counters.on_rejected(priority, &why);
        if let Some(tenant) = tenant {
            self.waiters_mut().meta_mut(idx).is_counted = false;
            self.on_tenant_released(&tenant);
        }
        let state = &mut self.waiters_mut().payload_mut(idx).state;
        match std::mem::replace(state, State::Rejected(why)) {
            State::Leased { lease, hold, .. } => {
                if let Some(hold) = hold {
                    self.end_hold_now(hold);
                }
                Some(lease)
            }
            State::Waiting(_) | State::Rejected(_) => None, // only granted waiters are revoked
        }
    }
}

/// Returns the instant until which a waiter that was granted a slot after `waited` may take it, or `NEVER`.
fn collect_by<T>(waiters: &Waiters<T>, idx: u32, waited: Nanos) -> Nanos {
    let granted = waiters.meta(idx).limits.arrival.saturating_add(waited);
    waiters.end(idx).max(granted.saturating_add(GRACE))
}
