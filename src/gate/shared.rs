//! What all handles of a gate share, and the rules of its one lock.
//!
//! The waiting room is behind `state`. Beside it stand the capacity's slots and `waiting`, which are atomics:
//! a request that finds nobody waiting and a slot free passes without the lock, and a release that finds
//! nobody waiting returns without it.
//!
//! - `waiting` is written only under the lock. It is 0 only while nobody waits and the gate is open; and never
//!   where each slot is made by the waiter who is next, so that all go through the lock.
//! - An arrival raises `waiting` before it looks for a slot; a release gives the slot back before it looks at
//!   `waiting`. Both are sequentially consistent, so at least one of the two sees the other: either the
//!   arrival finds the slot, or the release comes through the lock and finds the arrival.
//! - Where all who wait ask the same, a request that finds the mark of a full room is turned away without the
//!   lock. The mark goes up and down with `waiting`, in the same write.
//! - A request that passes looks at `waiting` again once it has its slot, so that it neither takes the slot of
//!   one who came in between nor enters a gate that was closed in between.
//! - Nothing that belongs to a caller runs under the lock: wakers are cloned before it is taken, and woken or
//!   dropped after it is released, as demands are. Either can run a destructor that releases a permit of this same
//!   gate.
//! - A lease is released outside the lock, unless the capacity itself is being asked.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;
use std::time::Instant;

use super::detached::Detached;
use super::full::Full;
use super::timer::{RuntimeId, TimerHost, TimerRequest, Timers};
use super::wishes::ReservationWaiters;
use crate::admit::{
    AdmitOutcome, Arrival, Capacity, PoolId, Ticket, WaiterId, WaitingRoom, WaitingRoomConfig,
    WakeList,
};
use crate::clock;
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, SeqCst};

pub(crate) struct Shared<C: Capacity> {
    pub(crate) capacity: C,
    /// How many wait, and whether the gate is closed, every chair is taken, or everyone has to wait for their
    /// turn.
    waiting: AtomicU64,
    pub(crate) full: Full,
    /// Tells this gate's detached permits from those of others.
    pub(crate) nonce: u64,
    state: Mutex<State<C>>,
    pub(crate) drained: tokio::sync::Notify,
}

pub(crate) struct State<C: Capacity> {
    pub(crate) room: WaitingRoom<C, Waker>,
    pub(crate) detached: HashMap<u64, Detached<C::Lease>>,
    /// The last detached permit's number.
    pub(crate) serial: u64,
    /// Who waits for a chair rather than for a slot.
    pub(crate) reservation_waiters: ReservationWaiters,
    /// Who was last told to be the head, where heads make slots. Nobody while another has the turn.
    pub(crate) told: Option<WaiterId>,
    pub(crate) timers: Timers,
}

/// A waker that is not needed, and a demand.
type Leftovers<C> = (Waker, Option<<C as Capacity>::Demand>);

/// Set in `waiting` while the gate is closed, so that nobody passes without the lock.
const CLOSED: u64 = 1 << 63;
/// Set in `waiting` where heads make slots.
const BY_TURN: u64 = 1 << 62;
/// Set in `waiting` beside the number of those who do, while the notice of a [`Full`] room is up.
const FULL: u64 = 1 << 61;

