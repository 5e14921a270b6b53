//! The trait of everything that can serve a limited number of requests at a time.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::{Discipline, KeptSlots, Priority};
use crate::setters::setters;

/// A backend that can serve a limited number of requests at a time.
///
/// Threads share a capacity and call it both under the gate's lock and outside of it, so every method takes `&self` and
/// must neither block nor do I/O.
///
/// The count of free slots has to be in atomics with sequentially consistent accesses. A release writes this count and
/// then reads the gate's count of waiters, while an arrival writes and reads them in the opposite order. With a weaker
/// ordering each of the two may miss the other's write, and then a wake-up is lost.
///
/// # Contract
///
/// - A lease that [`try_lease`](Self::try_lease) returned counts until [`release`](Self::release).
/// - Demands of one lane are busy together. While one of them gets [`LeaseError::Busy`], so do all.
/// - Lanes with equal [`pools`](Self::pools) are busy together, too. The waiting room therefore asks for only one of
///   these lanes for each discipline, so a thousand waiting lanes do not make a release slow.
/// - Partitions with equal ids are equal.
/// - A capacity that grows or changes by itself tells its gate (see `Gate::capacity_changed`).
/// - If a method panics, the gate logs an error. It then acts as if the method had returned [`LeaseError::Busy`] or the
///   default of the trait. A request whose lane stays unknown can't wait, so the gate rejects it as `not_queued`.
///
/// # Example
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
/// use tower_triage::admit::{Capacity, LeaseError, PoolId, PoolSet, SlotUsage};
///
/// /// Two GPUs with 4 slots each. A demand says whether it needs the second one, which is larger.
/// struct Gpus {
///     free: [AtomicUsize; 2],
///     leased: AtomicU64,
/// }
///
/// impl Capacity for Gpus {
///     type Demand = bool;
///     type Lease = PoolId;
///     type Lane = bool;
///     type Unservable = Infallible;
///
///     fn try_lease(&self, is_large: &bool) -> Result<PoolId, LeaseError<Infallible>> {
///         for &gpu in self.pools(is_large).iter() {
///             let take_one = |free: usize| free.checked_sub(1);
///             if self.free[gpu.0 as usize].fetch_update(SeqCst, SeqCst, take_one).is_ok() {
///                 self.leased.fetch_add(1, SeqCst);
///                 return Ok(gpu);
///             }
///         }
///         Err(LeaseError::Busy)
///     }
///     fn release(&self, gpu: PoolId) -> PoolId {
///         self.free[gpu.0 as usize].fetch_add(1, SeqCst);
///         gpu
///     }
///     fn pool(&self, gpu: &PoolId) -> PoolId { *gpu }
///     fn lane(&self, is_large: &bool) -> bool { *is_large }
///     fn pools(&self, is_large: &bool) -> PoolSet { (u32::from(*is_large)..2).map(PoolId).collect() }
///     fn usage(&self) -> SlotUsage {
///         let free: usize = self.free.iter().map(|free| free.load(SeqCst)).sum();
///         SlotUsage { slots: 8, in_use: 8 - free }
///     }
///     fn leased(&self) -> u64 { self.leased.load(SeqCst) }
/// }
///
/// let gpus = Gpus { free: [4, 4].map(AtomicUsize::new), leased: AtomicU64::new(0) };
/// let lease = gpus.try_lease(&true).unwrap();
/// assert_eq!((lease, gpus.usage().in_use), (PoolId(1), 1));
/// assert_eq!(gpus.release(lease), PoolId(1));
/// ```
pub trait Capacity: Send + Sync + 'static {
    /// The resource that a request asks for.
    type Demand: Send + Sync + 'static;
    /// One slot that is taken. The value identifies the slot.
    type Lease: Send + Sync + 'static;
    /// The name of a group of waiters that need the same slots.
    type Lane: Clone + Eq + Hash + Send + Sync + 'static;
    /// The reason why a demand can never be served.
    type Unservable: Clone + fmt::Debug + fmt::Display + Send + Sync + 'static;

    /// `true` if all methods are free of panics. The gate then calls them without a guard, which saves a quarter of the
    /// cost of a free slot. A capacity that panics all the same loses the slot that it is asked for. Default `false`.
    const NEVER_PANICS: bool = false;

    /// Takes a slot for `demand`, if one is free.
    ///
    /// # Errors
    ///
    /// Returns [`LeaseError::Busy`] if waiting helps, and [`LeaseError::Unservable`] if it does not.
    fn try_lease(&self, demand: &Self::Demand)
    -> Result<Self::Lease, LeaseError<Self::Unservable>>;

    /// Takes a slot for `demand`, if one is free beside the `kept` slots of its pool, which are reserved for other
    /// requests. The default implementation ignores `kept` and calls [`try_lease`](Self::try_lease).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lease`](Self::try_lease), and [`LeaseError::Busy`] also if only reserved slots are
    /// free.
    fn try_lease_keeping(
        &self,
        demand: &Self::Demand,
        _kept: KeptSlots,
    ) -> Result<Self::Lease, LeaseError<Self::Unservable>> {
        self.try_lease(demand)
    }

    /// Gives a slot back, and returns the pool that it belongs to.
    fn release(&self, lease: Self::Lease) -> PoolId;

    /// Returns the pool that a leased slot belongs to.
    fn pool(&self, lease: &Self::Lease) -> PoolId;

    /// Returns the lane in which `demand` waits.
    fn lane(&self, demand: &Self::Demand) -> Self::Lane;

    /// Returns the pools with slots that could serve `lane`, in ascending order.
    ///
    /// The gate calls this when a lane gets its first waiter, and again after it was told that the capacity changed.
    fn pools(&self, lane: &Self::Lane) -> PoolSet;

    /// Returns the partition of the waiting room in which `lane` waits. The default partition has only the room's bound
    /// and follows the room's order.
    ///
    /// The gate calls this whenever it calls [`pools`](Self::pools).
    fn partition(&self, _lane: &Self::Lane) -> Partition {
        Partition::default()
    }

    /// Returns the number of slots of a pool and the number of those in use. A predicted wait follows a change of the
    /// number of slots at once.
    ///
    /// By default a pool has one slot, and its leases are all leases that are out, as if there were one pool. A
    /// predicted wait then follows a change of the slots only as leases come back.
    fn pool_usage(&self, _pool: PoolId) -> SlotUsage {
        let in_use = self.usage().in_use;
        SlotUsage { slots: 1, in_use }
    }

    /// Returns the pools that are in service. The room expects slots only from these pools, and its reports list only
    /// these. With `None`, which is the default, every pool that ever handed a slot over counts as in service.
    fn all_pools(&self) -> Option<PoolSet> {
        None
    }

    /// Returns the number of all slots and the number of all leases that are out.
    fn usage(&self) -> SlotUsage;

    /// Returns the number of leases that were given so far. The count may start again from 0 after 2⁴⁰.
    fn leased(&self) -> u64;

    /// Returns this capacity if its slots may have to be started first, for example by a process. By default it returns
    /// `None`, because the slots are always there.
    ///
    /// The gate asks before each use, so a capacity may begin to serve on demand at any time. The capacity then tells
    /// its gate by `Gate::capacity_changed`.
    fn on_demand(&self) -> Option<&dyn OnDemandCapacity<Self::Lease>> {
        None
    }
}

