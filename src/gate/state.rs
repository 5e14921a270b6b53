//! The state that all handles of a gate share, and the rules for its lock.
//!
//! The waiting room is behind the lock `state`. The capacity's slots and the waiting word are atomics beside the lock.
//! A request that finds a free slot and an empty waiting room passes without the lock. A release that finds an empty
//! waiting room returns without it, too.
//!
//! - The waiting word is written only under the lock. It is clear only while the waiting room is empty and the gate is
//!   open. If slots come from the inner service's readiness, it always carries a flag.
//! - An arrival raises the word before it looks for a slot. A release gives the slot back before it looks at the word.
//!   Both accesses are sequentially consistent, so at least one of the two sees the other: either the arrival finds the
//!   slot, or the release takes the lock and finds the arrival.
//! - A request on the fast path looks at the word again once it has its slot. Otherwise it could take the slot of a
//!   waiter that arrived in between, or pass a gate that was closed in between.
//! - If all waiters ask for the same slots, a request that finds the `FULL` flag is rejected without the lock. The flag
//!   is written in the same store as the number of waiters.
//! - If tenants have shares, a permit names the tenant that it belongs to (`is_fair`), also without the lock.
//! - A lease is released without the lock, except if slots come from the inner service or while the capacity itself is
//!   being asked.
//!
//! The rules of the lock itself are those of [`WithLock`].

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::AtomicBool; // outside of loom's models, because either value is fine
use std::task::Waker;
use std::time::{Duration, Instant};

use super::detached::Detached;
use super::fast_reject::{FullNotice, RoomFull};
use super::inner_ready::InnerReady;
use super::reserve::ReservationWaiters;
use super::stall::{LOOK_EVERY, Stalls};
use super::timer::{RuntimeId, TimerHost, TimerRequest, Timers};
use super::waiting_word::{Flags, WaitingWord};
use super::with_lock::WithLock;
use crate::admit::nanos::{Epoch, NEVER};
use crate::admit::{
    AdmitOutcome, Arrival, Capacity, Discipline, KeptSlots, PoolId, Share, WaiterId, WaitingRoom,
    WaitingRoomConfig, WakeList, ask,
};
use crate::clock;
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Relaxed, SeqCst};

/// The state that all handles of a gate share.
pub(crate) struct Shared<C: Capacity> {
    pub(crate) capacity: C,
    /// The bits of a [`WaitingWord`]: the number of waiters and the flags.
    waiting: AtomicU64,
    /// `true` if slots come from the inner service's readiness, so that `state.inner_ready` is `Some`.
    pub(super) from_inner: bool,
    /// `true` while tenants have shares, so that permits name the tenants that they belong to.
    is_fair: AtomicBool,
    /// `true` once a permit of this gate was made an extension. Until then, requests are not searched for one.
    expects_extensions: AtomicBool,
    /// Bits that the gate's layer keeps here, so that a permit can read them.
    layer_bits: AtomicU64,
    /// The values by which a full room rejects requests without the lock.
    pub(super) full: FullNotice,
    /// A random number that distinguishes this gate's detached permits from those of other gates.
    pub(super) nonce: u64,
    state: Mutex<State<C>>,
    /// The notification for callers of `closed`, sent when a closed gate's last lease is back.
    pub(super) drained: tokio::sync::Notify,
}

/// The part of a gate's state that is behind its lock.
pub(crate) struct State<C: Capacity> {
    pub(super) room: WaitingRoom<C, Waker>,
    /// The detached permits that are out, by their serial numbers.
    pub(super) detached: HashMap<u64, Detached<C>>,
    /// The serial number of the last detached permit.
    pub(super) serial: u64,
    pub(super) reservation_waiters: ReservationWaiters,
    pub(super) inner_ready: Option<InnerReady<C>>,
    pub(super) timers: Timers,
    pub(super) stalls: Stalls,
    /// The flags of the waiting word except `FULL`, which each change computes anew.
    pub(super) flags: Flags,
}

