//! The trait of everything that can serve a limited number of requests at a time.
//!
//! Without it, the scheduler would have to be written once for each kind of backend. The waiting room asks a [`Capacity`]
//! for slots ([`Capacity::try_lease`]), tells it when one comes back ([`Capacity::release`]), and learns from it which
//! waiters need the same slots ([`Capacity::lane`]), which slots those are ([`Capacity::pools`]) and where the waiters
//! wait ([`Capacity::partition`]).

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::{Discipline, KeptSlots, Priority};

/// Something that can serve a limited number of requests at a time.
///
/// A capacity is shared between threads and is called both under the gate's lock and outside it, so every method takes
/// `&self` and must neither block nor do I/O. The count of free slots has to be in atomics with sequentially consistent
/// accesses: a release writes it and then reads the gate's count of waiters, an arrival the other way round, and with a
/// weaker ordering each may miss the other's write. Then a wake-up is lost.
///
/// # Contract
///
/// - A lease that [`try_lease`](Self::try_lease) returned counts until [`release`](Self::release).
/// - Demands of one lane are busy together: while one of them gets [`LeaseError::Busy`], so do all.
/// - Lanes with equal [`pools`](Self::pools) are busy together, too. So the waiting room asks for one of them only (one of
///   each discipline), and a thousand waiting lanes do not make a release slow.
/// - Partitions with equal ids are equal.
/// - A capacity that grows or changes by itself tells its gate (see `Gate::capacity_changed`).
/// - A capacity that panics is taken to answer [`LeaseError::Busy`], or what a method's default would; the panic is logged as
///   an error. A request whose lane it can't tell is rejected as `not_queued`, because it can't wait.
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
    /// What a request asks for.
    type Demand: Send + Sync + 'static;
    /// One slot, taken. It says which.
    type Lease: Send + Sync + 'static;
    /// Names the waiters that need the same slots.
    type Lane: Clone + Eq + Hash + Send + Sync + 'static;
    /// Why a demand can never be served.
    type Unservable: Clone + fmt::Debug + fmt::Display + Send + Sync + 'static;

    /// `true` if no method panics: then calls need not be guarded, which is a quarter of the cost of a free slot. A capacity
    /// that panics all the same loses the slot that it is asked for. Default `false`.
    const NEVER_PANICS: bool = false;

    /// Takes a slot for `demand`, if one is free.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Busy`] if waiting helps, [`LeaseError::Unservable`] if it does not.
    fn try_lease(&self, demand: &Self::Demand)
    -> Result<Self::Lease, LeaseError<Self::Unservable>>;

    /// As [`try_lease`](Self::try_lease), where the request has to leave the `kept` slots of its pool free. By default it
    /// may take any.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Busy`] also if no more than the kept slots are free.
    fn try_lease_keeping(
        &self,
        demand: &Self::Demand,
        _kept: KeptSlots,
    ) -> Result<Self::Lease, LeaseError<Self::Unservable>> {
        self.try_lease(demand)
    }

    /// Gives a slot back, and says which pool it belongs to.
    fn release(&self, lease: Self::Lease) -> PoolId;

    /// The pool that a leased slot belongs to.
    fn pool(&self, lease: &Self::Lease) -> PoolId;

    /// The lane in which `demand` waits.
    fn lane(&self, demand: &Self::Demand) -> Self::Lane;

    /// The pools with slots that could serve `lane`, in ascending order.
    ///
    /// Called when a lane gets its first waiter, and again after the gate was told that the capacity changed.
    fn pools(&self, lane: &Self::Lane) -> PoolSet;

    /// The partition of the waiting room in which `lane` waits. Default: one without a bound of its own, in the room's
    /// order.
    ///
    /// Called when [`pools`](Self::pools) is.
    fn partition(&self, _lane: &Self::Lane) -> Partition {
        Partition::default()
    }

    /// Returns the number of slots of a pool and of those in use. A predicted wait follows a change of the first at once.
    ///
    /// Default: one slot, so that a predicted wait follows a change as leases come back, and all leases that are out, as if
    /// there were one pool.
    fn pool_usage(&self, _pool: PoolId) -> SlotUsage {
        let in_use = self.usage().in_use;
        SlotUsage { slots: 1, in_use }
    }

    /// The pools that are in service: what others handed over is not expected of them any more, and reports are about
    /// these. `None` (default) if that is not known: then all are that ever handed a slot over.
    fn all_pools(&self) -> Option<PoolSet> {
        None
    }

    /// Returns the number of all slots and of all leases that are out.
    fn usage(&self) -> SlotUsage;

    /// How many leases were given so far. May start again from 0 after 2⁴⁰.
    fn leased(&self) -> u64;

    /// Returns this capacity if its slots may have to be started first, as by a process. `None` (default) if its slots are
    /// always there.
    ///
    /// The gate asks before each use, so a capacity may begin to serve on demand at any time. It tells its gate by
    /// `Gate::capacity_changed`.
    fn on_demand(&self) -> Option<&dyn OnDemandCapacity<Self::Lease>> {
        None
    }
}

