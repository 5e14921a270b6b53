//! The contract of a waiting room, which the plain and the full room keep.
//!
//! [`WaitingRoom`](super::WaitingRoom) picks one of them, hands every call on, and does what is the same for both. Methods
//! come in kinds: getters; `on_*` for events; `arrive`, `retry` and `advance`, which may answer waiters; `unlink`, which
//! ends a wait. Each event is one call, with the room [brought up to `now`](Room::advance) before it.
//!
//! A waiter *waits* until it is granted a slot, rejected or cancelled. Granted or rejected, its entry is *unlinked* and
//! keeps the outcome until that is taken. Only the holder of its id takes an entry out.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::nanos::{NEVER, Nanos};
use super::room_base::RoomBase;
use super::waiters::{WaiterId, Waiters};
use super::{
    AdmitOutcome, Capacity, Discipline, KeptSlots, LeaseError, OnDemandCapacity, PoolId, PoolSet,
    RejectReason, SlotState, SlotUsage, Ticket, WakeList,
};

/// What a waiter in front of a capacity carries.
pub(crate) struct Waiter<C: Capacity, W> {
    pub(crate) demand: C::Demand,
    pub(crate) state: State<C, W>,
}

impl<C: Capacity, W> Waiter<C, W> {
    pub(crate) fn new(demand: C::Demand) -> Self {
        let state = State::Waiting(None);
        Self { demand, state }
    }
}

/// The state of a waiter: waiting, granted, or rejected.
pub(crate) enum State<C: Capacity, W> {
    /// With its waker, if that was set and not taken.
    Waiting(Option<W>),
    /// Granted this slot, which is yet to be taken by its task.
    Leased(C::Lease),
    /// Rejected for this reason, which is yet to be taken by its task.
    Rejected(RejectReason<C::Unservable>),
}

/// The outcome of an arrival, or the capacity's panic.
pub(crate) struct Arrival<C: Capacity> {
    pub(crate) outcome: Result<AdmitOutcome<C>, Panic>,
    /// The request's demand, given back; `None` if the request waits, and its demand with it.
    pub(crate) demand: Option<C::Demand>,
}

/// The value of a panic that was caught.
pub(crate) type Panic = Box<dyn Any + Send>;

impl<C: Capacity> Arrival<C> {
    pub(crate) fn ended(outcome: AdmitOutcome<C>, demand: C::Demand) -> Self {
        Self {
            outcome: Ok(outcome),
            demand: Some(demand),
        }
    }

    pub(crate) fn queued(id: WaiterId) -> Self {
        Self {
            outcome: Ok(AdmitOutcome::Queued(id)),
            demand: None,
        }
    }

    pub(crate) fn panicked(panic: Panic, demand: C::Demand) -> Self {
        Self {
            outcome: Err(panic),
            demand: Some(demand),
        }
    }
}

/// A waiting room in front of a capacity.
pub(crate) trait Room<C: Capacity, W> {
    fn base(&self) -> &RoomBase;
    fn base_mut(&mut self) -> &mut RoomBase;
    fn waiters(&self) -> &Waiters<Waiter<C, W>>;
    fn waiters_mut(&mut self) -> &mut Waiters<Waiter<C, W>>;
    fn base_and_waiters(&mut self) -> (&mut RoomBase, &Waiters<Waiter<C, W>>);

    /// The first pool that could serve a waiter, also if that was unlinked in the present event.
    fn first_pool(&self, idx: u32) -> PoolId;

    /// The discipline of a waiter's lane, if that is shared by flows; as [`first_pool`](Self::first_pool).
    fn flows(&self, idx: u32) -> Option<Discipline>;

    /// Identifies a demand's lane in the service times.
    fn lane_hash(&self, capacity: &C, demand: &C::Demand) -> u32;

    /// Set when the capacity panicked over a waiter's slot: one may be free that no waiter was granted.
    fn missed_slot(&mut self) -> &mut bool;

