//! The simplest capacity: a fixed number of interchangeable slots.

use std::convert::Infallible;

use crate::sync::{AtomicU64, SeqCst};

use super::{Capacity, KeptSlots, LeaseError, PoolId, PoolSet, SlotUsage};

/// A fixed number of slots, each of which serves any request.
///
/// The limit can be changed while leases are out. If it is lowered below their number, it takes effect as they come back:
/// each slot that is released is retired until the limit holds.
///
/// # Memory ordering
///
/// Every access is sequentially consistent. A release writes the count of slots and then reads the gate's count of waiters;
/// a request that is about to wait writes that count and then reads this one. With a weaker ordering each of the two could
/// miss the other's write: the slot would stay free, and the request would wait without end.
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
    /// From the lowest bit: 20 bits for the leases that are out, 4 for the changes of the limit, 40 for the leases ever
    /// given. One word, so that a lease is one write, and fails if the limit changed after it was read.
    slots: AtomicU64,
    limit: AtomicU64,
}

/// One slot of [`SlotPool`].
#[derive(Debug)]
pub struct Slot(());

impl Slot {
    /// Takes the slot out of a field, in a destructor. What is left behind is not to be released.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Self(())
    }
}

/// 2²⁰ − 1 leases at a time. Below the limit, adding one never carries into the next field.
const OUT_BITS: u32 = 20;
const OUT: u64 = (1 << OUT_BITS) - 1;
/// One change of the limit: the compare-and-swap of a lease that has read the old limit fails.
const CHANGE: u64 = 1 << OUT_BITS;
/// Wraps after 16. It would take 16 changes within one lease, and no other lease, to miss them.
const CHANGES: u64 = 0xF << OUT_BITS;
/// The rest of the word. Its overflow leaves the word, and no field.
const GIVEN_BITS: u32 = OUT_BITS + 4;
const GIVEN: u64 = 1 << GIVEN_BITS;

impl SlotPool {
    /// The highest limit there can be.
    pub const MAX: usize = OUT as usize;

    /// A pool of `limit` slots, [`MAX`](Self::MAX) at most.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            slots: AtomicU64::new(0),
            limit: AtomicU64::new(clamp(limit)),
        }
    }

    /// Takes a slot, if fewer are out than `usable` says of the limit.
    #[inline]
    fn lease_below(&self, usable: impl Fn(u64) -> u64) -> Result<Slot, LeaseError<Infallible>> {
        let mut slots = self.slots.load(SeqCst);
        // Lock-free: the swap fails only if another thread changed the word, or by chance.
        loop {
            // Read after `slots`: a limit that changes later changes `slots`, too, and the swap below fails.
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

    /// Changes the number of slots, and says whether there are more now than before.
    pub(crate) fn set_limit(&self, limit: usize) -> bool {
        // Before `slots`: a lease that reads `slots` after its change reads the new limit.
        let old = self.limit.swap(clamp(limit), SeqCst);
        let mut slots = self.slots.load(SeqCst);
        loop {
            // The field wraps within its 4 bits.
            let new = slots & !CHANGES | slots.wrapping_add(CHANGE) & CHANGES;
            match self.slots.compare_exchange_weak(slots, new, SeqCst, SeqCst) {
                Ok(_) => return clamp(limit) > old,
                Err(now) => slots = now,
            }
        }
    }
}

/// The limit as it is stored.
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
        // Does not borrow from the next field: this slot was counted. The gate reads its count of waiters after this.
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
