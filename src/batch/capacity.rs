//! What a pull-side room asks for slots: there are none, for those who serve come and fetch.

use std::convert::Infallible;

use crate::admit::{Capacity, Denied, Pool, Pools};

/// A request costs more than there will ever be room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the request costs {cost}, which is more than the whole budget of {budget}")]
pub struct TooLarge {
    /// What it costs.
    pub cost: u64,
    /// The whole budget.
    pub budget: u64,
}

/// Everyone waits, but for those who would block the queue for ever.
#[derive(Debug)]
pub(super) struct Fetched {
    /// All that a batch may ever cost.
    pub(super) budget: u64,
}

impl Capacity for Fetched {
    /// The cost.
    type Demand = u64;
    type Lease = Infallible;
    type Lane = ();
    type Never = TooLarge;

    fn try_lease(&self, &cost: &u64) -> Result<Infallible, Denied<TooLarge>> {
        let budget = self.budget;
        if cost > budget {
            return Err(Denied::Never(TooLarge { cost, budget }));
        }
        Err(Denied::Busy)
    }

    fn release(&self, lease: Infallible) -> Pool {
        match lease {}
    }

    fn pool(&self, lease: &Infallible) -> Pool {
        match *lease {}
    }

    fn lane(&self, _: &u64) {}

    fn pools(&self, (): &()) -> Pools {
        Pools::one(Pool(0))
    }

    fn in_use(&self) -> usize {
        0
    }

    fn limit(&self) -> usize {
        0
    }

    fn leased(&self) -> u64 {
        0
    }
}
