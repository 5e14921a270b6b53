//! The waits that may have ended.
//!
//! Nearly all waits are bounded by the configuration alone, and end in the order of arrival: a linked list says which is
//! next, in O(1). The few that end earlier, by a deadline, those that [go on](Timeouts::extend), and patient ones are ordered
//! by their ends.

use std::collections::{BTreeMap, BTreeSet};

use super::nanos::{NEVER, Nanos};
use super::ordered_queue::{List, OrderedQueue};
use super::waiters::Waiters;

/// The instants at which waiters are due: the wait has ended then, or goes on until later.
#[derive(Debug)]
pub(crate) struct Timeouts {
    /// The waiters that are due when the configured bound has passed since their place in the order of arrival.
    in_order: OrderedQueue,
    /// The others, by when they are due.
    by_end: BTreeSet<Timeout>,
    /// Of these, the ends of the waits that go on, by waiter. A tree gives memory back by itself.
    extended: BTreeMap<u32, Nanos>,
    /// An instant before which none is due. May be too early: the waiter that was due then may have left.
    not_before: Nanos,
}

/// The instant at which a waiter is due, its sequence number, and its index.
type Timeout = (Nanos, u64, u32);

impl Timeouts {
    pub(crate) fn new() -> Self {
        Self {
            in_order: OrderedQueue::new(List::Timeout),
            by_end: BTreeSet::new(),
            extended: BTreeMap::new(),
            not_before: NEVER,
        }
    }

    /// Adds a waiter.
    #[inline]
    pub(crate) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        let due = match early(waiters, idx) {
            // Without a bound, no place in the order says when a wait ends.
            None if waiters.bounds.shortest() == NEVER => return,
            None => {
                self.in_order.push(waiters, idx);
                // Of a requeued request that may be long before the end of its wait, which is put off then.
                by_place(waiters, idx).0
            }
            Some(timeout) => {
                self.by_end.insert(timeout);
                timeout.0
            }
        };
        self.not_before = self.not_before.min(due);
    }

    /// Removes a waiter.
    #[inline]
    pub(crate) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        // Nearly always empty, which spares the removal all but the list.
        let is_by_end = !self.by_end.is_empty() && self.remove_by_end(waiters, idx);
        if !is_by_end && waiters.bounds.shortest() < NEVER {
            self.in_order.remove(waiters, idx);
        }
    }

    /// Removes a waiter from those that are ordered by their ends, if it is one of them.
    fn remove_by_end<T>(&mut self, waiters: &Waiters<T>, idx: u32) -> bool {
        let extended = self.extended.remove(&idx);
        let extended = extended.map(|end| (end, waiters.meta(idx).seq, idx));
        let timeout = extended.or_else(|| early(waiters, idx));
        timeout.is_some_and(|timeout| self.by_end.remove(&timeout))
    }

    /// A wait that was due goes on until `end`, which is later.
    pub(crate) fn extend<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, end: Nanos) {
        self.remove(waiters, idx);
        self.by_end.insert((end, waiters.meta(idx).seq, idx));
        self.extended.insert(idx, end);
        self.not_before = self.not_before.min(end);
    }

    /// Returns the instant at which the next waiter is due; `NEVER` if none is.
    #[inline]
    pub(crate) fn next<T>(&self, waiters: &Waiters<T>) -> Nanos {
        let first = self.in_order.head();
        let in_order = first.map_or(NEVER, |idx| by_place(waiters, idx).0);
        let by_end = self.by_end.first();
        by_end.map_or(in_order, |&(end, ..)| in_order.min(end))
    }

    /// No waiter is due before that.
    #[cfg(feature = "batch")]
    #[inline]
    pub(crate) fn not_before(&self) -> Nanos {
        self.not_before
    }

    /// Returns the waiter that is due first, if that is by `now`.
    #[inline]
    pub(crate) fn due<T>(&mut self, waiters: &Waiters<T>, now: Nanos) -> Option<u32> {
        // Nearly always: asked at each event.
        if self.not_before > now {
            return None;
        }
        self.find_due(waiters, now)
    }

    #[cold]
    fn find_due<T>(&mut self, waiters: &Waiters<T>, now: Nanos) -> Option<u32> {
        self.not_before = self.next(waiters);
        if self.not_before > now {
            return None;
        }
        let in_order = self.in_order.head().map(|idx| by_place(waiters, idx));
        let by_end = self.by_end.first().copied();
        in_order
            .into_iter()
            .chain(by_end)
            .min()
            .map(|(.., idx)| idx)
    }
}

/// Returns the instant at which a waiter is due by its place in the order of arrival.
#[inline]
fn by_place<T>(waiters: &Waiters<T>, idx: u32) -> Timeout {
    let (since, seq) = waiters.meta(idx).key();
    // Saturates at `NEVER`, which is the bound where there is none.
    (since.saturating_add(waiters.bounds.shortest()), seq, idx)
}

/// Returns the instant at which a waiter is due, if that is not what its place says: earlier, by a deadline or because the
/// request arrived before another that was queued before it; or later, because it is patient.
#[inline]
fn early<T>(waiters: &Waiters<T>, idx: u32) -> Option<Timeout> {
    let (by_place, seq, _) = by_place(waiters, idx);
    let end = waiters.timeout(idx);
    (end < by_place || waiters.meta(idx).is_patient).then_some((end, seq, idx))
}
