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
///
/// # Example
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
/// use tower_triage::admit::{Capacity, LeaseError, PoolId, PoolSet};
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
///     fn in_use(&self) -> usize { 8 - self.free.iter().map(|free| free.load(SeqCst)).sum::<usize>() }
///     fn limit(&self) -> usize { 8 }
///     fn leased(&self) -> u64 { self.leased.load(SeqCst) }
/// }
///
/// let gpus = Gpus { free: [4, 4].map(AtomicUsize::new), leased: AtomicU64::new(0) };
/// let lease = gpus.try_lease(&true).unwrap();
/// assert_eq!((lease, gpus.in_use()), (PoolId(1), 1));
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

    /// Whether all demands share one lane, one set of pools and the default [`Partition`]. Then the usual configurations
    /// are served by a simpler, faster waiting room, unless the capacity makes its slots. Default `false`.
    const SINGLE_LANE: bool = false;

    /// Whether slots may first have to be made, as by a process that has to be started. Then
    /// [`slot_state`](Self::slot_state), [`on_first_waiters`](Self::on_first_waiters) and [`on_passed`](Self::on_passed)
    /// are called. Default `false`.
    const MAKES_SLOTS: bool = false;

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

    /// How many slots a pool has, busy ones included: a predicted wait follows a change at once. Default 1: it follows as
    /// leases come back.
    fn slots(&self, _pool: PoolId) -> usize {
        1
    }

    /// How many slots of a pool are taken, for reports. Default: all leases that are out, as if there were one pool.
    fn taken(&self, _pool: PoolId) -> usize {
        self.in_use()
    }

    /// The pools that are in service: what others handed over is not expected of them any more, and reports are about
    /// these. `None` (default) if that is not known: then all are that ever handed a slot over.
    fn all_pools(&self) -> Option<PoolSet> {
        None
    }

    /// Returns the state of the slots of a pool. While they are not there, requests wait for them as for busy ones, and how
    /// long says nothing of how fast they are handed over. While they are made, only its own deadline ends a wait;
    /// `max_wait` and a configured target count from then on. Default: they are always there.
    fn slot_state(&self, _pool: PoolId) -> SlotState {
        SlotState::Made
    }

    /// The first waiter of some lane may be another one than before, or there may be none any more. The gate's
    /// `first_waiters` says which there are; by what they wait for, slots can be made. By default nothing is done.
    ///
    /// Called under the gate's lock, so it must not call the gate.
    fn on_first_waiters(&self) {}

    /// A request of this level took a slot as it arrived, and so passed all that wait for other slots. If those are to be
    /// made instead of this one, it may be one of higher priority that it passed. By default nothing is done.
    ///
    /// Called under the gate's lock, so it must not call the gate.
    fn on_passed(&self, _lease: &Self::Lease, _level: Priority) {}

    /// How many leases are out.
    fn in_use(&self) -> usize;

    /// How many slots there are, busy ones included.
    fn limit(&self) -> usize;

    /// How many leases were given so far. May start again from 0 after 2⁴⁰.
    fn leased(&self) -> u64;
}

/// Whether the slots of a pool are there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SlotState {
    /// They are.
    Made,
    /// They are not.
    Unmade,
    /// They will be soon.
    Making {
        /// How far that has come, from 0 to 1, if it is known.
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