/// Returns a number from the system's randomness, because a program may have seeded its own generator.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl<C: Capacity> Shared<C> {
    pub(super) fn new(
        capacity: C,
        config: WaitingRoomConfig,
        inner_ready: Option<InnerReady<C>>,
    ) -> Arc<Self> {
        let from_inner = inner_ready.is_some();
        let epoch = clock::now();
        let mut flags = Flags::of(&config);
        flags.set(Flags::FROM_INNER, from_inner);
        Arc::new(Self {
            capacity,
            waiting: AtomicU64::new(WaitingWord::new(0, flags).0),
            from_inner,
            is_fair: AtomicBool::new(config.discipline == Discipline::Fair),
            expects_extensions: AtomicBool::new(false),
            layer_bits: AtomicU64::new(0),
            full: FullNotice::new(epoch),
            nonce: random(),
            state: Mutex::new(State {
                room: WaitingRoom::new(config, epoch).with_holds(),
                detached: HashMap::new(),
                serial: 0,
                reservation_waiters: ReservationWaiters::default(),
                inner_ready,
                timers: Timers::new(Epoch(epoch)),
                stalls: Stalls::default(),
                flags,
            }),
            drained: tokio::sync::Notify::new(),
        })
    }

    /// Reads the waiting word without the lock.
    #[inline]
    pub(super) fn waiting_word(&self) -> WaitingWord {
        // Sequentially consistent, because it follows a lease or a release of the capacity's atomics.
        WaitingWord(self.waiting.load(SeqCst))
    }

    /// Returns `true` if tenants have shares.
    #[inline]
    pub(super) fn is_fair(&self) -> bool {
        // Relaxed, because a permit that is granted while this changes may have an account or not.
        self.is_fair.load(Relaxed)
    }

    /// Returns `true` if a permit was made an extension.
    #[inline]
    pub(super) fn expects_extensions(&self) -> bool {
        // Relaxed, because the request with the extension was sent after the extension was made.
        self.expects_extensions.load(Relaxed)
    }

    /// Makes layers search their requests for permits from now on.
    pub(super) fn expect_extensions(&self) {
        self.expects_extensions.store(true, Relaxed); // relaxed: the request is sent after this
    }

    /// Returns the bits of the gate's layer.
    #[inline]
    pub(super) fn layer_bits(&self) -> u64 {
        self.layer_bits.load(Relaxed) // relaxed, because they are read on their own
    }

    /// Sets the bits of the gate's layer.
    pub(super) fn set_layer_bits(&self, bits: u64) {
        self.layer_bits.store(bits, Relaxed);
    }

    /// Takes a slot without the lock, if a slot is free and the waiting room is empty.
    #[inline]
    pub(super) fn try_fast_path(self: &Arc<Self>, demand: &C::Demand) -> Option<C::Lease> {
        if !self.waiting_word().is_clear() {
            return None;
        }
        let lease = ask::try_lease(&self.capacity, demand, KeptSlots::NONE).ok()?;
        // The second look is needed, because an arrival that saw every slot busy has raised the word by now.
        if !self.waiting_word().is_clear() {
            return self.fast_path_lost(lease);
        }
        Some(lease)
    }

    /// Hands the slot to a waiter, because a request arrived or the gate was closed between the first look and the
    /// lease. Keeps the slot if the waiting room is empty and open after all.
    #[cold]
    #[inline(never)]
    fn fast_path_lost(self: &Arc<Self>, lease: C::Lease) -> Option<C::Lease> {
        let lease = self.with_lock(|shared, state, wakes| {
            if state.room.is_empty() && !state.room.is_closed() {
                return Some(lease);
            }
            let now = clock::now();
            state
                .room
                .on_lease_returned(&shared.capacity, lease, now, wakes);
            None
        });
        self.notify_if_drained();
        lease
    }

    /// Rejects a request without the lock, if the room is full.
    ///
    /// The result is exact only if all waiters ask for the same slots. Otherwise a slot may be free that all of the
    /// waiters are unable to use.
    ///
    /// `level` returns the level in which the request would wait, if it is known. It is called only if the room is
    /// full.
    pub(super) fn fast_reject(&self, level: impl FnOnce() -> Option<u8>) -> Option<RoomFull> {
        // Sequentially consistent, which makes the notice's values visible.
        let word = self.waiting_word();
        if !word.has(Flags::FULL) {
            return None;
        }
        self.full.reject(word.waiting(), level)
    }

    /// Enters a request into the waiting room under the lock. If it has to wait, its waker is woken when its wait is
    /// over.
    pub(super) fn arrive(
        self: &Arc<Self>,
        arrival: &mut Arrival<C::Demand, Waker>,
        now: Instant,
        reserved: bool,
    ) -> (AdmitOutcome<C>, Option<Box<Share>>) {
        let (outcome, share, timer) = self.with_lock(|shared, state, wakes| {
            if reserved {
                state.room.unreserve();
                arrival.ticket.has_place = true;
            }
            // Stored before the look for a slot, so that a release after this store takes the lock.
            let word = WaitingWord::new(state.room.len() + 1, state.flags);
            shared.waiting.store(word.0, SeqCst);
            let (capacity, room) = (&shared.capacity, &mut state.room);
            let outcome = room.arrive_with(capacity, arrival, now, wakes);
            let AdmitOutcome::Queued(waiter) = outcome else {
                // The share is taken as the room counts it now, because the room may be reconfigured before the permit
                // is made.
                let share = room.share_of(&arrival.ticket, arrival.hold);
                return (outcome, share, None);
            };
            if let Some(inner_ready) = &mut state.inner_ready {
                inner_ready.on_arrival(waiter, state.room.head());
            }
            (outcome, None, state.arm_timer_here(waiter))
        });
        if let Some(timer) = timer {
            timer.run(self);
        }
        (outcome, share)
    }

    /// Gives a slot back, and hands it to the best waiter if the waiting room has one.
    ///
    /// This runs at the end of a request's response, often in a destructor.
    #[inline]
    pub(super) fn release(self: &Arc<Self>, lease: C::Lease) {
        if self.from_inner {
            return self.release_under_lock(lease);
        }
        self.release_plain(lease);
    }

    /// Gives a slot back that its waiter has not taken.
    pub(super) fn release_unclaimed(self: &Arc<Self>, lease: C::Lease) {
        if self.from_inner {
            self.end_claim(); // the waiter has not called the inner service
        }
        // The room has already updated its tenant counts, so a plain release is right for counted slots, too.
        self.release(lease);
    }

    /// Gives a slot back that does not come from the inner service.
    #[inline]
    pub(super) fn release_plain(self: &Arc<Self>, lease: C::Lease) {
        let pool = ask::release(&self.capacity, lease);
        // Read after the release, because an arrival that saw every slot busy has raised the word by now.
        if !self.waiting_word().is_clear() {
            self.release_slow(pool);
        }
    }

    /// Takes the lock and gives the free slots of `pool` to the best waiters, or all free slots if the pool is not
    /// known.
    #[cold]
    #[inline(never)]
    pub(super) fn release_slow(self: &Arc<Self>, pool: Option<PoolId>) {
        self.with_lock(|shared, state, wakes| shared.hand_over(state, pool, wakes));
        self.notify_if_drained();
    }

    /// Gives the free slots of `pool` to the best waiters, or all free slots if the pool is not known. Called under the
    /// lock.
    fn hand_over(&self, state: &mut State<C>, pool: Option<PoolId>, wakes: &mut WakeList<Waker>) {
        let (now, room) = (clock::now(), &mut state.room);
        match pool {
            Some(pool) => room.on_release(&self.capacity, pool, now, wakes),
            None => room.on_capacity_grown(&self.capacity, now, wakes),
        }
    }

    /// Gives a slot back that is charged to its tenant, or that counts for its limit.
    ///
    /// The best waiter gets the slot. If another slot is free, a waiter of the tenant may get that one, because the
    /// tenant is below its limit again.
    #[cold]
    #[inline(never)]
    pub(super) fn release_shared(self: &Arc<Self>, lease: C::Lease, share: &Share) {
        // Slots that come from the inner service are given back under the lock.
        let (kept, pool) = match self.from_inner {
            true => (Some(lease), None),
            false => (None, ask::release(&self.capacity, lease)),
        };
        self.with_lock(|shared, state, wakes| {
            if share.is_counted {
                state.room.on_tenant_released(&share.tenant);
            }
            // The tenant pays before the slot is granted, so that it goes to the right one.
            if let Some(hold) = share.hold {
                state.room.end_hold(hold, clock::now());
                state.stalls.remove(&hold);
            }
            match kept {
                Some(lease) => _ = ask::release(&shared.capacity, lease),
                None => shared.hand_over(state, pool, wakes),
            }
        });
        self.notify_if_drained();
    }

    /// Gives back a slot that came from the inner service's readiness. Such a slot is used up rather than handed to a
    /// waiter.
    #[cold]
    #[inline(never)]
    fn release_under_lock(self: &Arc<Self>, lease: C::Lease) {
        self.with_lock(|shared, _, _| {
            _ = ask::release(&shared.capacity, lease);
        });
        self.notify_if_drained();
    }

    /// Gives all free slots to the best waiters, because there are more slots than before.
    pub(crate) fn on_capacity_grown(self: &Arc<Self>) {
        self.with_lock(|shared, state, wakes| shared.hand_over(state, None, wakes));
    }

    /// Wakes the callers of `closed` once a closed gate's last lease is back.
    #[inline]
    pub(super) fn notify_if_drained(&self) {
        if self.is_drained() {
            self.drained.notify_waiters();
        }
    }

    /// Returns `true` if the gate is closed and the last lease is back. Exact only under the lock.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        // Without the lock, a lease may be taken between these two reads, so the result may be `true` too early. This
        // only wakes the callers of `closed` too early, and they look again under the lock.
        self.waiting_word().has(Flags::CLOSED)
            && ask::ask(&self.capacity, C::usage).is_some_and(|usage| usage.in_use == 0)
    }
}

