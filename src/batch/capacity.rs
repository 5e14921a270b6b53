//! What a pull-side room asks for slots: there are none, for those who serve come and fetch.

use std::convert::Infallible;

use crate::admit::{Capacity, LeaseError, PoolId, PoolSet, RejectReason};

/// A request costs more than there will ever be room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the request costs {cost}, which is more than the whole budget of {budget}")]
pub struct TooLarge {
    /// What it costs.
    pub cost: u64,
    /// The whole budget.
    pub budget: u64,
}

/// It costs more than the whole budget. Without the figures, for which every chair would need the room.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the request is too large")]
pub(super) struct Exceeds;

/// Everyone waits, but for those who would block the queue for ever.
#[derive(Debug)]
pub(super) struct Fetched {
    /// All that a batch may ever cost.
    pub(super) budget: u64,
}

impl Fetched {
    /// Why a request of that cost was rejected, with the figures.
    pub(super) fn to_rejection(
        &self,
        why: RejectReason<Exceeds>,
        cost: u64,
    ) -> RejectReason<TooLarge> {
        let budget = self.budget;
        why.told(|Exceeds| TooLarge { cost, budget })
    }
}

impl Capacity for Fetched {
    /// The cost.
    type Demand = u64;
    type Lease = Infallible;
    type Lane = ();
    type Unservable = Exceeds;

    fn try_lease(&self, &cost: &u64) -> Result<Infallible, LeaseError<Exceeds>> {
        match cost > self.budget {
            true => Err(LeaseError::Unservable(Exceeds)),
            false => Err(LeaseError::Busy),
        }
    }

    fn release(&self, lease: Infallible) -> PoolId {
        match lease {}
    }

    fn pool(&self, lease: &Infallible) -> PoolId {
        match *lease {}
    }

    fn lane(&self, _: &u64) {}

    fn pools(&self, (): &()) -> PoolSet {
        PoolSet::one(PoolId(0))
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
