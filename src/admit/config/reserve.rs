//! Slots that are reserved for a level.

/// Slots of each pool that are reserved for a level and those above it.
///
/// They have a price, because requests of lower levels wait while a reserved slot is free. In a pool of 20 slots, each
/// reserved slot costs 4 to 5 points of the useful work in overload.
///
/// A configuration file has a number of slots, or a share such as `"10%"`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ReservedSlots {
    /// A fixed number of slots.
    Slots(u32),
    /// A share of the pool's slots, from 0 to 1. The number of slots is rounded up.
    Share(f64),
}

/// The slots of its pool that a request has to leave free, because they are reserved for higher levels.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KeptSlots {
    slots: u32,
    /// A share of all slots, in millionths. The integer represents written shares exactly, and lets the value fit into
    /// a register.
    millionths: u32,
}

const MILLION: u64 = 1_000_000;

impl KeptSlots {
    /// The value that reserves no slots.
    pub const NONE: Self = Self {
        slots: 0,
        millionths: 0,
    };

    /// Returns the number of reserved slots in a pool of `limit` slots. At least one slot remains for all levels.
    #[must_use]
    #[inline]
    pub fn of(self, limit: usize) -> usize {
        // Most rooms reserve nothing, so this check saves the arithmetic.
        if self == Self::NONE {
            return 0;
        }
        let share = (limit as u64)
            .saturating_mul(self.millionths.into())
            .div_ceil(MILLION);
        let kept = (share as usize).saturating_add(self.slots as usize);
        kept.min(limit.saturating_sub(1))
    }

    pub(crate) fn and(mut self, reserve: ReservedSlots) -> Self {
        match reserve {
            ReservedSlots::Slots(slots) => self.slots = self.slots.saturating_add(slots),
            ReservedSlots::Share(share) => {
                let millionths = (share * MILLION as f64).round() as u32; // saturates; NaN becomes 0
                self.millionths = self.millionths.saturating_add(millionths);
            }
        }
        self
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_and_one_slot_is_for_all() {
        let kept = |reserves: &[ReservedSlots], limit| {
            let all = reserves.iter();
            all.fold(KeptSlots::NONE, |kept, &one| kept.and(one))
                .of(limit)
        };
        use ReservedSlots::{Share, Slots};
        assert_eq!(kept(&[], 8), 0);
        assert_eq!(kept(&[Slots(2)], 8), 2);
        assert_eq!(kept(&[Share(0.1)], 8), 1);
        assert_eq!(kept(&[Share(0.1)], 10), 1);
        assert_eq!(kept(&[Share(0.07)], 100), 7);
        assert_eq!(kept(&[Share(0.1), Share(0.2)], 10), 3);
        assert_eq!(kept(&[Share(0.5)], 8), 4);
        assert_eq!(kept(&[Slots(1), Share(0.25), Slots(1)], 8), 4);
        assert_eq!(kept(&[Slots(9)], 8), 7);
        assert_eq!(kept(&[Slots(1)], 1), 0);
        assert_eq!(kept(&[Slots(u32::MAX), Share(1.0)], 0), 0);
    }
}