impl<C: Capacity> WithLock for Shared<C> {
    type State = State<C>;
    type Deferred = WakeList<Waker>;

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        // A panic in a capacity may poison the lock. The state is whole even so, because slots are counted elsewhere.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn publish(&self, state: &mut State<C>, wakes: &mut WakeList<Waker>) {
        let mut flags = state.flags;
        if let Some(level) = state.room.full_from() {
            self.full.write(&state.room, level); // written before the flag is set
            flags |= Flags::FULL;
        }
        let word = WaitingWord::new(state.room.len(), flags);
        // The word is nearly always known for a request that was queued, because its arrival has raised it. Relaxed,
        // because this thread has the lock and the word is written only under it. A full room always stores the word,
        // because that store publishes the notice's values.
        let is_known = self.waiting.load(Relaxed) == word.0 && !word.has(Flags::FULL);
        if !is_known {
            self.waiting.store(word.0, SeqCst);
        }
        let is_fair = state.room.is_fair();
        if is_fair != self.is_fair() {
            self.is_fair.store(is_fair, Relaxed);
        }
        ask::on_demand(&self.capacity, |on_demand| {
            if state.room.take_lane_heads_changed() {
                on_demand.on_lane_heads_changed();
            }
        });
        if !state.reservation_waiters.is_empty()
            && (state.room.has_room() || state.room.is_closed())
        {
            state.reservation_waiters.wake_all(wakes);
        }
        if let Some(inner_ready) = &mut state.inner_ready {
            inner_ready.notify_head(&mut state.room, wakes);
        }
    }

    #[inline]
    fn finish(&self, wakes: &mut WakeList<Waker>) {
        wakes.wake_all();
    }
}