    /// How many wait at this level.
    fn waiting_at(&self, level: u8) -> usize;

    /// How long an arrival at this level would wait, by the work ahead of it, behind all that wait at this level and above;
    /// 0 if it would find a slot free. `None` while that is not known.
    fn expected_wait_at(&self, capacity: &C, level: u8) -> Option<ExpectedWait>;

    /// Returns the waiter that is evicted first: the latest of the lowest level, or of a flow farthest above its share.
    fn lowest(&self) -> Option<u32>;

    /// Observes the pools whose number of slots is another than when they were last observed: for a report. A limit may
    /// change while no request waits, or without word of it.
    fn observe_new_limits(&mut self, capacity: &C);

    /// The waiter that goes before all others.
    fn head(&self) -> Option<WaiterId>;

    /// A waiter's position among those that compete for the same slots; 1 is next.
    fn position(&self, id: WaiterId) -> Option<usize>;

    /// The earliest end of a wait; `NEVER` if none ends.
    fn next_timeout(&self) -> Nanos;

    /// When the next waiter is promoted; `NEVER` if none is.
    fn next_promotion(&self) -> Nanos {
        NEVER
    }

    /// A request arrives at an open room: a slot if one is free that no better waiter could use, else a place, else a
    /// reason.
    fn arrive(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        now: Nanos,
        wakes: &mut WakeList<W>,
    ) -> Arrival<C>;

    /// Gives a waiter that waits another ticket and another demand, with the place that these lead to. `demand` is the one
    /// that it had, afterwards. Panics if the capacity does, and then nothing has changed.
    fn replace_ticket(
        &mut self,
        capacity: &C,
        idx: u32,
        ticket: Ticket,
        demand: &mut C::Demand,
        now: Nanos,
    );

    /// A slot of `pool` came back: it goes to the best waiter that it can serve.
    fn on_release(&mut self, capacity: &C, pool: PoolId, wakes: &mut WakeList<W>);

    /// There may be more slots than before: they go to the best waiters.
    fn on_capacity_grown(&mut self, capacity: &C, wakes: &mut WakeList<W>);

    /// The capacity's lanes, pools or partitions changed: asks for those of every waiter again.
    fn on_capacity_changed(&mut self, capacity: &C, now: Nanos, wakes: &mut WakeList<W>);

    /// Looks for a slot for a waiter that still waits though its waker was taken. Panics if the capacity does.
    fn retry(&mut self, capacity: &C, id: WaiterId, wakes: &mut WakeList<W>);

    /// Brings the room up to `now`: ends waits that are due, and promotes waiters.
    fn advance(&mut self, now: Nanos, wakes: &mut WakeList<W>);

    /// Ends a wait, with a slot if the waiter `is_served`. Its entry stays until its outcome is taken.
    fn unlink(&mut self, idx: u32, is_served: bool);

    /// Rejects waiters that have no place any more after a reconfiguration in the order of eviction.
    fn evict_excess(&mut self, wakes: &mut WakeList<W>);

    /// Gives memory back if there is no entry left. To be called after one was taken out.
    fn trim_if_empty(&mut self);

    /// Releases a slot that no request used.
    fn give_back(&mut self, capacity: &C, lease: C::Lease) {
        _ = release(capacity, lease);
        // It was counted as given.
        self.base_mut().stats.unclaimed += 1;
    }

    /// Grants a waiter its slot, which is one of `pool`.
    #[inline]
    fn grant(
        &mut self,
        capacity: &C,
        idx: u32,
        (lease, pool): (C::Lease, PoolId),
        wakes: &mut WakeList<W>,
    ) {
        self.unlink(idx, true);
        let flows = self.flows(idx);
        let (base, waiters) = self.base_and_waiters();
        if base.reserves.may_lend() {
            let level = waiters.meta(idx).level;
            base.reserves
                .on_leased(level, pool, usage(capacity, pool), base.now);
        }
        let meta = waiters.meta(idx);
        // Beside patient waiters alone, slots may be free that are kept for others: nothing is measured then.
        if !meta.is_patient || base.placed() > 0 {
            base.overload.pool_mut(pool).on_handed_over();
        }
        let flow = flows.map(|discipline| (discipline, meta.tenant(), meta.cost() as f64));
        base.on_served(meta.priority, flow);
        self.finish(idx, State::Leased(lease), wakes);
    }

