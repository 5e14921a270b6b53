//! A semaphore with a bounded, ordered queue: the async shell of the core.
//!
//! With a limit that puts slots back into a pool, the first task that polls gets one: a request that has waited for a
//! second loses to one that has just arrived, and priorities have no effect. A [`Gate`] hands each slot that comes back
//! to the best waiter, and wakes exactly that one.
//!
//! ```
//! use std::time::Instant;
//! use tower_triage::gate::Gate;
//! use tower_triage::{SlotPool, Priority, WaitingRoomConfig, Ticket};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let gate = Gate::new(SlotPool::new(1), WaitingRoomConfig::default());
//! let ticket = || Ticket::new(Priority::HIGHEST, Instant::now());
//! let first = gate.acquire(ticket(), ()).await.unwrap();
//! let second = tokio::spawn(gate.acquire(ticket(), ()));
//! drop(first);
//! let second = second.await.unwrap().unwrap();
//! assert_eq!(gate.status().running, 1);
//! # drop(second);
//! # }
//! ```
//!
//! # Fairness
//!
//! Strict between priority levels; within a level and lane exactly the discipline's order.
//!
//! # Time
//!
//! Waits end by Tokio's clock, with one timer in each runtime in which requests wait. Outside a Tokio runtime, or in one
//! without a time driver, a gate works as well, but no wait times out there by itself; for the latter there is one
//! warning in the log.
//!
//! # Cooperation
//!
//! [`Acquire`] takes part in Tokio's cooperative budget: a task that acquires in a loop and always finds a slot free
//! still lets others run.
//!
//! # Panics
//!
//! A [`Capacity`] may be user code. One that panics is taken to answer that its slots are busy, and is logged as an error: no
//! panic of it reaches a request, and no slot is lost. Dropping a [`Permit`] never panics.

mod acquire;
mod charge;
mod detached;
mod fast_reject;
mod inner_ready;
#[cfg(all(test, loom))]
mod loom;
mod origin;
mod permit;
mod permit_extension;
pub(crate) mod reserve;
mod state;
mod status;
pub(crate) mod timer;
mod waiting_word;
pub(crate) mod with_lock;

#[cfg(feature = "swap")]
use std::collections::HashMap;
use std::fmt;
#[cfg(feature = "swap")]
use std::hash::Hash;
use std::time::{Duration, Instant};

pub use acquire::Acquire;
pub(crate) use acquire::QueuePlace;
#[cfg(feature = "route")]
pub(crate) use charge::Charger;
pub use detached::{DetachedPermit, InvalidDetachedPermit};
pub use permit::{BodyPermit, Permit, UnassignedPermit};
pub use permit_extension::PermitExtension;
pub use reserve::{Reservation, Reserve};
pub use status::GateStatus;

pub use crate::admit::{LaneHead, LevelStatus};

pub use crate::http::PermitBody;

use crate::admit::{
    Capacity, PoolId, PoolSet, RejectReason, ServiceSample, SlotPool, Ticket, WaitingRoomConfig,
    ask,
};
pub(crate) use crate::clock::now;
use crate::sync::Arc;
pub(crate) use fast_reject::RoomFull;
use inner_ready::InnerReady;
pub(crate) use inner_ready::ReadinessClaim;
use origin::Origin;
pub(crate) use state::Shared;
use waiting_word::Flags;
use with_lock::WithLock;

/// A semaphore with a bounded, ordered queue: a capacity with a waiting room in front of it. Clones share both.
///
/// A slot can be held by name, across tasks and requests, until it is released:
///
/// ```
/// use std::time::Instant;
/// use tower_triage::gate::DetachedPermit;
/// use tower_triage::{Gate, SlotPool, Priority, Ticket, WaitingRoomConfig};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::new(SlotPool::new(1), WaitingRoomConfig::default().max_size(20));
/// let ticket = Ticket::new(Priority::HIGHEST, Instant::now()).id(42);
/// let name = gate.acquire(ticket, ()).await?.detach().to_string();
/// assert_eq!(gate.status().running, 1);
///
/// let permit: DetachedPermit = name.parse()?;
/// assert_eq!(permit.request(), 42);
/// assert!(gate.release(&permit));
/// assert_eq!(gate.status().running, 0);
/// # Ok(())
/// # }
/// ```
pub struct Gate<C: Capacity> {
    origin: Arc<Origin<C>>,
}

