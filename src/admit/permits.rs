//! The simplest capacity: so many at a time.

use std::convert::Infallible;

use crate::sync::{AtomicU64, SeqCst};

use super::{Capacity, Denied, Pool, Pools};

/// So many requests at a time, whatever they ask.
///
/// The limit can be changed while permits are out. Lowered below what is out, it takes effect as they come
/// back: each one that returns is retired until the limit holds.
///
/// ```
/// use tower_triage::{Capacity, Permits};
///
/// let permits = Permits::new(1);
/// let lease = permits.try_lease(&()).unwrap();
/// assert!(permits.try_lease(&()).is_err());
/// permits.release(lease);
/// ```
#[derive(Debug)]
pub struct Permits {
    /// The limit in the upper half, what is out in the lower one: one word, so that no lease can slip
    /// between reading a limit and counting against it.
    slots: AtomicU64,
    by_turn: bool,
}

/// One slot of [`Permits`].
#[derive(Debug)]
pub struct Slot(());

const HALF: u32 = 32;
const LOWER: u64 = u32::MAX as u64;

impl Permits {
    /// `limit` slots; more than `u32::MAX` are as many as that.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            slots: AtomicU64::new(clamp(limit) << HALF),
            by_turn: false,
        }
    }

    /// No slot but the one that the waiter who is next makes for itself.
    pub(crate) fn by_turn() -> Self {
        Self {
            by_turn: true,
            ..Self::new(0)
        }
    }

    /// Changes the number of slots, and says whether there are more now than before.
    pub(crate) fn set_limit(&self, limit: usize) -> bool {
        let mut slots = self.slots.load(SeqCst);
        loop {
            let new = clamp(limit) << HALF | slots & LOWER;
            match self.slots.compare_exchange_weak(slots, new, SeqCst, SeqCst) {
                Ok(_) => return new > slots,
                Err(now) => slots = now,
            }
        }
    }
}

fn clamp(limit: usize) -> u64 {
    (limit as u64).min(LOWER)
}

impl Capacity for Permits {
    type Demand = ();
    type Lease = Slot;
    type Lane = ();
    type Never = Infallible;

    fn try_lease(&self, (): &()) -> Result<Slot, Denied<Infallible>> {
        let mut slots = self.slots.load(SeqCst);
        loop {
            if slots & LOWER >= slots >> HALF {
                return Err(Denied::Busy);
            }
            match self
                .slots
                .compare_exchange_weak(slots, slots + 1, SeqCst, SeqCst)
            {
                Ok(_) => return Ok(Slot(())),
                Err(now) => slots = now,
            }
        }
    }

    fn release(&self, Slot(()): Slot) -> Pool {
        self.slots.fetch_sub(1, SeqCst);
        Pool(0)
    }

    fn pool(&self, _: &Slot) -> Pool {
        Pool(0)
    }

    fn lane(&self, (): &()) {}

    fn pools(&self, (): &()) -> Pools {
        Pools::one(Pool(0))
    }

    fn in_use(&self) -> usize {
        (self.slots.load(SeqCst) & LOWER) as usize
    }

    fn limit(&self) -> usize {
        (self.slots.load(SeqCst) >> HALF) as usize
    }

    fn made_by_head(&self) -> bool {
        self.by_turn
    }

    fn set_made(&self, free: bool) {
        self.set_limit(usize::from(free));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lowered_limit_retires_what_comes_back() {
        let permits = Permits::new(3);
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