    /// Ends a wait without a slot.
    fn reject_idx(&mut self, idx: u32, why: RejectReason<C::Unservable>, wakes: &mut WakeList<W>) {
        self.unlink(idx, false);
        self.count_rejected(idx, &why);
        self.finish(idx, State::Rejected(why), wakes);
    }

    /// Counts the rejection of a waiter.
    fn count_rejected(&mut self, idx: u32, why: &RejectReason<C::Unservable>) {
        let (base, waiters) = self.base_and_waiters();
        base.on_rejected(waiters.meta(idx).priority, why);
    }

    /// Rejects waiters that are unlinked already.
    fn reject_unlinked(
        &mut self,
        unlinked: impl IntoIterator<Item = (WaiterId, RejectReason<C::Unservable>)>,
        wakes: &mut WakeList<W>,
    ) where
        Self: Sized,
    {
        for (id, why) in unlinked {
            // Not `reject_idx`: it would unlink them twice.
            self.count_rejected(id.idx, &why);
            self.finish(id.idx, State::Rejected(why), wakes);
        }
    }

    /// Compares a wait that ended with what was predicted.
    #[inline]
    fn on_wait_ended(&mut self, idx: u32, is_served: bool) {
        let pool = self.first_pool(idx);
        let (base, waiters) = self.base_and_waiters();
        base.on_wait_ended(pool, waiters.meta(idx), is_served);
    }

    /// Sets the outcome of a waiter that is unlinked, and takes its waker.
    #[inline]
    fn finish(&mut self, idx: u32, state: State<C, W>, wakes: &mut WakeList<W>) {
        match &state {
            State::Leased(_) => self.on_wait_ended(idx, true),
            // A waiter is overloaded when it has waited for twice the target.
            State::Rejected(
                RejectReason::TimedOut
                | RejectReason::DeadlinePassed
                | RejectReason::Overloaded { .. },
            ) => self.on_wait_ended(idx, false),
            // How long it would have waited is not known.
            _ => {}
        }
        let waiter = self.waiters_mut().payload_mut(idx);
        // Without a waker, its task has not polled yet, or has been woken to retry: it will look by itself.
        if let State::Waiting(Some(waker)) = std::mem::replace(&mut waiter.state, state) {
            wakes.push(waker);
        }
    }
}

/// Takes a slot, and asks for its pool. If the capacity panics when asked, the slot is given back first.
pub(crate) fn lease<C: Capacity>(
    capacity: &C,
    demand: &C::Demand,
    kept: KeptSlots,
) -> Result<(C::Lease, PoolId), LeaseError<C::Unservable>> {
    let lease = match kept == KeptSlots::NONE {
        true => capacity.try_lease(demand)?,
        false => capacity.try_lease_keeping(demand, kept)?,
    };
    // A lease counts until it is released: unwinding would lose the slot.
    match catch_unwind(AssertUnwindSafe(|| capacity.pool(&lease))) {
        Ok(pool) => Ok((lease, pool)),
        Err(panic) => {
            _ = release(capacity, lease);
            resume_unwind(panic)
        }
    }
}

/// Gives a slot back, and says to which pool, unless the capacity panics. A panic is caught, as in [`slots`].
pub(crate) fn release<C: Capacity>(capacity: &C, lease: C::Lease) -> Option<PoolId> {
    catch_unwind(AssertUnwindSafe(|| capacity.release(lease))).ok()
}

/// The wait of an arrival, as the work ahead of it says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedWait {
    /// The pool for which predictions are corrected.
    pub(crate) pool: PoolId,
    pub(crate) seconds: f64,
}