impl<C: Capacity> Gate<C> {
    /// An open gate.
    #[must_use]
    pub fn new(capacity: C, config: WaitingRoomConfig) -> Self {
        Self {
            origin: Origin::new(Shared::new(capacity, config, None)),
        }
    }

    /// Waits for a slot that serves `demand`.
    ///
    /// Resolves to a [`Permit`], or to the reason why there is none. Takes no lock, reads no clock and allocates
    /// nothing if no request waits and a slot is free. The future may be moved to another task, and dropped at any
    /// time.
    pub fn acquire(&self, ticket: impl Into<Ticket>, demand: C::Demand) -> Acquire<C> {
        Acquire::new(Arc::clone(&self.origin), ticket.into(), demand)
    }

    /// Waits for a slot of a capacity that has only one kind of demand, as [`acquire`](Self::acquire) does.
    ///
    /// ```
    /// use tower_triage::{Gate, Priority, SlotPool, WaitingRoomConfig};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let gate = Gate::new(SlotPool::new(1), WaitingRoomConfig::default());
    /// let permit = gate.acquire_slot(Priority::HIGHEST).await.unwrap();
    /// assert_eq!(gate.status().running, 1);
    /// # drop(permit);
    /// # }
    /// ```
    pub fn acquire_slot(&self, ticket: impl Into<Ticket>) -> Acquire<C>
    where
        C: Capacity<Demand = ()>,
    {
        self.acquire(ticket, ())
    }

    /// Takes a slot if no request waits and one is free, without a lock.
    ///
    /// While any request waits, for whatever slot, this is `None`: only [`acquire`](Self::acquire) looks at what each
    /// of them waits for. It is `None`, too, where slots are kept for some levels or tenants have a limit, because there is
    /// no ticket that names a level or a tenant.
    #[inline]
    #[must_use]
    pub fn try_acquire(&self, demand: &C::Demand) -> Option<Permit<C>> {
        let lease = self.origin.try_fast_path(demand)?;
        Some(Permit::new(Arc::clone(&self.origin), lease, 0))
    }

    /// Takes a slot for a request that is not known yet, under the conditions of [`try_acquire`](Self::try_acquire).
    #[must_use]
    pub fn try_reserve(&self, demand: &C::Demand) -> Option<UnassignedPermit<C>> {
        self.try_acquire(demand).map(UnassignedPermit)
    }

    /// Reserves a place in the waiting room, to be polled with [`Reserve::poll_reserve`].
    #[must_use]
    pub fn reserve(&self) -> Reserve<C> {
        Reserve::new(self)
    }

    /// The capacity that slots are taken from.
    #[must_use]
    pub fn capacity(&self) -> &C {
        &self.origin.capacity
    }

    /// The waiting room's configuration.
    #[must_use]
    pub fn config(&self) -> WaitingRoomConfig {
        self.origin.lock().room.config().clone()
    }

    /// Changes the waiting room's configuration. Waiters keep their order; those that no longer fit are rejected, the
    /// latest of the lowest level first, or of the flow farthest above its share.
    pub fn reconfigure(&self, config: WaitingRoomConfig) {
        let now = now();
        let timers = self.origin.with_lock(|shared, state, wakes| {
            let room = &mut state.room;
            // While the levels have the names under which they were counted.
            shared.full.hand_over(room);
            let lasting = Flags::CLOSED | Flags::FROM_INNER;
            state.flags = state.flags & lasting | Flags::of(&config);
            room.reconfigure(&shared.capacity, config, now, wakes);
            // There may be no place to reserve any more.
            state.reservation_waiters.wake_all(wakes);
            // Waits that had no end may have one now: each waiter arms the timer of its runtime.
            state.room.take_wakers(wakes);
            state.timers.rearm_all(state.room.next_timeout())
        });
        if let Some(timers) = timers {
            timers.run(self.shared());
        }
    }

