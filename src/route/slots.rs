//! With the limit and the count of leases in two words, a limit that falls between reading the one and
//! raising the other lets too many requests in.
//!
//! [`Slots`] keeps both in one, so that a slot is only ever taken under the limit of that very instant.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst; // what `Capacity` asks for: a store-load pair with the waiters

/// The slots of one endpoint. The limit may fall below what is in use: leases then go unreplaced.
#[derive(Debug)]
pub(super) struct Slots(AtomicU64);

impl Slots {
    pub(super) fn new(limit: u32) -> Self {
        Self(AtomicU64::new(Load { limit, in_use: 0 }.pack()))
    }

    pub(super) fn load(&self) -> Load {
        Load::unpack(self.0.load(SeqCst))
    }

    /// Takes a slot if nothing has changed since `seen`, which has a free one.
    pub(super) fn take(&self, seen: Load) -> bool {
        let taken = Load {
            in_use: seen.in_use + 1,
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
        let replace = |word| {
            Some(
                Load {
                    limit,
                    ..Load::unpack(word)
                }
                .pack(),
            )
        };
        // The closure never declines, so there is nothing to learn from the result.
        let _ = self.0.fetch_update(SeqCst, SeqCst, replace);
    }
}

/// How busy an endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) limit: u32,
    pub(super) in_use: u32,
}

impl Load {
    pub(super) fn free(self) -> u32 {
        self.limit.saturating_sub(self.in_use)
    }

    /// Whether a larger share of the slots is free here than at `other`.
    pub(super) fn is_idler_than(self, other: Self) -> bool {
        u64::from(self.free()) * u64::from(other.limit)
            > u64::from(other.free()) * u64::from(self.limit)
    }

    fn pack(self) -> u64 {
        u64::from(self.limit) << 32 | u64::from(self.in_use)
    }

    fn unpack(word: u64) -> Self {
        Self {
            limit: (word >> 32) as u32,
            in_use: word as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_only_if_nothing_changed_since_it_was_seen() {
        let slots = Slots::new(2);
        let seen = slots.load();
        assert!(slots.take(seen));
        assert!(!slots.take(seen));
        slots.set_limit(1);
        assert_eq!(
            slots.load(),
            Load {
                limit: 1,
                in_use: 1
            }
        );
        slots.release();
        assert_eq!(slots.load().free(), 1);
    }

    #[test]
    fn a_limit_below_what_is_in_use_leaves_nothing_free() {
        let slots = Slots::new(u32::MAX);
        assert!(slots.take(slots.load()));
        slots.set_limit(0);
        assert_eq!(
            slots.load(),
            Load {
                limit: 0,
                in_use: 1
            }
        );
        assert_eq!(slots.load().free(), 0);
    }

    #[test]
    fn idler_means_the_larger_free_share() {
        let load = |in_use, limit| Load { limit, in_use };
        for (a, b, idler) in [
            (load(0, 1), load(1, 2), true),
            (load(1, 4), load(1, 2), true),
            (load(1, 2), load(2, 4), false),
            (load(3, 4), load(1, 2), false),
            (load(0, 0), load(1, 2), false),
            (load(0, u32::MAX), load(1, u32::MAX), true),
        ] {
            assert_eq!(a.is_idler_than(b), idler, "{a:?} {b:?}");
        }
    }
}