/// A [`Capacity`] with slots that are started when requests wait for them, and stopped when others need what they take.
///
/// The waiting room asks it for the state of each pool, so that the time of a start counts neither as slow service nor
/// against `max_wait`, and tells it which requests wait.
///
/// The gate calls all methods under its lock, so they must not call the gate.
pub trait OnDemandCapacity<L> {
    /// Returns the state of the slots of a pool.
    ///
    /// Requests wait for slots that are stopped or starting as for busy ones, but that time is no measure of how fast slots
    /// are handed over. While slots are starting, only a request's own deadline ends its wait: `max_wait` and a configured
    /// target count from the end of the start.
    fn slot_state(&self, pool: PoolId) -> SlotState;

    /// Called when the head of a lane may be another waiter than before, or when a lane may have none any more.
    ///
    /// `Gate::lane_heads` lists the heads. They tell which slots to start.
    fn on_lane_heads_changed(&self);

    /// Called when a request of this level took a slot as it arrived, and so overtook all that wait for other slots.
    ///
    /// The capacity may prefer to stop this slot and to start the one that a more urgent waiter needs.
    fn on_overtake(&self, lease: &L, level: Priority);
}

/// The use of the slots of a [`Capacity`], or of one of its pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotUsage {
    /// The number of slots, busy ones included.
    pub slots: usize,
    /// The number of leases that are out. It may exceed `slots` after a limit was lowered.
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

/// The reason why [`Capacity::try_lease`] gave no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseError<N> {
    /// Every slot that could serve the demand is taken.
    Busy,
    /// No slot will ever serve the demand.
    Unservable(N),
}

/// A part of the waiting room with a bound and a discipline of its own: that of one model, say.
///
/// The room's own `max_size` bounds all partitions together. By default a partition has no bound of its own, and the
/// room's discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Partition {
    /// Its name. Lanes that name the same partition share its bound.
    pub id: u32,
    /// How many requests may wait in it. `None`: no bound but the room's. 0: none.
    pub max_size: Option<usize>,
    /// The order among waiters of equal priority in one of its lanes. `None`: as in the room.
    pub discipline: Option<Discipline>,
}

impl Partition {
    /// Returns the partition named `id`, without a bound of its own and in the room's order.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self {
            id,
            max_size: None,
            discipline: None,
        }
    }

    /// Sets the number of requests that may wait in the partition.
    #[must_use]
    pub fn max_size(mut self, max_size: impl Into<Option<usize>>) -> Self {
        self.max_size = max_size.into();
        self
    }

    /// Sets the order among waiters of equal priority in one of the partition's lanes.
    #[must_use]
    pub fn discipline(mut self, discipline: impl Into<Option<Discipline>>) -> Self {
        self.discipline = discipline.into();
        self
    }
}

/// Names a pool of interchangeable slots: those of a service, an endpoint. Numbered densely from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u32);

/// The pools that could serve a lane, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolSet(Arc<[PoolId]>);

impl PoolSet {
    /// The pools of a lane that only `pool` can serve.
    #[must_use]
    pub fn one(pool: PoolId) -> Self {
        Self(Arc::new([pool]))
    }
}

impl FromIterator<PoolId> for PoolSet {
    fn from_iter<I: IntoIterator<Item = PoolId>>(pools: I) -> Self {
        let mut pools: Vec<PoolId> = pools.into_iter().collect();
        // Equal sets have to compare equal, whatever order they were named in.
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
