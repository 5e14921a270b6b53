//! The whole scheduler: seat the best waiter for whom there is a slot, until there is none.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use super::lanes::{Best, NO_PUMP, Scope};
use super::nanos::{NEVER, Nanos};
use super::room::{State, WaiterId, WaitingRoom};
use super::{Capacity, LeaseError, PoolId, RejectReason, WakeList};

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// A slot of `pool` came back: it goes to the best waiter that it can serve. Looks at no other lanes.
    pub fn on_release(
        &mut self,
        capacity: &C,
        pool: PoolId,
        now: Instant,
        woken: &mut WakeList<W>,
    ) {
        if self.has_alarms() {
            self.catch_up(self.epoch.nanos(now), woken);
        }
        self.pump(capacity, Scope::Pool(pool), woken);
    }

    /// A lease that nobody took comes back, as in [`on_release`](Self::on_release).
    pub fn on_lease_returned(
        &mut self,
        capacity: &C,
        lease: C::Lease,
        now: Instant,
        woken: &mut WakeList<W>,
    ) {
        self.stats.unclaimed += 1;
        let pool = capacity.release(lease);
        self.on_release(capacity, pool, now, woken);
    }

    /// The capacity grew: its slots go to the best waiters.
    pub fn on_capacity_grown(&mut self, capacity: &C, now: Instant, woken: &mut WakeList<W>) {
        self.catch_up(self.epoch.nanos(now), woken);
        self.pump(capacity, Scope::All, woken);
    }

    /// Looks for a slot for a waiter whose waker was taken though it still waits. It is for the waiter's own task to
    /// call, because the capacity may panic.
    pub(crate) fn retry(
        &mut self,
        capacity: &C,
        key: WaiterId,
        now: Instant,
        woken: &mut WakeList<W>,
    ) {
        self.catch_up(self.epoch.nanos(now), woken);
        self.claim(capacity, key.at, woken);
    }

    /// Looks for a slot for the waiter `at`.
    ///
    /// If a slot is free that it could use, the slot goes to the best of the waiters that can use it: to `at`, or
    /// to others that go before it, which may leave one for `at`. Every other slot that a waiter here could use has a
    /// release of its own on the way.
    ///
    /// Ends because each round but the last answers a waiter. A slot that `at` could use and that the waiters before
    /// it refuse has changed hands meanwhile, or the room has not yet been told of a change in the capacity: then
    /// `at` goes on waiting, for there is a release on the way, or a call of [`rearranged`](Self::rearranged).
    pub(super) fn claim(&mut self, capacity: &C, at: u32, woken: &mut WakeList<W>) {
        while self.chairs.body(at).state.is_waiting() {
            let (lease, pool) = match lease(capacity, &self.chairs.body(at).demand) {
                Ok(leased) => leased,
                Err(LeaseError::Busy) => return,
                Err(LeaseError::Unservable(why)) => {
                    return self.answer(at, RejectReason::Unservable(why), woken);
                }
            };
            let scope = Scope::Claim(pool, self.lanes.group_at(self.chairs.place(at).lane));
            let best = self.lanes.best(&self.chairs, scope, NO_PUMP);
            if best.is_none_or(|best| best.at == at) {
                return self.seat(at, lease, woken);
            }
            capacity.release(lease);
            self.stats.unclaimed += 1;
            let waiting = self.waiting;
            self.pump(capacity, scope, woken);
            if self.waiting == waiting {
                return;
            }
        }
    }

    /// Asks for a slot for the waiter `at`, on behalf of another request: mostly the one whose slot just came back.
    ///
    /// The capacity may be user code. If it panics, the other request has nothing to do with it. So the waiter is woken
    /// to [`retry`](Self::retry) in its own task; until then its slot counts as busy. Should its wait end before that,
    /// [`take_missed_slot`](Self::take_missed_slot) tells that others are to be asked.
    fn lease_for(
        &mut self,
        capacity: &C,
        at: u32,
        woken: &mut WakeList<W>,
    ) -> Result<(C::Lease, PoolId), LeaseError<C::Unservable>> {
        let demand = &self.chairs.body(at).demand;
        let asked = catch_unwind(AssertUnwindSafe(|| lease(capacity, demand)));
        asked.unwrap_or_else(|_| {
            self.missed_slot = true;
            if let State::Waiting(note) = &mut self.chairs.body_mut(at).state
                && let Some(note) = note.take()
            {
                woken.push(note);
            }
            Err(LeaseError::Busy)
        })
    }

    /// Whether anything ever happens here by itself.
    #[inline]
    fn has_alarms(&self) -> bool {
        self.ends.next().min(self.rises.next()) < NEVER
    }

    /// Brings the room up to `now`: whose wait is over by then holds no chair, and who has risen by then
    /// has risen before anybody who comes.
    #[inline]
    pub(super) fn catch_up(&mut self, now: Nanos, woken: &mut WakeList<W>) {
        if self.ends.next() <= now {
            self.end_waits(now, woken);
        }
        if self.rises.next() <= now {
            self.rise(now);
        }
    }

    /// Gives free slots to the best waiters in `scope`, until there is no slot left that one of them could use.
    ///
    /// Ends whatever the capacity answers: each round answers a waiter, or blocks a group for the rest of this pump,
    /// or gives groups a second look, which each group gets once between two of its waiters that are served.
    pub(super) fn pump(&mut self, capacity: &C, scope: Scope, woken: &mut WakeList<W>) {
        self.pumps += 1;
        let pump = self.pumps;
        if matches!(scope, Scope::All) {
            self.missed_slot = false;
        }
        while let Some(best) = self.lanes.best(&self.chairs, scope, pump) {
            if matches!(scope, Scope::All) && self.a_rival_is_out(capacity, best, pump, woken) {
                continue;
            }
            match self.lease_for(capacity, best.at, woken) {
                Ok((lease, pool)) => {
                    // The slot may have come back after a better waiter for it was found blocked.
                    if self.lanes.unblock_better(&self.chairs, pool, best, pump) {
                        capacity.release(lease);
                        self.stats.unclaimed += 1;
                        continue;
                    }
                    self.lanes.progress(best.group);
                    self.seat(best.at, lease, woken);
                    // The slot that came back is taken. If there are more, each has its own release.
                    if scope.is_about(pool) {
                        return;
                    }
                }
                Err(LeaseError::Busy) => self.lanes.block(best.group, pump),
                Err(LeaseError::Unservable(why)) => {
                    self.answer(best.at, RejectReason::Unservable(why), woken)
                }
            }
        }
    }

    /// Whether a better waiter of another discipline than `best` is out: there is no slot for it. Then it must
    /// not keep others of its discipline, who may go before `best`, from the slot that `best` would get.
    ///
    /// Where one pool is all that a pump is about, its slot is for each of them or for none.
    fn a_rival_is_out(
        &mut self,
        capacity: &C,
        best: Best,
        pump: u64,
        woken: &mut WakeList<W>,
    ) -> bool {
        for rival in self.lanes.rivals(best, pump) {
            match self.lease_for(capacity, rival.at, woken) {
                Ok((lease, _)) => {
                    capacity.release(lease);
                    self.stats.unclaimed += 1;
                }
                Err(LeaseError::Busy) => {
                    self.lanes.block(rival.group, pump);
                    return true;
                }
                Err(LeaseError::Unservable(why)) => {
                    self.answer(rival.at, RejectReason::Unservable(why), woken);
                    return true;
                }
            }
        }
        false
    }

    /// Everyone whose wait has lasted too long by `now` is answered.
    pub fn expire(&mut self, now: Instant, woken: &mut WakeList<W>) {
        self.end_waits(self.epoch.nanos(now), woken);
    }

    fn end_waits(&mut self, now: Nanos, woken: &mut WakeList<W>) {
        while let Some(at) = self.ends.due(now, &self.chairs) {
            let patience = self.chairs.patience(at);
            let why = patience.why_expired(self.chairs.longest_wait);
            self.answer(at, why, woken);
        }
    }

    #[inline]
    fn seat(&mut self, at: u32, lease: C::Lease, woken: &mut WakeList<W>) {
        self.serve(at);
        self.drain.depart();
        self.finish(at, State::Leased(lease), woken);
    }

    /// Lifts everyone who has waited an interval longer.
    fn rise(&mut self, now: Nanos) {
        while let Some(at) = self.rises.ring(now, u64::MAX, &self.chairs) {
            self.lanes.remove(&mut self.chairs, at);
            self.leave(at);
            self.chairs.place_mut(at).level -= 1;
            self.enter(at);
            self.lanes.push_again(&mut self.chairs, at, &self.config);
            self.set_rise(at);
        }
    }
}

/// Takes a slot, and asks which pool it is of. It is given back if the capacity panics over that.
fn lease<C: Capacity>(
    capacity: &C,
    demand: &C::Demand,
) -> Result<(C::Lease, PoolId), LeaseError<C::Unservable>> {
    let lease = capacity.try_lease(demand)?;
    match catch_unwind(AssertUnwindSafe(|| capacity.pool(&lease))) {
        Ok(pool) => Ok((lease, pool)),
        Err(panic) => {
            capacity.release(lease);
            resume_unwind(panic)
        }
    }
}
