//! Without a common shape for "something that can serve a limited number of requests", the scheduler
//! would have to be written once per kind of backend.
//!
//! [`Capacity`] is that shape. The waiting room asks it for slots ([`Capacity::try_lease`]), tells it
//! when one comes back ([`Capacity::release`]), and learns from it which waiting requests ask the same
//! ([`Capacity::lane`]), which slots could serve them ([`Capacity::pools`]) and where they wait
//! ([`Capacity::partition`]).

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::Discipline;

/// Something that can serve a limited number of requests at a time.
///
/// Implementations are shared between threads and are asked both under the gate's lock and outside it, so
/// every method takes `&self` and must neither block nor do I/O. The slot count has to live in atomics
/// with sequentially consistent accesses: together with the gate's count of waiters it is a store-load
/// pair, and a weaker ordering loses wake-ups.
///
/// # Contract
///
/// - A lease that [`try_lease`](Self::try_lease) returned counts until [`release`](Self::release).
/// - Demands of one lane are busy together: while one of them is told [`LeaseError::Busy`], so are all.
/// - Lanes with equal [`pools`](Self::pools) are busy together, too. The waiting room then asks for one
///   of them only (one of each discipline), so that a thousand waiting lanes do not make one release slow.
/// - Sections with equal ids are equal.
/// - A capacity that grows by itself tells its gate (see `Gate::capacity_changed`).
pub trait Capacity: Send + Sync + 'static {
    /// What a request asks for.
    type Demand: Send + Sync + 'static;
    /// One slot, taken. It names what was taken.
    type Lease: Send + Sync + 'static;
    /// What waiting requests share that ask the same of this capacity.
    type Lane: Clone + Eq + Hash + Send + Sync + 'static;
    /// Why a demand can never be served.
    type Unservable: Clone + fmt::Debug + fmt::Display + Send + Sync + 'static;

    /// Whether all demands share one lane, one set of pools and the default [`Partition`]. Then a configuration that asks
    /// for nothing special is served by a simpler, faster room. Default `false`.
    const SINGLE_LANE: bool = false;

    /// Takes a slot for `demand`, if one is free.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Busy`] if waiting helps, [`LeaseError::Unservable`] if it does not.
    fn try_lease(&self, demand: &Self::Demand)
    -> Result<Self::Lease, LeaseError<Self::Unservable>>;

    /// Gives a slot back and says which pool it belongs to.
    fn release(&self, lease: Self::Lease) -> PoolId;

    /// The pool that a lease which is out belongs to.
    fn pool(&self, lease: &Self::Lease) -> PoolId;

    /// The lane in which `demand` waits.
    fn lane(&self, demand: &Self::Demand) -> Self::Lane;

    /// The pools whose slots could serve `lane`, in ascending order.
    ///
    /// Asked when a lane gets its first waiter, and again after the gate was told that the capacity
    /// changed.
    fn pools(&self, lane: &Self::Lane) -> PoolSet;

    /// The section of the waiting room in which `lane` waits. Default: the one that is furnished as the room
    /// is.
    ///
    /// Asked when [`pools`](Self::pools) is.
    fn partition(&self, _lane: &Self::Lane) -> Partition {
        Partition::default()
    }

    /// How many leases are out.
    fn in_use(&self) -> usize;

    /// How many slots there are, busy ones included.
    fn limit(&self) -> usize;

    /// How many leases were ever given. May start again from 0 after 2⁴⁰.
    fn leased(&self) -> u64;
}

/// Why [`Capacity::try_lease`] gave no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseError<N> {
    /// Every slot that could serve the demand is taken.
    Busy,
    /// No slot will ever serve the demand.
    Unservable(N),
}

/// A part of the waiting room with chairs and an order of its own: one model's, one user's.
///
/// The room's own chairs bound all sections together. By default a section has no bound of its own, and the
/// room's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Partition {
    /// Which one. Lanes that name the same share its chairs.
    pub id: u32,
    /// How many may wait in it. `None`: as many as the room has chairs for. 0: nobody.
    pub max_size: Option<usize>,
    /// Who goes next among equals in one of its lanes. `None`: as in the room.
    pub discipline: Option<Discipline>,
}

/// A set of interchangeable slots, numbered densely from 0: a service, an endpoint.
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