/// A number from the system's randomness, which no program can seed as it can seed a generator.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl<C: Capacity> Shared<C> {
    pub(crate) fn new(capacity: C, config: WaitingRoomConfig) -> Arc<Self> {
        let waiting = if capacity.made_by_head() { BY_TURN } else { 0 };
        let epoch = clock::now();
        Arc::new(Self {
            capacity,
            waiting: AtomicU64::new(waiting),
            full: Full::new(epoch),
            nonce: random(),
            state: Mutex::new(State {
                room: WaitingRoom::new(config, epoch),
                detached: HashMap::new(),
                serial: 0,
                reservation_waiters: ReservationWaiters::default(),
                told: None,
                timers: Timers::default(),
            }),
            drained: tokio::sync::Notify::new(),
        })
    }

    /// The way past the lock: a slot, if nobody waits and one is free.
    #[inline]
    pub(crate) fn pass(self: &Arc<Self>, demand: &C::Demand) -> Option<C::Lease> {
        if self.waiting.load(SeqCst) != 0 {
            return None;
        }
        let lease = self.capacity.try_lease(demand).ok()?;
        if self.waiting.load(SeqCst) != 0 {
            return self.yield_to_others(lease);
        }
        Some(lease)
    }

    /// Somebody came, or the gate was closed, between the look and the lease: the slot is not for one who
    /// passes, unless nobody waits after all.
    #[cold]
    #[inline(never)]
    fn yield_to_others(self: &Arc<Self>, lease: C::Lease) -> Option<C::Lease> {
        let lease = self.locked(|shared, state, woken| {
            if state.room.is_empty() && !state.room.is_closed() {
                return Some(lease);
            }
            let now = state.now_if_it_matters();
            state
                .room
                .on_lease_returned(&shared.capacity, lease, now, woken);
            None
        });
        self.tell_if_drained();
        lease
    }

    /// The way out without the lock: how many wait, if there is no chair for anybody who comes.
    ///
    /// Exact only where all who wait ask the same: elsewhere a slot may be free that none of them can use.
    pub(crate) fn turn_away(&self) -> Option<usize> {
        let waiting = self.waiting.load(SeqCst);
        if waiting & FULL == 0 || !self.full.holds() {
            return None;
        }
        self.full.turn_away();
        Some((waiting & !(FULL | BY_TURN)) as usize)
    }

    /// The way through the lock. A waiter is told by `waker`. What is left over unless the request waits is the
    /// caller's, to be dropped when the outcome is safe.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        ticket: Ticket,
        demand: C::Demand,
        now: Instant,
        waker: &Waker,
        reserved: bool,
    ) -> (AdmitOutcome<C>, Option<Leftovers<C>>) {
        let waker = waker.clone();
        let (outcome, rest, timer) = self.locked(|shared, state, woken| {
            if reserved {
                state.room.unreserve();
            }
            let one_more = state.room.len() as u64 + 1;
            shared.waiting.store(one_more | shared.flags(state), SeqCst);
            let Arrival { outcome, demand } =
                state
                    .room
                    .arrive_keeping(&shared.capacity, ticket, demand, now, woken);
            if let Ok(AdmitOutcome::Queued(key)) = outcome {
                // Nobody can have been answered between the call before and this one.
                let _ = state.room.set_waker(key, waker);
                if shared.capacity.made_by_head() && state.room.head() == Some(key) {
                    // It need not be woken to look whether it is next.
                    state.told = Some(key);
                }
                return (outcome, None, state.arm_timer_here());
            }
            (outcome, Some((waker, demand)), None)
        });
        if let Some(timer) = timer {
            timer.run(self);
        }
        let outcome = outcome.unwrap_or_else(|panic| resume_unwind(panic));
        (outcome, rest)
    }

    /// Gives a slot back: to the best waiter, if there is one.
    ///
    /// This runs where a request's answer ends, often in a destructor. The capacity may be user code; if it panics, the
    /// request whose slot this was has nothing to do with it.
    #[inline]
    pub(crate) fn release(self: &Arc<Self>, lease: C::Lease) {
        let released = catch_unwind(AssertUnwindSafe(|| self.capacity.release(lease)));
        if self.waiting.load(SeqCst) != 0 || released.is_err() {
            if released.is_err() {
                tracing::error!("a capacity panicked when a slot was given back");
            }
            self.hand_on(released.ok());
        }
    }

    /// Gives the slots of `pool` to the best waiters; or all slots, if it is not known which are free.
    #[cold]
    #[inline(never)]
    pub(crate) fn hand_on(self: &Arc<Self>, pool: Option<PoolId>) {
        let handed = catch_unwind(AssertUnwindSafe(|| {
            self.locked(|shared, state, woken| {
                let now = state.now_if_it_matters();
                match pool {
                    Some(pool) => state.room.on_release(&shared.capacity, pool, now, woken),
                    None => state.room.on_capacity_grown(&shared.capacity, now, woken),
                }
            });
            self.tell_if_drained();
        }));
        if handed.is_err() {
            tracing::error!("a capacity panicked while a slot was handed over");
        }
    }

    /// More slots are free than were: they go to the best waiters.
    pub(crate) fn on_capacity_grown(self: &Arc<Self>) {
        self.locked(|shared, state, woken| {
            let now = state.now_if_it_matters();
            state.room.on_capacity_grown(&shared.capacity, now, woken);
        });
    }

    /// A slot that its waiter made is used up: whoever is next may make another.
    pub(crate) fn end_turn(self: &Arc<Self>, lease: &mut C::Lease) {
        self.capacity.end_turn(lease);
        if self.waiting.load(SeqCst) & !BY_TURN != 0 {
            self.locked(|_, _, _| ());
        }
    }

    /// Tells those who wait for it that a closed gate's last lease is back.
    pub(crate) fn tell_if_drained(&self) {
        if self.is_drained() {
            self.drained.notify_waiters();
        }
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.waiting.load(SeqCst) & CLOSED != 0 && self.capacity.in_use() == 0
    }

    /// Runs `act` under the lock, then tells everyone whom it concerns, without the lock.
    pub(crate) fn locked<R>(
        self: &Arc<Self>,
        act: impl FnOnce(&Self, &mut State<C>, &mut WakeList<Waker>) -> R,
    ) -> R {
        let mut woken = WakeList::new();
        let mut state = self.lock();
        // A capacity that panics must not take along the wake-ups of those who already have their answer.
        let result = catch_unwind(AssertUnwindSafe(|| act(self, &mut state, &mut woken)));
        let full = state.room.is_full_for_all();
        if full {
            self.full.post(&state.room);
        }
        let marks = self.flags(&state) | if full { FULL } else { 0 };
        self.waiting.store(state.room.len() as u64 | marks, SeqCst);
        if !state.reservation_waiters.is_empty()
            && (state.room.has_room() || state.room.is_closed())
        {
            state.reservation_waiters.tell_all(&mut woken);
        }
        if self.capacity.made_by_head() {
            if self.capacity.turn_is_free() {
                state.tell_head(&mut woken);
            } else {
                state.told = None;
            }
        }
        drop(state);
        if !woken.is_empty() {
            woken.wake_all();
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn flags(&self, state: &State<C>) -> u64 {
        let closed = if state.room.is_closed() { CLOSED } else { 0 };
        let by_turn = if self.capacity.made_by_head() {
            BY_TURN
        } else {
            0
        };
        closed | by_turn
    }

    /// A look at the state that changes nothing.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<C>> {
        // A panic in a capacity must not take the gate down with it: the slots are counted elsewhere.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<C: Capacity> State<C> {
    /// The time, if the order of those who wait depends on it.
    pub(crate) fn now_if_it_matters(&self) -> Instant {
        match self.room.config().promote_after {
            Some(_) => clock::now(),
            None => self.room.epoch(),
        }
    }

    /// Where the waiter stands by now: promotions that are due count.
    pub(crate) fn position(&mut self, key: WaiterId, woken: &mut WakeList<Waker>) -> Option<usize> {
        let now = self.now_if_it_matters();
        self.room.advance(now, woken);
        self.room.position(key)
    }

    /// Wakes the head if it has only just become it.
    fn tell_head(&mut self, woken: &mut WakeList<Waker>) {
        let head = self.room.head();
        if head != self.told
            && let Some(waker) = head.and_then(|head| self.room.take_waker(head))
        {
            woken.push(waker);
        }
        self.told = head;
    }

    /// A request waits in the runtime that calls this.
    pub(crate) fn arm_timer_here(&mut self) -> Option<TimerRequest> {
        self.timers.arm_here(self.room.next_timeout())
    }
}

impl<C: Capacity> TimerHost for Shared<C> {
    fn on_timer(self: &Arc<Self>, runtime: RuntimeId) -> Option<Instant> {
        let now = clock::now();
        self.locked(|_, state, woken| {
            state.room.advance(now, woken);
            let next_end = state.room.next_timeout();
            let trim = state.room.trim_idle(now);
            state.timers.on_woken(runtime, now, next_end, trim)
        })
    }

    /// Requests that waited there and have moved to another runtime are woken, to arm the timer of that one.
    fn on_timer_stopped(&self, runtime: RuntimeId, was_spawned: bool) {
        let mut woken = WakeList::new();
        let mut state = self.lock();
        state.timers.remove(runtime);
        if was_spawned {
            state.room.take_wakers(&mut woken);
        }
        drop(state);
        woken.wake_all();
    }
}

impl<C: Capacity> Drop for Shared<C> {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .timers
            .wake_all();
    }
}
