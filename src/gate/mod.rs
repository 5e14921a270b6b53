//! A semaphore with a bounded, ordered queue, which wraps the waiting room of the core in futures.
//!
//! A concurrency limit that puts slots back into a pool gives each slot to the first task that polls. A request that
//! has waited for a second then loses to a request that has just arrived, and priorities have no effect. A [`Gate`]
//! hands each slot that comes back to the best waiter, and wakes exactly that waiter.
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
//! Priority levels are strict unless they have weights, so a waiter of a higher level goes first. Within a level and
//! lane, waiters are served exactly in the order of the discipline.
//!
//! # Time
//!
//! Waits end by Tokio's clock, with one timer in each runtime in which requests wait. A gate also works outside a Tokio
//! runtime, or in a runtime without a time driver, but waits do not time out by themselves there. In a runtime without
//! a time driver, the gate logs one warning.
//!
//! # Cooperation
//!
//! [`Acquire`] takes part in Tokio's cooperative budget. A task that acquires in a loop and always finds a slot free
//! still lets other tasks run.
//!
//! # Panics
//!
//! A [`Capacity`] may be user code. If a method of it panics, the gate logs an error and acts as if the slots were
//! busy. So the panic does not reach any request, and all slots are kept. Dropping a [`Permit`] never panics.

mod acquire;
mod charge;
mod detached;
mod fast_reject;
mod held_slot;
mod inner_ready;
#[cfg(all(test, loom))]
mod loom;
mod origin;
mod permit;
mod permit_extension;
pub(crate) mod reserve;
#[cfg_attr(
    not(feature = "route"),
    expect(dead_code, reason = "routers alone tell which slots wait for clients")
)]
mod stall;
mod state;
mod status;
pub(crate) mod timer;
mod waiting_word;
pub(crate) mod with_lock;

use std::fmt;
use std::time::{Duration, Instant};

pub use acquire::Acquire;
pub(crate) use acquire::QueuePlace;
#[cfg(feature = "route")]
pub(crate) use charge::Charger;
pub use detached::{DetachedPermit, InvalidDetachedPermit};
pub use held_slot::HeldSlot;
pub use permit::{BodyPermit, Permit, UnassignedPermit};
pub use permit_extension::PermitExtension;
pub use reserve::{Reservation, Reserve};
pub(crate) use stall::ClientStall;
pub use status::GateStatus;

pub use crate::admit::{LaneHead, LevelStatus, WaitingRequest};

pub use crate::http::PermitBody;