/// A [`Capacity`] whose slots are started when requests wait for them, and stopped when other slots need their
/// resources.
///
/// The waiting room tells this capacity which requests wait. It also asks for the state of each pool, because the time
/// of a start counts neither as slow service nor towards `max_wait`.
///
/// The gate calls all methods under its lock, so they must not call the gate.
pub trait OnDemandCapacity<L> {
    /// Returns the state of the slots of a pool. Requests wait for stopped or starting slots as they wait for busy
    /// ones, but that time does not count as slow service. While slots are starting, only a request's own deadline ends
    /// its wait.
    fn slot_state(&self, pool: PoolId) -> SlotState;

    /// Handles a possible change of the lane heads. The head of a lane may be another waiter than before, or a lane may
    /// have lost its last waiter.
    ///
    /// `Gate::lane_heads` lists the heads, which show the slots that should be started.
    fn on_lane_heads_changed(&self);

    /// Handles a request of this level that took a slot as it arrived, and so overtook all requests that wait for other
    /// slots. The capacity may prefer to stop this slot and to start the one that a more urgent waiter needs.
    fn on_overtake(&self, lease: &L, level: Priority);
}

/// The use of the slots of a [`Capacity`], or of one of its pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotUsage {
    /// The number of slots, busy ones included.
    pub slots: usize,
    /// The number of leases that are out. It may exceed `slots` after the limit was lowered.
    pub in_use: usize,
}

/// The state of the slots of a pool of an [`OnDemandCapacity`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum SlotState {
    /// The slots can serve requests.
    Ready,
    /// The slots can't serve requests, and nothing starts them yet.
    Stopped,
    /// The slots are being started.
    Starting {
        /// The share of the start that is done, from 0 to 1, if it is known.
        progress: Option<f32>,
    },
}

/// The reason why [`Capacity::try_lease`] returned an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseError<N> {
    /// Every slot that could serve the demand is taken.
    Busy,
    /// The capacity has no slot that will ever serve the demand.
    Unservable(N),
}

/// A part of the waiting room, for example of one model, with a bound and a discipline of its own. The room's own
/// `max_size` bounds all partitions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Partition {
    /// The number that names the partition. Lanes that name the same partition share its bound.
    pub id: u32,
    /// The number of requests that may wait in the partition. With `None` only the room's bound holds, and with 0 every
    /// request is rejected that finds its slots busy.
    pub max_size: Option<usize>,
    /// The order among waiters of equal priority in one of the partition's lanes. `None` stands for the room's order.
    pub discipline: Option<Discipline>,
}

impl Partition {
    /// Returns the partition named `id`, which has only the room's bound and follows the room's order.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self {
            id,
            max_size: None,
            discipline: None,
        }
    }

    setters! {
        max_size: impl Into<Option<usize>>,
        discipline: impl Into<Option<Discipline>>,
    }
}

/// The number of a pool of interchangeable slots, such as those of a service or an endpoint. Pools are numbered densely
/// from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u32);

/// The pools that could serve a lane, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolSet(Arc<[PoolId]>);

impl PoolSet {
    /// Returns the pools of a lane that only `pool` can serve.
    #[must_use]
    pub fn one(pool: PoolId) -> Self {
        Self(Arc::new([pool]))
    }
}

impl FromIterator<PoolId> for PoolSet {
    fn from_iter<I: IntoIterator<Item = PoolId>>(pools: I) -> Self {
        let mut pools: Vec<PoolId> = pools.into_iter().collect();
        // Sorted, so that equal sets compare equal in whatever order their pools were named.
        pools.sort_unstable();
        pools.dedup();
        Self(pools.into())
    }
}

impl std::ops::Deref for PoolSet {
    type Target = [PoolId];

    fn deref(&self) -> &[PoolId] {
        &self.0
    }
}