    /// To be called when the capacity's lanes, pools or partitions have changed, or it has more slots. All waiters are
    /// looked at again; those that no longer fit in their partition are rejected. O(n log n) in the number of waiters.
    pub fn capacity_changed(&self) {
        let now = now();
        self.origin.with_lock(|shared, state, wakes| {
            state.room.on_capacity_changed(&shared.capacity, now, wakes);
        });
    }

    /// Returns the head of each lane, in no particular order: a capacity that serves [on demand](Capacity::on_demand) decides
    /// by them which slots to start.
    #[must_use]
    pub fn lane_heads(&self) -> Vec<LaneHead<C::Lane>> {
        self.origin.lock().room.lane_heads()
    }

    /// Returns the number of waiters that the same pools can serve, for each set of pools that has waiters: what a capacity
    /// that gets its slots from elsewhere decides by. Waiters whose tenant is at its limit are not counted.
    /// Without the lock if no request waits.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<(PoolSet, usize)> {
        match self.has_waiters() {
            true => self.origin.lock().room.waiting_for(),
            false => Vec::new(),
        }
    }

    /// How many requests wait for each thing, as `key` names it. O(n).
    #[cfg(feature = "swap")]
    pub(crate) fn count_waiters<K: Eq + Hash>(
        &self,
        key: impl Fn(&C::Demand) -> K,
    ) -> HashMap<K, usize> {
        self.origin.lock().room.count_waiters(key)
    }

    /// Closes the gate: all waiters and all later arrivals are rejected at once. Permits that are out stay valid.
    pub fn close(&self) {
        self.origin.with_lock(|_, state, wakes| {
            state.flags |= Flags::CLOSED;
            state.room.close(wakes);
        });
        self.origin.notify_if_drained();
    }

    /// Resolves when the gate is closed and the last permit is back, detached ones included.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped and called again at any time.
    pub async fn closed(&self) {
        loop {
            let mut drained = std::pin::pin!(self.origin.drained.notified());
            drained.as_mut().enable(); // before the look, to miss no notification
            // Takes the lock that the notifier took, to see what it saw.
            let state = self.origin.lock();
            let is_drained = self.origin.is_drained();
            drop(state);
            if is_drained {
                return;
            }
            drained.await;
        }
    }

    /// As [`acquire`](Self::acquire), where the clock was read just before. The ticket's own arrival may be any
    /// instant.
    pub(crate) fn acquire_at(&self, ticket: Ticket, now: Instant, demand: C::Demand) -> Acquire<C> {
        Acquire::new(Arc::clone(&self.origin), ticket, demand).at(now)
    }

    /// The answer to a request that waited begins.
    pub(crate) fn on_answered(&self, served: &ServiceSample) {
        // Nothing that is read without the lock changes.
        let mut state = self.origin.lock();
        let now = now();
        state.room.on_answered(served, now);
    }

    /// Returns when the wait of a request with this arrival and deadline ends that has its slot, and why.
    pub(crate) fn end_of_wait(
        &self,
        arrival: Instant,
        deadline: Option<Instant>,
        is_patient: bool,
        permit: &Permit<C>,
    ) -> Option<(Instant, RejectReason<C::Unservable>)> {
        let pool = ask::pool(self.capacity(), permit.lease()).unwrap_or(PoolId(0));
        let now = now();
        let state = self.origin.lock();
        state
            .room
            .end_of_wait(arrival, deadline, is_patient, pool, now)
    }

    /// Returns the time that the next arrival would probably wait: 0 while no request waits and a slot is free. `None`
    /// before anything is known.
    #[must_use]
    pub fn estimated_wait(&self) -> Option<Duration> {
        let mut state = self.origin.lock();
        let now = now();
        state.room.next_wait(&self.origin.capacity, now)
    }

    /// The gate's numbers at this instant.
    #[must_use]
    pub fn status(&self) -> GateStatus {
        let mut state = self.origin.lock();
        let now = now();
        let mut levels = state.room.levels(&self.origin.capacity, now);
        let estimated_wait = state.room.next_wait(&self.origin.capacity, now);
        let room = &state.room;
        let mut stats = room.stats();
        stats.full += self.origin.full.rejected();
        for (level, status) in levels.iter_mut().enumerate() {
            status.stats.full += self.origin.full.rejected_at(level);
        }
        let usage = self.origin.capacity.usage();
        GateStatus {
            depth: room.len(),
            running: usage.in_use,
            limit: usage.slots,
            max_size: room.config().max_size,
            served: self
                .origin
                .capacity
                .leased()
                .saturating_sub(stats.unclaimed),
            stats,
            estimated_wait,
            closed: room.is_closed(),
            levels,
        }
    }

    /// Whether tenants have shares.
    #[cfg(feature = "route")]
    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        self.origin.is_fair()
    }

    /// How many requests run and wait, without the lock.
    #[cfg(feature = "load")]
    pub(crate) fn load(&self) -> usize {
        self.origin.capacity.usage().in_use + self.origin.waiting_word().waiting()
    }

    /// Whether any request waits, without the lock.
    pub(crate) fn has_waiters(&self) -> bool {
        self.origin.waiting_word().waiting() > 0
    }

    /// Whether one more request may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.origin.lock().room.has_room()
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared<C>> {
        &self.origin
    }

    /// Returns `true` if requests may bring a slot of this gate along.
    #[inline]
    pub(crate) fn expects_extensions(&self) -> bool {
        self.origin.expects_extensions()
    }

    /// Whether slots come from the inner service's readiness.
    #[inline]
    pub(crate) fn is_from_inner(&self) -> bool {
        self.origin.from_inner
    }

    /// The inner service is ready for one call: one slot goes to the waiter that is the head by now.
    pub(crate) fn on_inner_ready(&self) {
        self.origin.with_lock(|shared, state, wakes| {
            let now = now();
            if let Some(inner_ready) = &mut state.inner_ready {
                inner_ready.offer(&shared.capacity, &mut state.room, now, wakes);
            }
        });
    }

    /// The claim of the request that was just given a slot from the inner service's readiness.
    pub(crate) fn claim_readiness(&self) -> Option<ReadinessClaim<C>> {
        self.is_from_inner()
            .then(|| ReadinessClaim::new(Arc::clone(self.shared())))
    }

    /// Wakes the head to poll the inner service, even if it was notified before.
    pub(crate) fn notify_head(&self) {
        self.origin.with_lock(|_, state, _| {
            if let Some(inner_ready) = &mut state.inner_ready {
                inner_ready.forget_notified();
            }
        });
    }
}