use crate::admit::{
    Capacity, PoolId, PoolSet, RejectReason, ServiceSample, SlotPool, SlotUsage, Ticket,
    WaitingRoomConfig, ask,
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
/// A caller can hold a slot by name, across tasks and requests, until it releases the slot:
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
    /// Creates an open gate with this capacity and this configuration of the waiting room.
    #[must_use]
    pub fn new(capacity: C, config: WaitingRoomConfig) -> Self {
        Self {
            origin: Origin::new(Shared::new(capacity, config, None)),
        }
    }

    /// Waits for a slot that serves `demand`.
    ///
    /// Resolves to a [`Permit`], or to the reason for a rejection. If a slot is free and the waiting room is empty,
    /// this takes its slot without a lock, a read of the clock or an allocation. The future may be moved to another
    /// task, and dropped at any time.
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

    /// Takes a slot without a lock, if a slot is free and the waiting room is empty.
    ///
    /// Returns `None` while any request waits, even for another slot, because only [`acquire`](Self::acquire) compares
    /// the demands of waiters. Also returns `None` if slots are reserved for some levels or if tenants have a limit,
    /// because a call without a ticket cannot name its level or tenant. Under [`Fair`](crate::Discipline::Fair), no tenant pays
    /// for the slot.
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

    /// Waits until a place in the waiting room is free, and reserves it for
    /// [`Acquire::with_reservation`].
    ///
    /// Resolves to `None` if the gate is closed or the size of its waiting room is 0, because waiting is futile then.
    ///
    /// Callers do not queue for places: the first one that polls when a place is free gets it. So a caller that has
    /// asked and is idle does not hold up the others. The future may be dropped at any time.
    ///
    /// ```
    /// use tower_triage::{Gate, Priority, SlotPool, WaitingRoomConfig};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let gate = Gate::new(SlotPool::new(1), WaitingRoomConfig::default().max_size(1));
    /// let reservation = gate.reserve().await.expect("the gate is open");
    /// let permit = gate.acquire_slot(Priority::HIGHEST).with_reservation(reservation).await;
    /// assert!(permit.is_ok());
    /// # }
    /// ```
    pub fn reserve(&self) -> Reserve<C> {
        Reserve::new(self)
    }

    /// Returns the capacity from which this gate takes its slots.
    #[must_use]
    pub fn capacity(&self) -> &C {
        &self.origin.capacity
    }

    /// Returns a copy of the waiting room's configuration.
    #[must_use]
    pub fn config(&self) -> WaitingRoomConfig {
        self.origin.lock().room.config().clone()
    }

    /// Changes the waiting room's configuration.
    ///
    /// Waiters keep their order. If the new room is too small for all of them, the gate rejects the latest waiter of
    /// the lowest level first, or of the flow that is farthest above its share.
    pub fn reconfigure(&self, config: WaitingRoomConfig) {
        let now = now();
        let timers = self.origin.with_lock(|shared, state, wakes| {
            let room = &mut state.room;
            // Moved first, while the levels still have the names under which these rejections were counted.
            shared.full.hand_over(room);
            let lasting = Flags::CLOSED | Flags::FROM_INNER;
            state.flags = state.flags & lasting | Flags::of(&config);
            room.reconfigure(&shared.capacity, config, now, wakes);
            // The new room may have a size of 0, so callers that wait to reserve a place have to look again.
            state.reservation_waiters.wake_all(wakes);
            // Waits without an end may have one now, so each waiter is woken to arm the timer of its runtime.
            state.room.take_wakers(wakes);
            state.timers.rearm_all(state.room.next_timeout())
        });
        if let Some(timers) = timers {
            timers.run(self.shared());
        }
    }

    /// Tells the gate that the capacity's lanes, pools or partitions have changed, or that it has more slots.
    ///
    /// The gate looks at all waiters again, and rejects those that do not fit in their partition any more. Takes
    /// O(n log n) time in the number of waiters.
    pub fn capacity_changed(&self) {
        let now = now();
        self.origin.with_lock(|shared, state, wakes| {
            state.room.on_capacity_changed(&shared.capacity, now, wakes);
        });
    }

    /// Returns the head of each lane, in arbitrary order.
    ///
    /// A capacity that serves [on demand](Capacity::on_demand) uses the heads to decide which slots to start.
    #[must_use]
    pub fn lane_heads(&self) -> Vec<LaneHead<C::Lane>> {
        self.origin.lock().room.lane_heads()
    }

    /// Returns each set of pools that has waiters, with the number of waiters that those pools can serve.
    ///
    /// A capacity that gets its slots from elsewhere decides by these numbers. Waiters whose tenant is at its limit are
    /// left out. The lock is taken only while a request waits.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<(PoolSet, usize)> {
        match self.has_waiters() {
            true => self.origin.lock().room.waiting_for(),
            false => Vec::new(),
        }
    }

    /// Calls `visit` for each waiter, in arbitrary order, for reports about the tenants, demands and ages of the waiters.
    /// Takes O(n) time.
    ///
    /// The gate is locked meanwhile, so `visit` should be quick. It must not call the gate, because that call would wait
    /// for the lock forever.
    ///
    /// ```
    /// use std::time::Instant;
    /// use tower_triage::gate::Gate;
    /// use tower_triage::{Priority, SlotPool, Ticket, WaitingRoomConfig};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let gate = Gate::new(SlotPool::new(0), WaitingRoomConfig::default());
    /// let ticket = Ticket::new(Priority::HIGHEST, Instant::now()).tenant("team-a".into());
    /// let mut waiter = tokio::spawn(gate.acquire(ticket, ()));
    /// tokio::task::yield_now().await;
    ///
    /// let mut tenants = Vec::new();
    /// gate.for_each_waiter(|waiter| tenants.push(waiter.tenant.to_string()));
    /// assert_eq!(tenants, ["team-a"]);
    /// # waiter.abort();
    /// # }
    /// ```
    pub fn for_each_waiter(&self, visit: impl FnMut(WaitingRequest<'_, C::Demand>)) {
        let state = self.origin.lock();
        state.room.for_each_waiter(now(), visit);
    }

    /// Closes the gate, which rejects all waiters and all later arrivals at once. Permits that are out stay valid.
    pub fn close(&self) {
        self.origin.with_lock(|_, state, wakes| {
            state.flags |= Flags::CLOSED;
            state.room.close(wakes);
        });
        self.origin.notify_if_drained();
    }

    /// Resolves when the gate is closed and the last permit is back, detached permits included.
    ///
    /// # Cancel safety
    ///
    /// This future may be dropped, and the method called again, at any time.
    pub async fn closed(&self) {
        loop {
            let mut drained = std::pin::pin!(self.origin.drained.notified());
            drained.as_mut().enable(); // enabled before the check, so that every notification is seen
            // The lock that the notifier held makes its changes visible here.
            let state = self.origin.lock();
            let is_drained = self.origin.is_drained();
            drop(state);
            if is_drained {
                return;
            }
            drained.await;
        }
    }

    /// Waits for a slot as [`acquire`](Self::acquire) does, but takes the time `now` from the caller, which has just
    /// read the clock. The ticket's own arrival may be any instant.
    pub(crate) fn acquire_at(&self, ticket: Ticket, now: Instant, demand: C::Demand) -> Acquire<C> {
        Acquire::new(Arc::clone(&self.origin), ticket, demand).at(now)
    }

    /// Records that the answer to a request that waited has begun.
    pub(crate) fn on_answered(&self, served: &ServiceSample) {
        // A plain lock will do, because this changes only state that is read under the lock.
        let mut state = self.origin.lock();
        let now = now();
        state.room.on_answered(served, now);
    }

    /// Returns the end of a request's wait and the reason with which it is rejected then. The request has this arrival
    /// and deadline, and already holds its slot.
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

    /// Returns the time that the next arrival would probably wait, which is 0 while a slot is free and the waiting room
    /// is empty. Returns `None` until the gate has measured how fast slots come back.
    #[must_use]
    pub fn estimated_wait(&self) -> Option<Duration> {
        let mut state = self.origin.lock();
        let now = now();
        state.room.next_wait(&self.origin.capacity, now)
    }

    /// Returns the gate's numbers at this instant.
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
            slots_per_second: room.departure_rate(),
            closed: room.is_closed(),
            levels,
        }
    }

    /// Returns `true` if tenants have shares.
    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        self.origin.is_fair()
    }

    /// Returns `true` if the gate is closed, without the lock.
    pub(crate) fn is_closed(&self) -> bool {
        self.origin.waiting_word().has(Flags::CLOSED)
    }

    /// Returns the number of requests that run or wait, without the lock.
    pub(crate) fn load(&self) -> usize {
        self.origin.capacity.usage().in_use + self.origin.waiting_word().waiting()
    }

    /// Returns `true` if any request waits, without the lock.
    pub(crate) fn has_waiters(&self) -> bool {
        self.origin.waiting_word().waiting() > 0
    }

    /// Returns `true` if one more request may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.origin.lock().room.has_room()
    }

    /// Rejects a request without the lock if the waiting room is full for its `level`, whatever else its ticket would
    /// say. This is exact only if all waiters ask for the same slots. Otherwise a slot may be free that none of them can use.
    ///
    /// `level` returns the level in which the request would wait, promotions included, or `None` if it is not known.
    pub(crate) fn fast_reject(&self, level: impl FnOnce() -> Option<u8>) -> Option<RoomFull> {
        self.origin.fast_reject(level)
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

    /// Returns the bits that the gate's layer has set.
    #[inline]
    pub(crate) fn layer_bits(&self) -> u64 {
        self.origin.layer_bits()
    }

    /// Sets the bits that a layer keeps at its gate for the holders of permits.
    pub(crate) fn set_layer_bits(&self, bits: u64) {
        self.origin.set_layer_bits(bits);
    }

    /// Returns `true` if slots come from the inner service's readiness.
    #[inline]
    pub(crate) fn is_from_inner(&self) -> bool {
        self.origin.from_inner
    }

    /// Gives one slot to the current head of the waiting room, because the inner service is ready for one call.
    pub(crate) fn on_inner_ready(&self) {
        self.origin.with_lock(|shared, state, wakes| {
            let now = now();
            if let Some(inner_ready) = &mut state.inner_ready {
                inner_ready.offer(&shared.capacity, &mut state.room, now, wakes);
            }
        });
    }

    /// Returns the claim of the request that was just given a slot from the inner service's readiness.
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
    /// Creates a gate whose slots come from an inner service's readiness, one each time that the service is ready.
    pub(crate) fn from_inner(config: WaitingRoomConfig) -> Self {
        let inner_ready = InnerReady::new(SlotPool::set_limit);
        Self {
            origin: Origin::new(Shared::new(SlotPool::new(0), config, Some(inner_ready))),
        }
    }

    /// Rejects a request without the lock if every slot is busy. For layers whose requests may not wait.
    ///
    /// Returns `None` if the lock is needed: while a request waits, as a patient one may, and while the gate is closed,
    /// or reserves slots, or limits tenants. Also returns `None` if a slot has become free, which the request then gets
    /// under the lock.
    pub(crate) fn fast_shed(&self) -> Option<RoomFull> {
        let SlotUsage { slots, in_use } = self.capacity().usage();
        if in_use < slots || !self.origin.waiting_word().is_clear() {
            return None;
        }
        self.origin.full.count(None); // shedding reads no level
        Some(RoomFull {
            estimated_wait: None,
        })
    }

    /// Changes the number of slots, up to 1,048,575 ([`SlotPool::MAX`]). A larger number is lowered to that.
    ///
    /// A lower limit takes effect as permits come back. With a limit of 0, requests are served again only once the
    /// limit is raised.
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
