//! A slab of waiters, with the data and the payload of each.
//!
//! A waiter keeps its index from the moment it is queued until its outcome is taken, even while the room is
//! reconfigured. A [`WaiterId`] therefore stays valid all that time. An entry is in one of two states. Either it
//! *waits*, or it is *unlinked*, which means that its wait is over and its outcome has not been taken yet.

use super::compact_slab::CompactSlab;
use super::nanos::{NEVER, Nanos};
use super::ordered_queue::{ArrivalKey, Link, List};
use super::room_base::new_place;
use super::{Priority, Tenant, Ticket};

/// The index that stands for a missing waiter, lane or flow.
pub(crate) const NONE: u32 = u32::MAX;

pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// The identity of a waiter, until its outcome has been taken or it was cancelled. Each waiter gets an id of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WaiterId {
    pub(super) idx: u32,
    pub(super) seq: u64,
}

/// The bounds of a wait: the arrival, from which `max_wait` counts, and the ticket's own deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitLimits {
    /// The arrival of the request by its ticket, but at the latest the instant at which it was queued.
    pub(crate) arrival: Nanos,
    /// The ticket's own deadline, or `NEVER` if it has none.
    pub(crate) deadline: Nanos,
}

impl WaitLimits {
    /// Returns the end of the wait in a room with this `max_wait` in nanoseconds, or `NEVER` without a bound.
    #[inline]
    pub(crate) fn end(self, max_wait: Nanos) -> Nanos {
        // The sum saturates at `NEVER` if `max_wait` is `NEVER`.
        self.arrival.saturating_add(max_wait).min(self.deadline)
    }
}

/// The longest waits that the configuration allows, in nanoseconds; `NEVER` without a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitBounds {
    /// The longest wait from the arrival.
    pub(crate) max_wait: Nanos,
    /// The longest wait from the entry into the room, for a request that is not the next of its lane.
    pub(crate) behind_next: Nanos,
}

impl WaitBounds {
    pub(crate) fn max_wait(max_wait: Nanos) -> Self {
        Self {
            max_wait,
            behind_next: NEVER,
        }
    }

    /// Returns the bounds of one waiter. A patient waiter has none.
    #[inline]
    pub(crate) fn of(self, is_patient: bool) -> Self {
        match is_patient {
            true => Self::max_wait(NEVER),
            false => self,
        }
    }

    #[inline]
    pub(crate) fn shortest(self) -> Nanos {
        self.max_wait.min(self.behind_next)
    }
}

/// The data that order a waiter and end its wait.
#[derive(Debug)]
pub(crate) struct WaiterMeta {
    /// The sequence number, which tells the waiter from earlier ones with the same index and orders equal arrivals.
    pub(crate) seq: u64,
    /// The arrival that orders the waiter. Unless the request is requeued, it is raised to that of the waiter queued
    /// before it.
    pub(crate) since: Nanos,
    pub(crate) limits: WaitLimits,
    /// The time from the arrival to the entry into the room, in milliseconds, up to 49 days. It is 0 in a room without
    /// slots.
    entered_after: u32,
    pub(crate) lane: u32,
    /// The flow of the waiter's tenant within the lane.
    pub(crate) flow: u32,
    /// The hash that identifies the lane in the service times, even after the lane is closed.
    pub(crate) lane_hash: u32,
    /// The predicted wait in seconds; 0 if it is unknown.
    pub(crate) predicted: f32,
    /// The level of the waiter's ticket.
    pub(crate) priority: u8,
    /// The level in which it waits now, which is smaller than `priority` after a promotion.
    pub(crate) level: u8,
    /// `true` until the waiter is unlinked.
    pub(crate) waits: bool,
    /// `true` while the waiter waits for its tenant's own slots, and is in no lane meanwhile.
    pub(crate) is_parked: bool,
    /// `true` if it was the next when the target's bound had passed, so that only `max_wait` or its deadline ends its
    /// wait.
    pub(crate) goes_on: bool,
    /// `true` if the waiter was granted a slot that counts towards its tenant's limit.
    pub(crate) is_counted: bool,
    /// `true` if the waiter is exempt from the room's bounds.
    pub(crate) is_patient: bool,
    /// The ticket's own cost.
    own_cost: u32,
    cost: u32,
    /// The tenant, or `None` for the empty one. It is boxed because most tickets have no tenant's name, so an entry
    /// fits into fewer cache lines.
    tenant: Option<Box<Tenant>>,
}