impl Gate<SlotPool> {
    /// A gate with slots that come from an inner service's readiness, one for each time that it is ready.
    pub(crate) fn from_inner(config: WaitingRoomConfig) -> Self {
        let inner_ready = InnerReady::new(SlotPool::set_limit);
        Self {
            origin: Origin::new(Shared::new(SlotPool::new(0), config, Some(inner_ready))),
        }
    }

    /// Rejects a request without the lock, if the waiting room is full for its `level`, whatever else its ticket would say.
    /// The level is that in which it would wait, promotions included; `None`: not known.
    pub(crate) fn fast_reject(&self, level: impl FnOnce() -> Option<u8>) -> Option<RoomFull> {
        self.origin.fast_reject(level)
    }

    /// Changes the number of slots. A lower limit takes effect as permits come back; with 0, no request is served
    /// until it is raised again. A limit above [`SlotPool::MAX`] counts as that.
    pub fn set_limit(&self, limit: usize) {
        if self.origin.capacity.set_limit(limit) {
            self.origin.on_capacity_grown();
        }
    }
}

impl<C: Capacity> Clone for Gate<C> {
    fn clone(&self) -> Self {
        Self {
            origin: Arc::clone(&self.origin),
        }
    }
}

impl<C: Capacity> fmt::Debug for Gate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&self.status()).finish()
    }
}
