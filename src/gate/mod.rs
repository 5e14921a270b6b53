//! The async shell of the core.
//!
//! A limit whose slots go back to a pool lets whoever polls first take them: a request that has waited for a
//! second loses to one that came just now, and priorities mean nothing. A [`Gate`] hands each slot that comes
//! back to the best waiter, and wakes exactly that one.
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
//! Waits end by Tokio's clock, kept by a timer in each runtime in which requests wait. Outside a Tokio runtime, or in
//! one without a time driver, a gate serves as well, but no wait times out there by itself; for the latter there is one
//! warning in the log.
//!
//! # Cooperation
//!
//! [`Acquire`] takes part in Tokio's cooperative budget: a task that acquires in a loop and always finds a slot free
//! still lets others run.
//!
//! # Panics
//!
//! A [`Capacity`] may be user code. If it panics when it is asked for the slot of a request that waits, that request is
//! woken, and its [`Acquire`] asks again. If the capacity panics then, too, so does this `Acquire`, and the slot goes to
//! the next request. Dropping a [`Permit`] never panics.

mod acquire;
mod chair;
mod detached;
mod full;
#[cfg(all(test, loom))]
mod loom;
mod permit;
mod shared;
mod status;
pub(crate) mod timer;
pub(crate) mod wishes;

use std::fmt;
use std::time::{Duration, Instant};

pub use acquire::Acquire;
pub use chair::{Reservation, Reserve};
pub use detached::{DetachedPermit, InvalidDetachedPermit};
pub use permit::{Permit, UnassignedPermit};
pub use status::GateStatus;

pub use crate::http::PermitBody;

use crate::admit::{Capacity, RejectReason, SlotPool, Ticket, WaitingRoomConfig};
pub(crate) use crate::clock::now;
use crate::sync::Arc;
use shared::Shared;

/// A capacity with a waiting room in front of it. Clones share both.
///
/// A slot can be held by name, across tasks and requests, until somebody releases it:
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
    shared: Arc<Shared<C>>,
}

impl<C: Capacity> Gate<C> {
    /// An open gate.
    #[must_use]
    pub fn new(capacity: C, config: WaitingRoomConfig) -> Self {
        Self {
            shared: Shared::new(capacity, config),
        }
    }

    /// Waits for a slot that serves `demand`.
    ///
    /// Resolves to a [`Permit`], or to the reason why there is none. Takes no lock, reads no clock and
    /// allocates nothing if nobody waits and a slot is free. The future may be moved to another task, and
    /// dropped at any time.
    pub fn acquire(&self, ticket: Ticket, demand: C::Demand) -> Acquire<C> {
        Acquire::new(Arc::clone(&self.shared), ticket, demand)
    }

    /// Takes a slot if nobody waits and one is free, without a lock.
    ///
    /// While anybody waits, for whatever it may be, the answer is `None`: only [`acquire`](Self::acquire)
    /// looks who waits for what.
    #[inline]
    #[must_use]
    pub fn try_acquire(&self, demand: &C::Demand) -> Option<Permit<C>> {
        let lease = self.shared.pass(demand)?;
        Some(Permit::new(Arc::clone(&self.shared), lease, 0))
    }

    /// Takes a slot for a request that is not known yet, under the terms of
    /// [`try_acquire`](Self::try_acquire).
    #[must_use]
    pub fn try_reserve(&self, demand: &C::Demand) -> Option<UnassignedPermit<C>> {
        self.try_acquire(demand).map(UnassignedPermit)
    }

    /// A wish for a chair, to be polled.
    #[must_use]
    pub fn reserve(&self) -> Reserve<C> {
        Reserve::new(self)
    }

    /// What the gate is a gate to.
    #[must_use]
    pub fn capacity(&self) -> &C {
        &self.shared.capacity
    }

    /// How the waiting room is furnished.
    #[must_use]
    pub fn config(&self) -> WaitingRoomConfig {
        self.shared.lock().room.config().clone()
    }

    /// Furnishes the waiting room anew. Everyone who waits moves over in order; those who no longer fit are
    /// answered, the latest of the lowest level first.
    pub fn reconfigure(&self, config: WaitingRoomConfig) {
        let now = now();
        let timers = self.shared.locked(|shared, state, woken| {
            let room = &mut state.room;
            room.reconfigure(&shared.capacity, config, now, woken);
            // Those who wait for a chair may have nothing to wait for any more.
            state.reservation_waiters.tell_all(woken);
            // Waits that had no end may have one now: each waiter arms the timer of its runtime.
            state.room.take_wakers(woken);
            state.timers.rearm_all(state.room.next_timeout())
        });
        if let Some(timers) = timers {
            timers.run(&self.shared);
        }
    }

