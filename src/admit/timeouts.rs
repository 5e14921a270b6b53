//! The instants at which waits may end.
//!
//! Nearly all waits are bounded by the configuration alone, so they end in the order of arrival. A linked list finds
//! the next one in O(1). Waits that end earlier by a deadline, waits that [go on](Timeouts::extend) and patient ones
//! are few. These are ordered by their ends.

use std::collections::{BTreeMap, BTreeSet};

use super::nanos::{NEVER, Nanos};
use super::ordered_queue::{List, OrderedQueue};
use super::waiters::Waiters;

/// The instants at which waiters are due. At that instant a wait either ends, or goes on until a later one.
#[derive(Debug)]
pub(crate) struct Timeouts {
    /// The waiters that are due by their position in the order of arrival, after the configured bound.
    in_order: OrderedQueue,
    /// The other waiters, ordered by the instants at which they are due.
    by_end: BTreeSet<Timeout>,
    /// The ends of the waits in `by_end` that go on, by waiter. A tree gives memory back by itself.
    extended: BTreeMap<u32, Nanos>,
    /// An instant before which all waits go on. It may be too early, if the waiter that was due then has left.
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

    #[inline(always)]
    pub(crate) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        if let Some(timeout) = early(waiters, idx) {
            return self.push_by_end(timeout);
        }
        // Without a configured bound, the position in the order does not limit the wait.
        if waiters.bounds.shortest() < NEVER {
            // A requeued request may be due long before its wait ends, and is put off then.
            let (due, ..) = by_place(waiters, idx);
            self.not_before = self.not_before.min(due);
            self.in_order.push(waiters, idx);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_by_end(&mut self, timeout: Timeout) {
        self.by_end.insert(timeout);
        self.not_before = self.not_before.min(timeout.0);
    }

    #[inline(always)]
    pub(crate) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        // The tree is nearly always empty, so a removal nearly always touches only the list.
        let is_by_end = !self.by_end.is_empty() && self.remove_by_end(waiters, idx);
        if !is_by_end && waiters.bounds.shortest() < NEVER {
            self.in_order.remove(waiters, idx);
        }
    }

    /// Removes a waiter from those that are ordered by their ends. Returns `true` if it was one of them.
    #[cold]
    #[inline(never)]
    fn remove_by_end<T>(&mut self, waiters: &Waiters<T>, idx: u32) -> bool {
        let extended = self.extended.remove(&idx);
        let extended = extended.map(|end| (end, waiters.meta(idx).seq, idx));
        let timeout = extended.or_else(|| early(waiters, idx));
        timeout.is_some_and(|timeout| self.by_end.remove(&timeout))
    }

    /// Lets a wait that was due go on until `end`, which is later.
    pub(crate) fn extend<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, end: Nanos) {
        self.remove(waiters, idx);
        self.by_end.insert((end, waiters.meta(idx).seq, idx));
        self.extended.insert(idx, end);
        self.not_before = self.not_before.min(end);
    }

    /// Returns the instant at which the next waiter is due, or `NEVER` if all waits are unbounded.
    #[inline]
    pub(crate) fn next<T>(&self, waiters: &Waiters<T>) -> Nanos {
        let first = self.in_order.head();
        let in_order = first.map_or(NEVER, |idx| by_place(waiters, idx).0);
        let by_end = self.by_end.first();
        by_end.map_or(in_order, |&(end, ..)| in_order.min(end))
    }

    /// Returns an instant before which all waits go on.
    #[cfg(feature = "batch")]
    #[inline]
    pub(crate) fn not_before(&self) -> Nanos {
        self.not_before
    }

    /// Returns `true` if a waiter may be due by `now`. This settles nearly all questions, and there is one at each event.
    #[inline]
    pub(crate) fn may_be_due(&self, now: Nanos) -> bool {
        self.not_before <= now
    }

    /// Returns the waiter that is due first, if it is due by `now`.
    pub(crate) fn due<T>(&mut self, waiters: &Waiters<T>, now: Nanos) -> Option<u32> {
        if !self.may_be_due(now) {
            return None;
        }
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

/// Returns the instant at which a waiter is due by its position in the order of arrival.
#[inline]
fn by_place<T>(waiters: &Waiters<T>, idx: u32) -> Timeout {
    let (since, seq) = waiters.meta(idx).key();
    // The sum saturates at `NEVER`, which stands for a missing bound.
    (since.saturating_add(waiters.bounds.shortest()), seq, idx)
}

/// Returns the instant at which a waiter is due, if it differs from the one by its position. It may be earlier, by a
/// deadline or because the request arrived before another that was queued before it. It may be later, because the
/// waiter is patient.
#[inline]
fn early<T>(waiters: &Waiters<T>, idx: u32) -> Option<Timeout> {
    let (by_place, seq, _) = by_place(waiters, idx);
    let end = waiters.timeout(idx);
    (end < by_place || waiters.meta(idx).is_patient).then_some((end, seq, idx))
}