impl<C: Capacity> State<C> {
    /// Returns the waiter's current position, after promotions that are due.
    pub(super) fn position(
        &mut self,
        waiter: WaiterId,
        wakes: &mut WakeList<Waker>,
    ) -> Option<usize> {
        let now = clock::now();
        self.room.advance_waits(now, wakes);
        self.room.position(waiter)
    }

    /// Returns the time that a waiter at this position will probably still wait, given the current number of slots.
    pub(super) fn wait_at(&mut self, capacity: &C, position: usize) -> Option<Duration> {
        let now = clock::now();
        self.room.wait_behind(capacity, position - 1, now)
    }

    /// Arms the timer of the current runtime, in which this request waits.
    #[inline]
    pub(super) fn arm_timer_here(&mut self, waiter: WaiterId) -> Option<TimerRequest> {
        let end = self.room.timeout_of(waiter);
        self.timers
            .arm_here(end.min(self.room.next_recall(LOOK_EVERY)))
    }
}

impl<C: Capacity> TimerHost for Shared<C> {
    fn on_timer(self: &Arc<Self>, runtime: RuntimeId) -> Option<Instant> {
        let now = clock::now();
        let (sleep, offers, revoked, recalled) = self.with_lock(|shared, state, wakes| {
            let offers = state.room.advance(now, wakes);
            let revoked = state.room.revoke_uncollected(now);
            let recalled = state.stalls_to_recall(&shared.capacity, now);
            let next_look = state.room.next_recall(LOOK_EVERY) < NEVER;
            let next_look = next_look.then(|| now + LOOK_EVERY);
            let ends = state.room.next_timeout().into_iter();
            let next_end = ends.chain(revoked.next).chain(next_look).min();
            let trim = state.room.trim_idle(now);
            let sleep = state.timers.on_woken(runtime, now, next_end, trim);
            (sleep, offers, revoked.leases, recalled)
        });
        for lease in revoked {
            self.release_unclaimed(lease);
        }
        if offers {
            self.on_capacity_grown();
        }
        // Without the lock, because their slots come back at once.
        recalled.iter().for_each(|stall| stall.recalled().cancel());
        sleep
    }

    /// Wakes the requests that waited in `runtime`, because those that moved to another runtime have to arm its timer.
    fn on_timer_stopped(&self, runtime: RuntimeId, was_spawned: bool) {
        let mut wakes = WakeList::new();
        let mut state = self.lock();
        state.timers.remove(runtime);
        if was_spawned {
            state.room.take_wakers(&mut wakes);
        }
        drop(state);
        wakes.wake_all(); // after the lock was released
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
