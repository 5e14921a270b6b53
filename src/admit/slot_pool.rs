//! The simplest capacity: a fixed number of interchangeable slots.

use std::convert::Infallible;

use crate::sync::{AtomicU64, SeqCst};

use super::{Capacity, KeptSlots, LeaseError, PoolId, PoolSet, SlotUsage};

/// A fixed number of slots, each of which serves any request.
///
/// The limit can be changed while leases are out. If it falls below their number, each slot that is released is retired
/// until the limit holds.
///
/// # Memory ordering
///
/// Every access is sequentially consistent. A release writes the count of slots and then reads the gate's count of
/// waiters. A request that is about to wait writes the count of waiters and then reads the count of slots. With a
/// weaker ordering each of the two could miss the other's write, so the slot would stay free while the request waits
/// without end.
///
/// ```
/// use tower_triage::admit::Capacity;
/// use tower_triage::SlotPool;
///
/// let slots = SlotPool::new(1);
/// let lease = slots.try_lease(&()).unwrap();
/// assert!(slots.try_lease(&()).is_err());
/// slots.release(lease);
/// assert!(slots.try_lease(&()).is_ok());
/// ```
#[derive(Debug)]
pub struct SlotPool {
    /// Three counters in one word. From the lowest bit, 20 bits count the leases that are out, 4 bits count the changes
    /// of the limit, and 40 bits count the leases ever given. With one word a lease is a single write, which fails if
    /// the limit changed after it was read.
    slots: AtomicU64,
    /// The number of slots, at most `OUT`. Each change is followed by a change of `slots`.
    limit: AtomicU64,
}

/// One leased slot of a [`SlotPool`].
#[derive(Debug)]
pub struct Slot(());

impl Slot {
    /// Takes the slot out of a field, in a destructor. The caller must release only the returned slot.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Self(())
    }
}

/// 2²⁰ − 1 leases may be out at a time. Below this limit, adding one never carries into the next field.
const OUT_BITS: u32 = 20;
const OUT: u64 = (1 << OUT_BITS) - 1;
/// The unit of the field that counts changes of the limit. A change makes the compare-and-swap of a lease fail that has
/// read the old limit.
const CHANGE: u64 = 1 << OUT_BITS;
/// The field that counts changes, which wraps after 16. A lease overlooks a change only if 16 of them happen between
/// its two accesses, without another lease in between.
const CHANGES: u64 = 0xF << OUT_BITS;
/// The position of the leases ever given, in the rest of the word. Their overflow leaves the word, so it cannot reach
/// another field.
const GIVEN_BITS: u32 = OUT_BITS + 4;
const GIVEN: u64 = 1 << GIVEN_BITS;

impl SlotPool {
    /// The highest possible limit, 1,048,575.
    pub const MAX: usize = OUT as usize;

    /// Creates a pool of `limit` slots. A limit above 1,048,575 ([`MAX`](Self::MAX)) is lowered to that.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            slots: AtomicU64::new(0),
            limit: AtomicU64::new(clamp(limit)),
        }
    }

    /// Takes a slot if fewer slots are out than `usable`, which gets the limit, returns.
    #[inline]
    fn lease_below(&self, usable: impl Fn(u64) -> u64) -> Result<Slot, LeaseError<Infallible>> {
        let mut slots = self.slots.load(SeqCst);
        // The loop is lock-free, because the swap fails only if another thread changed the word, or spuriously.
        loop {
            // The limit is read after `slots`. If it changes later, `slots` changes too, and the swap below fails.
            if slots & OUT >= usable(self.limit.load(SeqCst)) {
                return Err(LeaseError::Busy);
            }
            let new = slots.wrapping_add(GIVEN + 1);
            match self.slots.compare_exchange_weak(slots, new, SeqCst, SeqCst) {
                Ok(_) => return Ok(Slot(())),
                Err(now) => slots = now,
            }
        }
    }

    /// Changes the number of slots. Returns `true` if the number grew.
    pub(crate) fn set_limit(&self, limit: usize) -> bool {
        // The limit is written before `slots`, so a lease that reads `slots` after its change reads the new limit.
        let old = self.limit.swap(clamp(limit), SeqCst);
        let mut slots = self.slots.load(SeqCst);
        loop {
            // Adds one to the field of changes alone, which wraps within its 4 bits.
            let new = slots & !CHANGES | slots.wrapping_add(CHANGE) & CHANGES;
            match self.slots.compare_exchange_weak(slots, new, SeqCst, SeqCst) {
                Ok(_) => return clamp(limit) > old,
                Err(now) => slots = now,
            }
        }
    }
}

/// Returns the limit as it is stored, at most `OUT`.
fn clamp(limit: usize) -> u64 {
    (limit as u64).min(OUT)
}

impl Capacity for SlotPool {
    type Demand = ();
    type Lease = Slot;
    type Lane = ();
    type Unservable = Infallible;

    const NEVER_PANICS: bool = true;

    #[inline]
    fn try_lease(&self, (): &()) -> Result<Slot, LeaseError<Infallible>> {
        self.lease_below(|limit| limit)
    }

    fn try_lease_keeping(&self, (): &(), kept: KeptSlots) -> Result<Slot, LeaseError<Infallible>> {
        self.lease_below(|limit| limit - kept.of(limit as usize) as u64)
    }

    #[inline]
    fn release(&self, Slot(()): Slot) -> PoolId {
        // The field is above 0, because this slot was counted, so the subtraction can't borrow from the next field. The
        // gate reads its count of waiters after this.
        self.slots.fetch_sub(1, SeqCst);
        PoolId(0)
    }

    #[inline]
    fn pool(&self, _: &Slot) -> PoolId {
        PoolId(0)
    }

    #[inline]
    fn lane(&self, (): &()) {}

    fn pools(&self, (): &()) -> PoolSet {
        PoolSet::one(PoolId(0))
    }

    #[inline]
    fn pool_usage(&self, _: PoolId) -> SlotUsage {
        self.usage()
    }

    #[inline]
    fn usage(&self) -> SlotUsage {
        SlotUsage {
            slots: self.limit.load(SeqCst) as usize,
            in_use: (self.slots.load(SeqCst) & OUT) as usize,
        }
    }

    fn leased(&self) -> u64 {
        self.slots.load(SeqCst) >> GIVEN_BITS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lowered_limit_retires_released_slots() {
        let slots = SlotPool::new(3);
        let out: Vec<_> = (0..3).map(|_| slots.try_lease(&()).unwrap()).collect();
        assert!(!slots.set_limit(1));
        for (left, lease) in (0..3).rev().zip(out) {
            assert!(slots.try_lease(&()).is_err());
            slots.release(lease);
            assert_eq!(slots.usage().in_use, left);
        }
        assert!(slots.try_lease(&()).is_ok());
        assert!(slots.try_lease(&()).is_err());
        assert!(slots.set_limit(2));
        assert!(slots.try_lease(&()).is_ok());
    }
}
