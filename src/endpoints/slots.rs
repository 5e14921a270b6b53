//! With the limit, the count of leases and the endpoint's health in words of their own, a limit that falls or
//! an endpoint that is drained between reading the one and raising the other gets a request too many.
//!
//! [`Slots`] keeps all in one word, so that a slot is only ever taken under what holds at that very instant.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst; // what `Capacity` asks for: a store-load pair with the waiters

use super::availability::Marks;

/// The slots of one endpoint. The limit may fall below what is in use: leases then go unreplaced.
#[derive(Debug)]
pub(super) struct Slots(AtomicU64);

impl Slots {
    pub(super) fn new(limit: u32) -> Self {
        Self(AtomicU64::new(Load::idle(limit).0))
    }

    #[inline]
    pub(super) fn load(&self) -> Load {
        Load(self.0.load(SeqCst))
    }

    /// Takes a slot if nothing has changed since `seen`, which has a free one. It then has these `marks`.
    #[inline]
    pub(super) fn take(&self, seen: Load, marks: Marks) -> bool {
        let taken = Load(seen.0 + 1).marked(marks);
        self.0
            .compare_exchange(seen.0, taken.0, SeqCst, SeqCst)
            .is_ok()
    }

    pub(super) fn release(&self) {
        let before = Load(self.0.fetch_sub(1, SeqCst));
        debug_assert!(
            before.in_use() > 0,
            "a slot came back that nobody had taken"
        );
    }

    pub(super) fn set_limit(&self, limit: u32) {
        self.update(|load| load.limited(limit));
    }

    /// Changes the marks. Returns those that there were.
    pub(super) fn mark(&self, next: impl Fn(Marks) -> Marks) -> Marks {
        self.update(|load| load.marked(next(load.marks()))).marks()
    }

    fn update(&self, next: impl Fn(Load) -> Load) -> Load {
        let word = self
            .0
            .fetch_update(SeqCst, SeqCst, |word| Some(next(Load(word)).0));
        // The closure never declines: both are what there was.
        Load(word.unwrap_or_else(|word| word))
    }
}

/// How busy an endpoint is, and what speaks against it.
///
/// From the lowest bit: how many slots are in use, the limit, the marks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load(u64);

const COUNT_BITS: u32 = 28;

/// No endpoint has more slots, whatever is configured.
const MOST_SLOTS: u32 = (1 << COUNT_BITS) - 1;

impl Load {
    fn idle(limit: u32) -> Self {
        Self(0).limited(limit)
    }

    #[inline]
    pub(super) fn in_use(self) -> u32 {
        self.0 as u32 & MOST_SLOTS
    }

    #[inline]
    pub(super) fn limit(self) -> u32 {
        (self.0 >> COUNT_BITS) as u32 & MOST_SLOTS
    }

    #[inline]
    pub(super) fn marks(self) -> Marks {
        Marks((self.0 >> (2 * COUNT_BITS)) as u8)
    }

    /// Whether it has a slot for one more. An endpoint of which nothing is known has one slot.
    #[inline]
    pub(super) fn is_free(self) -> bool {
        self.in_use() < self.limit() && (self.in_use() == 0 || !self.marks().is_new())
    }

    /// Whether a larger share of the slots is free here than at `other`, which has some.
    pub(super) fn is_idler_than(self, other: Self) -> bool {
        u64::from(self.in_use()) * u64::from(other.limit())
            < u64::from(other.in_use()) * u64::from(self.limit())
    }

    fn limited(self, limit: u32) -> Self {
        let limit = u64::from(limit.min(MOST_SLOTS)) << COUNT_BITS;
        Self(self.0 & !(u64::from(MOST_SLOTS) << COUNT_BITS) | limit)
    }

    fn marked(self, marks: Marks) -> Self {
        let counts = self.0 & ((1 << (2 * COUNT_BITS)) - 1);
        Self(counts | u64::from(marks.0) << (2 * COUNT_BITS))
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (in_use, limit) = (self.in_use(), self.limit());
        write!(f, "{in_use} of {limit}, {:?}", self.marks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(in_use: u32, limit: u32) -> Load {
        assert!(in_use <= MOST_SLOTS);
        Load(u64::from(in_use)).limited(limit)
    }

    fn take(slots: &Slots) -> bool {
        slots.take(slots.load(), Marks::NONE)
    }

    #[test]
    fn a_slot_is_taken_only_if_nothing_changed_since_it_was_seen() {
        let slots = Slots::new(2);
        let seen = slots.load();
        assert!(slots.take(seen, Marks::NONE));
        assert!(!slots.take(seen, Marks::NONE));
        slots.set_limit(1);
        assert_eq!(slots.load(), load(1, 1));
        slots.release();
        assert!(slots.load().is_free());
        let seen = slots.load();
        assert_eq!(slots.mark(|_| Marks(1)), Marks::NONE);
        assert!(!slots.take(seen, Marks::NONE));
    }

    #[test]
    fn counts_and_marks_do_not_touch_each_other() {
        let slots = Slots::new(u32::MAX);
        assert!(take(&slots));
        slots.mark(|_| Marks(0b1_1111));
        slots.set_limit(7);
        slots.set_limit(u32::MAX);
        let all = load(1, MOST_SLOTS).marked(Marks(0b1_1111));
        assert_eq!(slots.load(), all);
        slots.release();
        slots.mark(|_| Marks::NONE);
        assert_eq!(slots.load(), load(0, MOST_SLOTS));
    }

    #[test]
    fn an_endpoint_of_which_nothing_is_known_has_one_slot() {
        for (limit, free) in [(0, false), (1, true), (5, true)] {
            assert_eq!(load(0, limit).marked(Marks::NEW).is_free(), free, "{limit}");
            assert!(!load(1, limit).marked(Marks::NEW).is_free(), "{limit}");
        }
    }

    #[test]
    fn a_limit_below_what_is_in_use_leaves_nothing_free() {
        let slots = Slots::new(5);
        assert!(take(&slots));
        slots.set_limit(0);
        assert_eq!(slots.load(), load(1, 0));
        assert!(!slots.load().is_free());
    }

    #[test]
    fn idler_means_the_larger_free_share() {
        for (a, b, idler) in [
            (load(0, 1), load(1, 2), true),
            (load(1, 4), load(1, 2), true),
            (load(1, 2), load(2, 4), false),
            (load(3, 4), load(1, 2), false),
            (load(0, MOST_SLOTS), load(1, MOST_SLOTS), true),
        ] {
            assert_eq!(a.is_idler_than(b), idler, "{a:?} {b:?}");
        }
    }
}
