//! Waiters by level, each level in the order of arrival; and which wait ends first.

use std::collections::BTreeSet;

use super::age_order::AgeOrder;
use super::nanos::{NEVER, Nanos};
use super::ordered_queue::{List, OrderedQueue};
use super::waiters::Waiters;

/// One queue for each level: finds the waiter that goes first, the one that is evicted first, the one that arrived first,
/// and the one that expires first.
#[derive(Debug)]
pub(crate) struct ByLevel {
    /// Level 0 is the most urgent.
    levels: Box<[OrderedQueue]>,
    /// The waiters that expire earlier than their place in the order of arrival says, by their ends. The wait of any
    /// other ends no earlier than that of the head of its level.
    early: BTreeSet<Timeout>,
    /// No wait ends before that. Not the end of a wait if the waiter that had it has left.
    not_before: Nanos,
}

/// The end of a wait, the waiter's sequence number, and its index.
type Timeout = (Nanos, u64, u32);

impl ByLevel {
    pub(crate) fn new(list: List, levels: usize) -> Self {
        Self {
            levels: (0..levels).map(|_| OrderedQueue::new(list)).collect(),
            early: BTreeSet::new(),
            not_before: NEVER,
        }
    }

    /// Adds a waiter at its level.
    #[inline]
    pub(crate) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        let level = waiters.meta(idx).level;
        self.levels[usize::from(level)].push(waiters, idx);
        if let Some(timeout) = early_timeout(waiters, idx) {
            self.early.insert(timeout);
        }
        self.not_before = self.not_before.min(waiters.end(idx));
    }

    /// Removes a waiter from this level.
    #[inline]
    pub(crate) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, level: u8) {
        self.levels[usize::from(level)].remove(waiters, idx);
        // The first check spares nearly all removals the second.
        if !self.early.is_empty()
            && let Some(timeout) = early_timeout(waiters, idx)
        {
            self.early.remove(&timeout);
        }
    }

    /// How many wait at this level.
    pub(crate) fn count(&self, level: u8) -> usize {
        let level = self.levels.get(usize::from(level));
        level.map_or(0, OrderedQueue::len)
    }

    /// How many wait at this level and those above.
    pub(crate) fn count_above(&self, level: u8) -> usize {
        let levels = self.levels.iter().take(usize::from(level) + 1);
        levels.map(OrderedQueue::len).sum()
    }

    /// The waiter of the first level that has one that goes next.
    #[inline]
    pub(crate) fn next<T>(&self, waiters: &Waiters<T>, order: AgeOrder) -> Option<u32> {
        let mut levels = self.levels.iter();
        levels.find_map(|level| order.head(level, waiters))
    }

    /// The first waiter of each level that has one, the most urgent level first.
    #[inline]
    pub(crate) fn heads(&self) -> impl Iterator<Item = u32> {
        self.levels.iter().filter_map(OrderedQueue::head)
    }

    /// The waiter that arrived first, whatever its level.
    pub(crate) fn oldest<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        self.heads().min_by_key(|&idx| waiters.meta(idx).key())
    }

    /// Returns the waiter without a deadline that entered the room first, whatever its level.
    pub(crate) fn first_silent<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        let levels = self.levels.iter();
        let first = levels.filter_map(|level| level.first_silent(waiters));
        first.min_by_key(|&idx| waiters.meta(idx).entry_key())
    }

    /// The waiter that is evicted first: the latest of the lowest level.
    pub(crate) fn lowest_and_latest(&self) -> Option<u32> {
        // The lowest level is the last.
        self.levels.iter().rev().find_map(OrderedQueue::tail)
    }

    /// The earliest end of a wait; `NEVER` if none ends.
    #[inline]
    pub(crate) fn next_end<T>(&self, waiters: &Waiters<T>) -> Nanos {
        let since = self.heads().map(|idx| waiters.meta(idx).since).min();
        let end = since.map_or(NEVER, |since| since.saturating_add(waiters.max_wait));
        let early = self.early.first();
        early.map_or(end, |&(early, ..)| end.min(early))
    }

    /// No wait ends before that.
    #[cfg(feature = "batch")]
    #[inline]
    pub(crate) fn not_before(&self) -> Nanos {
        self.not_before
    }

    /// The waiter that expires first, if that is by `now`.
    #[inline]
    pub(crate) fn expired<T>(&mut self, waiters: &Waiters<T>, now: Nanos) -> Option<u32> {
        // Nearly always: asked at each event.
        if self.not_before > now {
            return None;
        }
        self.find_expired(waiters, now)
    }

    #[cold]
    fn find_expired<T>(&mut self, waiters: &Waiters<T>, now: Nanos) -> Option<u32> {
        self.not_before = self.next_end(waiters);
        if self.not_before > now {
            return None;
        }
        // A head that ends early is in both: its own end is smaller than the one that its place says.
        let heads = self.heads().map(|idx| timeout_by_place(waiters, idx));
        let first = heads.chain(self.early.first().copied()).min();
        first.map(|(.., idx)| idx)
    }

    /// All waiters of a level, in this order.
    pub(crate) fn level<T>(&self, waiters: &Waiters<T>, level: u8, order: AgeOrder) -> Vec<u32> {
        order.to_vec(&self.levels[usize::from(level)], waiters)
    }
}

/// The end of a wait that began when the waiter's place in the order of arrival says. No wait ends later.
#[inline]
fn timeout_by_place<T>(waiters: &Waiters<T>, idx: u32) -> Timeout {
    let (since, seq) = waiters.meta(idx).key();
    // Saturates at `NEVER` if `max_wait` is `NEVER`.
    (since.saturating_add(waiters.max_wait), seq, idx)
}

/// The end of a wait, if that is earlier: by a deadline, or because the request arrived before another that was queued
/// before it.
#[inline]
fn early_timeout<T>(waiters: &Waiters<T>, idx: u32) -> Option<Timeout> {
    let (by_place, seq, _) = timeout_by_place(waiters, idx);
    let end = waiters.end(idx);
    (end < by_place).then_some((end, seq, idx))
}
