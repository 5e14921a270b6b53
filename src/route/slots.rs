//! With the limit, the count of leases and the endpoint's health in words of their own, a limit that falls or
//! an endpoint that is drained between reading the one and raising the other gets a request too many.
//!
//! [`Slots`] keeps all in one word, so that a slot is only ever taken under what holds at that very instant.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst; // what `Capacity` asks for: a store-load pair with the waiters

use super::availability::Marks;

/// The slots of one endpoint. The limit may fall below what is in use: leases then go unreplaced.
///
/// From the lowest bit: how many are in use, the limit, the marks.
#[derive(Debug)]
pub(super) struct Slots(AtomicU64);

const COUNT_BITS: u32 = 29;

/// No endpoint has more slots, whatever is configured.
pub(super) const MOST_SLOTS: u32 = (1 << COUNT_BITS) - 1;

impl Slots {
    pub(super) fn new(limit: u32) -> Self {
        let load = Load {
            limit: limit.min(MOST_SLOTS),
            in_use: 0,
            marks: Marks::NONE,
        };
        Self(AtomicU64::new(load.pack()))
    }

    #[inline]
    pub(super) fn load(&self) -> Load {
        Load::unpack(self.0.load(SeqCst))
    }

    /// Takes a slot if nothing has changed since `seen`, which has a free one. It then has these `marks`.
    #[inline]
    pub(super) fn take(&self, seen: Load, marks: Marks) -> bool {
        let taken = Load {
            in_use: seen.in_use + 1,
            marks,
            ..seen
        };
        self.0
            .compare_exchange(seen.pack(), taken.pack(), SeqCst, SeqCst)
            .is_ok()
    }

    pub(super) fn release(&self) {
        let before = Load::unpack(self.0.fetch_sub(1, SeqCst));
        debug_assert!(before.in_use > 0, "a slot came back that nobody had taken");
    }

    pub(super) fn set_limit(&self, limit: u32) {
        let limit = limit.min(MOST_SLOTS);
        self.update(|load| Load { limit, ..load });
    }

    /// Changes the marks. Returns those that there were.
    pub(super) fn mark(&self, next: impl Fn(Marks) -> Marks) -> Marks {
        let old = self.update(|load| Load {
            marks: next(load.marks),
            ..load
        });
        old.marks
    }

    fn update(&self, next: impl Fn(Load) -> Load) -> Load {
        let word = self
            .0
            .fetch_update(SeqCst, SeqCst, |word| Some(next(Load::unpack(word)).pack()));
        // The closure never declines: both are what there was.
        Load::unpack(word.unwrap_or_else(|word| word))
    }
}

/// How busy an endpoint is, and what speaks against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) limit: u32,
    pub(super) in_use: u32,
    pub(super) marks: Marks,
}

impl Load {
    #[inline]
    pub(super) fn free(self) -> u32 {
        self.limit.saturating_sub(self.in_use)
    }

    /// Whether a larger share of the slots is free here than at `other`.
    pub(super) fn is_idler_than(self, other: Self) -> bool {
        u64::from(self.free()) * u64::from(other.limit)
            > u64::from(other.free()) * u64::from(self.limit)
    }

    fn pack(self) -> u64 {
        u64::from(self.marks.0) << (2 * COUNT_BITS)
            | u64::from(self.limit) << COUNT_BITS
            | u64::from(self.in_use)
    }

    fn unpack(word: u64) -> Self {
        let count = |word: u64| word as u32 & MOST_SLOTS;
        Self {
            limit: count(word >> COUNT_BITS),
            in_use: count(word),
            marks: Marks((word >> (2 * COUNT_BITS)) as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(in_use: u32, limit: u32) -> Load {
        Load {
            limit,
            in_use,
            marks: Marks::NONE,
        }
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
        assert_eq!(slots.load().free(), 1);
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
        let all = Load {
            limit: MOST_SLOTS,
            in_use: 1,
            marks: Marks(0b1_1111),
        };
        assert_eq!(slots.load(), all);
        slots.release();
        slots.mark(|_| Marks::NONE);
        assert_eq!(slots.load(), load(0, MOST_SLOTS));
    }

    #[test]
    fn a_limit_below_what_is_in_use_leaves_nothing_free() {
        let slots = Slots::new(5);
        assert!(take(&slots));
        slots.set_limit(0);
        assert_eq!(slots.load(), load(1, 0));
        assert_eq!(slots.load().free(), 0);
    }

    #[test]
    fn idler_means_the_larger_free_share() {
        for (a, b, idler) in [
            (load(0, 1), load(1, 2), true),
            (load(1, 4), load(1, 2), true),
            (load(1, 2), load(2, 4), false),
            (load(3, 4), load(1, 2), false),
            (load(0, 0), load(1, 2), false),
            (load(0, MOST_SLOTS), load(1, MOST_SLOTS), true),
        ] {
            assert_eq!(a.is_idler_than(b), idler, "{a:?} {b:?}");
        }
    }
}