    /// The capacity's lanes, pools or sections are not what they were, or it has more slots. Everyone who waits
    /// is looked at again; those who no longer fit in their section are answered. O(n log n) in the number of
    /// those who wait.
    pub fn capacity_changed(&self) {
        let now = now();
        self.shared.locked(|shared, state, woken| {
            state.room.on_capacity_changed(&shared.capacity, now, woken);
        });
    }

    /// Lets nobody in any more: everyone who waits and everyone who comes is answered at once. SlotPool that
    /// are out stay valid.
    pub fn close(&self) {
        self.shared
            .locked(|_, state, woken| state.room.close(woken));
        self.shared.tell_if_drained();
    }

    /// Resolves when the gate is closed and the last permit is back, detached ones included.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped and called again at any time.
    pub async fn closed(&self) {
        loop {
            let mut drained = std::pin::pin!(self.shared.drained.notified());
            drained.as_mut().enable();
            // Whoever told us came through the lock: so do we, to see what they saw.
            let state = self.shared.lock();
            let is_drained = self.shared.is_drained();
            drop(state);
            if is_drained {
                return;
            }
            drained.await;
        }
    }

    /// As [`acquire`](Self::acquire), by somebody who has just looked at the clock. The ticket's own arrival
    /// may be any instant that its writer liked.
    pub(crate) fn acquire_at(&self, ticket: Ticket, now: Instant, demand: C::Demand) -> Acquire<C> {
        Acquire::new(Arc::clone(&self.shared), ticket, demand).at(now)
    }

    /// When the wait of a request ends that arrived then and has this deadline of its own, and why.
    pub(crate) fn end_of_wait(
        &self,
        arrival: Instant,
        deadline: Option<Instant>,
    ) -> Option<(Instant, RejectReason<C::Unservable>)> {
        self.shared.lock().room.end_of_wait(arrival, deadline)
    }

    /// How long the next arrival would probably wait. `None` before anything is known.
    #[must_use]
    pub fn estimated_wait(&self) -> Option<Duration> {
        let state = self.shared.lock();
        state.room.estimated_wait(state.room.len() + 1)
    }

    /// How the gate is doing.
    #[must_use]
    pub fn status(&self) -> GateStatus {
        let state = self.shared.lock();
        let room = &state.room;
        let mut stats = room.stats();
        stats.full += self.shared.full.turned_away();
        GateStatus {
            depth: room.len(),
            running: self.shared.capacity.in_use(),
            limit: self.shared.capacity.limit(),
            max_size: room.config().max_size,
            served: self
                .shared
                .capacity
                .leased()
                .saturating_sub(stats.unclaimed),
            stats,
            estimated_wait: room.estimated_wait(room.len() + 1),
            closed: room.is_closed(),
        }
    }

    /// The waiter that is next has made a slot: it goes to whoever is next by now. If nobody waits any more,
    /// there is none.
    pub(crate) fn slot_made(&self) {
        self.shared.locked(|shared, state, woken| {
            let now = state.now_if_it_matters();
            shared.capacity.set_made(true);
            state.room.on_capacity_grown(&shared.capacity, now, woken);
            shared.capacity.set_made(false);
        });
    }

    /// Tells the waiter that is next that it is, even if it has been told before.
    pub(crate) fn tell_head(&self) {
        self.shared.locked(|_, state, _| state.told = None);
    }
}

/// Every chair was taken.
pub(crate) struct NoChair {
    /// How long one more would have waited, if that is known.
    pub(crate) estimated_wait: Option<Duration>,
}

impl Gate<SlotPool> {
    /// Turns one away who comes, if every chair is taken: without a lock, and whatever its ticket would say.
    pub(crate) fn turn_away(&self) -> Option<NoChair> {
        let waiting = self.shared.turn_away()?;
        let estimated_wait = self.shared.full.estimated_wait(waiting + 1);
        Some(NoChair { estimated_wait })
    }

    /// Changes the number of slots. A lower limit takes effect as permits come back; 0 serves nobody until
    /// it is raised again. More than [`SlotPool::MAX`] are as many as that.
    pub fn set_limit(&self, limit: usize) {
        if self.shared.capacity.set_limit(limit) {
            self.shared.on_capacity_grown();
        }
    }
}

impl<C: Capacity> Clone for Gate<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C: Capacity> fmt::Debug for Gate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&self.status()).finish()
    }
}