/// The tenant of tickets without a tenant's name.
static NO_TENANT: Tenant = Tenant::NONE;

impl WaiterMeta {
    /// Creates the data of a waiter, which takes the tenant out of its ticket.
    #[inline]
    pub(crate) fn new(
        (since, seq): ArrivalKey,
        Priority(level): Priority,
        limits: WaitLimits,
        ticket: &mut Ticket,
    ) -> Self {
        let has_tenant = !ticket.tenant.as_bytes().is_empty();
        Self {
            seq,
            since,
            limits,
            entered_after: 0,
            lane: NONE,
            flow: NONE,
            lane_hash: 0,
            predicted: 0.0,
            priority: level,
            level,
            waits: true,
            is_parked: false,
            goes_on: false,
            is_counted: false,
            is_patient: ticket.patient,
            own_cost: ticket.cost.max(1),
            cost: ticket.share_cost(),
            tenant: has_tenant.then(|| Box::new(std::mem::take(&mut ticket.tenant))),
        }
    }

    /// Returns the waiter's key in the order of arrival, which is unique.
    #[inline]
    pub(crate) fn key(&self) -> ArrivalKey {
        (self.since, self.seq)
    }

    /// Records that the waiter enters the room at `now`.
    pub(crate) fn set_entered(&mut self, now: Nanos) {
        let after = now.saturating_sub(self.limits.arrival) / MILLISECOND;
        self.entered_after = u32::try_from(after).unwrap_or(u32::MAX);
    }

    /// Returns the instant at which the waiter entered the room, less than a millisecond too early. Its arrival may be
    /// long before, because it had a slot or its client was away.
    pub(crate) fn entered(&self) -> Nanos {
        self.limits.arrival + Nanos::from(self.entered_after) * MILLISECOND
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        self.tenant.as_deref().unwrap_or(&NO_TENANT)
    }

    /// Returns the cost that its ticket names; at least 1.
    pub(crate) fn own_cost(&self) -> u32 {
        self.own_cost
    }

    /// Returns the waiter's cost to its tenant's share, which is its own cost with the price of the slot time that its
    /// tenant's tickets usually leave out.
    pub(crate) fn cost(&self) -> u128 {
        u128::from(self.cost)
    }
}

#[derive(Debug)]
struct Entry<T> {
    meta: WaiterMeta,
    payload: T,
}

/// All waiters, by index.
#[derive(Debug)]
pub(crate) struct Waiters<T> {
    slab: CompactSlab<Entry<T>>,
    /// The links of the queues that waiters are in, by [`List`](super::ordered_queue::List) and by index.
    pub(super) links: [Vec<Link>; List::COUNT],
    pub(crate) bounds: WaitBounds,
}

impl<T> Waiters<T> {
    pub(crate) fn new(bounds: WaitBounds) -> Self {
        Self {
            slab: CompactSlab::new(),
            links: [const { Vec::new() }; List::COUNT],
            bounds,
        }
    }

