//! The simplest capacity: so many at a time.

use std::convert::Infallible;

use crate::sync::{AtomicU64, SeqCst};

use super::{Capacity, LeaseError, PoolId, PoolSet};

/// So many requests at a time, whatever they ask.
///
/// The limit can be changed while permits are out. Lowered below what is out, it takes effect as they come
/// back: each one that returns is retired until the limit holds.
///
/// ```
/// use tower_triage::admit::Capacity;
/// use tower_triage::SlotPool;
///
/// let permits = SlotPool::new(1);
/// let lease = permits.try_lease(&()).unwrap();
/// assert!(permits.try_lease(&()).is_err());
/// permits.release(lease);
/// ```
#[derive(Debug)]
pub struct SlotPool {
    /// From below: how many are out, the number of the limit in force, how many were ever given. One word, so
    /// that a lease is one write, and so that none slips between reading a limit and counting against it.
    slots: AtomicU64,
    limit: AtomicU64,
}

/// One slot of [`SlotPool`].
#[derive(Debug)]
pub struct Slot(());

impl Slot {
    /// The slot, out of a place that can't be moved out of. For destructors: what is left is not to be released.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Self(())
    }
}

const OUT_BITS: u32 = 20;
const OUT: u64 = (1 << OUT_BITS) - 1;
/// A change of the limit, so that whoever read the old one has to look again.
const CHANGE: u64 = 1 << OUT_BITS;
const CHANGES: u64 = 0xF << OUT_BITS;
const GIVEN_BITS: u32 = OUT_BITS + 4;
const GIVEN: u64 = 1 << GIVEN_BITS;

impl SlotPool {
    /// The highest limit there can be.
    pub const MAX: usize = OUT as usize;

    /// `limit` slots; more than [`MAX`](Self::MAX) are as many as that.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            slots: AtomicU64::new(0),
            limit: AtomicU64::new(clamp(limit)),
        }
    }

    /// Changes the number of slots, and says whether there are more now than before.
    pub(crate) fn set_limit(&self, limit: usize) -> bool {
        let old = self.limit.swap(clamp(limit), SeqCst);
        let mut slots = self.slots.load(SeqCst);
        loop {
            let new = slots & !CHANGES | slots.wrapping_add(CHANGE) & CHANGES;
            match self.slots.compare_exchange_weak(slots, new, SeqCst, SeqCst) {
                Ok(_) => return clamp(limit) > old,
                Err(now) => slots = now,
            }
        }
    }
}

fn clamp(limit: usize) -> u64 {
    (limit as u64).min(OUT)
}

impl Capacity for SlotPool {
    type Demand = ();
    type Lease = Slot;
    type Lane = ();
    type Unservable = Infallible;

    const SINGLE_LANE: bool = true;

    #[inline]
    fn try_lease(&self, (): &()) -> Result<Slot, LeaseError<Infallible>> {
        let mut slots = self.slots.load(SeqCst);
        loop {
            // After `slots`: a limit that changes later changes `slots`, too.
            if slots & OUT >= self.limit.load(SeqCst) {
                return Err(LeaseError::Busy);
            }
            let new = slots.wrapping_add(GIVEN + 1);
            match self.slots.compare_exchange_weak(slots, new, SeqCst, SeqCst) {
                Ok(_) => return Ok(Slot(())),
                Err(now) => slots = now,
            }
        }
    }

    #[inline]
    fn release(&self, Slot(()): Slot) -> PoolId {
        self.slots.fetch_sub(1, SeqCst);
        PoolId(0)
    }

    #[inline]
    fn pool(&self, _: &Slot) -> PoolId {
        PoolId(0)
    }

    fn lane(&self, (): &()) {}

    fn pools(&self, (): &()) -> PoolSet {
        PoolSet::one(PoolId(0))
    }

    fn in_use(&self) -> usize {
        (self.slots.load(SeqCst) & OUT) as usize
    }

    fn limit(&self) -> usize {
        self.limit.load(SeqCst) as usize
    }

    fn leased(&self) -> u64 {
        self.slots.load(SeqCst) >> GIVEN_BITS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lowered_limit_retires_what_comes_back() {
        let permits = SlotPool::new(3);
        let out: Vec<_> = (0..3).map(|_| permits.try_lease(&()).unwrap()).collect();
        assert!(!permits.set_limit(1));
        for (left, lease) in (0..3).rev().zip(out) {
            assert!(permits.try_lease(&()).is_err());
            permits.release(lease);
            assert_eq!(permits.in_use(), left);
        }
        assert!(permits.try_lease(&()).is_ok());
        assert!(permits.try_lease(&()).is_err());
        assert!(permits.set_limit(2));
        assert!(permits.try_lease(&()).is_ok());
    }
}