impl ExpectedWait {
    /// An arrival finds a slot of `pool` free.
    pub(crate) fn none(pool: PoolId) -> Self {
        Self { pool, seconds: 0.0 }
    }
}

/// The pools that are in service, for reports: one, with the number 0, if that is not known.
pub(crate) fn all_pools<C: Capacity>(capacity: &C) -> PoolSet {
    capacity
        .all_pools()
        .unwrap_or_else(|| PoolSet::one(PoolId(0)))
}

/// How many slots a pool has, and how many of them are free; as [`slots`].
pub(crate) fn usage<C: Capacity>(capacity: &C, pool: PoolId) -> (usize, usize) {
    let usage = catch_unwind(AssertUnwindSafe(|| capacity.pool_usage(pool)));
    let SlotUsage { slots, in_use } = usage.unwrap_or_default();
    (slots, slots.saturating_sub(in_use))
}

/// Whether a slot of `pool` is free for a request that has to leave the `kept` ones.
pub(crate) fn is_free<C: Capacity>(capacity: &C, pool: PoolId, kept: KeptSlots) -> bool {
    let (slots, free) = usage(capacity, pool);
    free > kept.of(slots)
}

/// Returns `true` if a slot is free and ready, and no level keeps it from a request of this one.
pub(crate) fn has_free_slot<C: Capacity>(capacity: &C, kept: KeptSlots) -> bool {
    let pools = all_pools(capacity);
    let mut free = pools.iter().filter(|&&pool| is_free(capacity, pool, kept));
    free.any(|&pool| slot_state(capacity, pool) == SlotState::Ready)
}

/// How many slots a pool has. The capacity may be user code: a panic is caught, as it must not reach a request, and the
/// pool counts as one slot.
pub(crate) fn slots<C: Capacity>(capacity: &C, pool: PoolId) -> usize {
    catch_unwind(AssertUnwindSafe(|| capacity.pool_usage(pool).slots)).unwrap_or(1)
}

/// Returns the state of the slots of a pool: ready if the capacity does not serve on demand.
pub(crate) fn slot_state<C: Capacity>(capacity: &C, pool: PoolId) -> SlotState {
    ask_on_demand(capacity, |it| it.slot_state(pool)).unwrap_or(SlotState::Ready)
}

/// Calls a method of a capacity that serves on demand. Returns `None` for any other one, and if the capacity panics: a
/// panic is caught, as in [`slots`].
#[inline]
pub(crate) fn ask_on_demand<C: Capacity, T>(
    capacity: &C,
    ask: impl FnOnce(&dyn OnDemandCapacity<C::Lease>) -> T,
) -> Option<T> {
    catch_unwind(AssertUnwindSafe(|| capacity.on_demand().map(ask))).unwrap_or(None)
}

/// Takes a slot for a waiter, in the task of another request: mostly the one that just released its slot.
///
/// The capacity may be user code. If it panics, that must not hit the other request. So the waiter is woken to
/// [`retry`](Room::retry) in its own task, and its slot counts as busy until then. If its wait ends before that,
/// `missed_slot` says that a slot may be free for others.
pub(crate) fn lease_for<C: Capacity, W>(
    capacity: &C,
    waiter: &mut Waiter<C, W>,
    kept: KeptSlots,
    missed_slot: &mut bool,
    wakes: &mut WakeList<W>,
) -> Result<(C::Lease, PoolId), LeaseError<C::Unservable>> {
    let leased = catch_unwind(AssertUnwindSafe(|| lease(capacity, &waiter.demand, kept)));
    // The panic is dropped: the waiter's own retry will meet it again, if it is still there.
    leased.unwrap_or_else(|_| {
        *missed_slot = true;
        if let State::Waiting(waker) = &mut waiter.state
            && let Some(waker) = waker.take()
        {
            wakes.push(waker);
        }
        // Ends the pump, or blocks the waiter's group in it.
        Err(LeaseError::Busy)
    })
}