    /// Adds a waiter. Its payload may contain its id.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        meta: WaiterMeta,
        payload: impl FnOnce(WaiterId) -> T,
    ) -> WaiterId {
        let seq = meta.seq;
        let idx = self.slab.insert_with(|idx| {
            let payload = payload(WaiterId { idx, seq });
            Entry { meta, payload }
        });
        WaiterId { idx, seq }
    }

    /// Replaces the ticket of a waiter that is in no queue. Its id stays valid.
    pub(crate) fn replace_ticket(
        &mut self,
        idx: u32,
        priority: Priority,
        limits: WaitLimits,
        mut ticket: Ticket,
    ) {
        let meta = self.meta_mut(idx);
        let key = (new_place(&ticket, limits), meta.seq);
        *meta = WaiterMeta::new(key, priority, limits, &mut ticket);
    }

    /// Takes the entry out, and returns its payload. Its id is invalid afterwards.
    #[inline]
    pub(crate) fn remove(&mut self, idx: u32) -> T {
        self.slab.remove(idx).payload
    }

    /// Takes the entry out, and returns its data and its payload. Its id is invalid afterwards.
    #[inline]
    pub(crate) fn take(&mut self, idx: u32) -> (WaiterMeta, T) {
        let Entry { meta, payload } = self.slab.remove(idx);
        (meta, payload)
    }

    #[inline]
    pub(crate) fn meta(&self, idx: u32) -> &WaiterMeta {
        &self.slab.at(idx).meta
    }

    #[inline]
    pub(crate) fn meta_mut(&mut self, idx: u32) -> &mut WaiterMeta {
        &mut self.slab.at_mut(idx).meta
    }

    #[inline]
    pub(crate) fn payload(&self, idx: u32) -> &T {
        &self.slab.at(idx).payload
    }

    #[inline]
    pub(crate) fn payload_mut(&mut self, idx: u32) -> &mut T {
        &mut self.slab.at_mut(idx).payload
    }

    pub(crate) fn payloads_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slab.values_mut().map(|entry| &mut entry.payload)
    }

    /// Returns `true` if the waiter still waits, and `false` for an invalid id.
    #[inline]
    pub(crate) fn waits(&self, id: WaiterId) -> bool {
        let entry = self.slab.get(id.idx);
        // The index may belong to a later waiter by now.
        entry.is_some_and(|Entry { meta, .. }| meta.seq == id.seq && meta.waits)
    }

    pub(crate) fn id(&self, idx: u32) -> WaiterId {
        let seq = self.meta(idx).seq;
        WaiterId { idx, seq }
    }

    /// Returns the end of the waiter's wait, or `NEVER` without a bound.
    #[inline]
    pub(crate) fn end(&self, idx: u32) -> Nanos {
        let meta = self.meta(idx);
        meta.limits.end(self.bounds.of(meta.is_patient).max_wait)
    }

    /// Returns the instant at which the waiter's wait may be over, which is at or before its end. `NEVER` without a
    /// bound.
    #[inline]
    pub(crate) fn timeout(&self, idx: u32) -> Nanos {
        let meta = self.meta(idx);
        if meta.is_patient {
            return meta.limits.deadline;
        }
        let behind_next = meta.entered().saturating_add(self.bounds.behind_next);
        meta.limits.end(self.bounds.max_wait).min(behind_next)
    }

    /// Returns all waiters that still wait, in the order of their indices.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u32, &WaiterMeta)> {
        let all = self.slab.iter().map(|(idx, entry)| (idx, &entry.meta));
        all.filter(|(_, meta)| meta.waits)
    }

    /// Returns all waiters that still wait, the latest of the lowest level first.
    pub(crate) fn latest_first(&self) -> Vec<u32> {
        let mut all: Vec<_> = self
            .waiting()
            .map(|(idx, meta)| (meta.level, meta.key(), idx))
            .collect();
        // Level 0 is the most urgent, so the lowest level is the largest number.
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.into_iter().map(|(.., idx)| idx).collect()
    }

    /// Returns all waiters that still wait, in the order of arrival.
    pub(crate) fn oldest_first(&self) -> Vec<u32> {
        let mut all: Vec<_> = self
            .waiting()
            .map(|(idx, meta)| (meta.key(), idx))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, idx)| idx).collect()
    }

    /// Returns all entries by index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &WaiterMeta, &T)> {
        let all = self.slab.iter();
        all.map(|(idx, entry)| (idx, &entry.meta, &entry.payload))
    }

    /// Returns `true` if the slab has no entries, which means that the room is empty and all outcomes were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Returns the number of entries that the slab has memory for.
    pub(crate) fn capacity(&self) -> usize {
        self.slab.capacity()
    }

    /// Gives back the memory behind the last entry. All waiters keep their index.
    pub(crate) fn trim(&mut self) {
        self.slab.trim();
        for links in &mut self.links {
            // The links become as long as the slab, or stay shorter.
            links.truncate(self.slab.capacity());
            links.shrink_to_fit();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_the_earlier_of_max_wait_and_deadline() {
        for (deadline, max_wait, end) in [
            (NEVER, NEVER, NEVER),
            (NEVER, 5, 15),
            (12, 5, 12),
            (20, 5, 15),
            (20, NEVER, 20),
        ] {
            let limits = WaitLimits {
                arrival: 10,
                deadline,
            };
            assert_eq!(limits.end(max_wait), end, "{deadline} {max_wait}");
        }
    }
}
