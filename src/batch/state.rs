//! What is behind the queue's lock: the room, and who waits for something to happen in it.

use std::collections::HashMap;
use std::task::Waker;
use std::time::Instant;

use super::TooLarge;
use super::cancel::Registration;
use super::capacity::Fetched;
use super::consumers::Consumers;
use super::selection::{Choice, Selection};
use super::summary::Summary;
use super::trigger::BatchWaiter;
use crate::admit::{
    Express, Nanos, RejectReason, Skipped, Ticket, Times, WaiterId, WaitingRoom, WaitingRoomConfig,
    WakeList,
};
use crate::gate::now;
use crate::gate::reserve::ReservationWaiters;
use crate::gate::timer::{TimerRequest, Timers};

/// A batch is rarely larger.
const USUAL: usize = 64;

/// In this order for the reason that [`Shared`](super::shared::Shared) is in its.
#[repr(C)]
pub(super) struct State<T> {
    /// What all who wait cost together.
    pub(super) cost: u128,
    pub(super) room: WaitingRoom<Fetched, Entry<T>>,
    pub(super) consumers: Consumers,
    /// Who waits for a chair.
    pub(super) reservation_waiters: ReservationWaiters,
    /// Who waits until a batch is due.
    pub(super) batcher: Option<BatchWaiter>,
    pub(super) timers: Timers,
    /// What takes a waiter out when its token is cancelled, by chair.
    registrations: HashMap<u32, Registration>,
}

/// What waits on a chair. It is small beside the item, for a line of memory holds it all if the item is.
pub(super) struct Entry<T> {
    pub(super) item: T,
    /// The chair.
    at: u32,
    /// How many went before it because it did not fit.
    overtaken: u32,
}

impl<T> Entry<T> {
    #[inline(always)]
    pub(super) fn new(item: T, key: WaiterId) -> Self {
        Self {
            item,
            at: key.chair(),
            overtaken: 0,
        }
    }
}

/// One who waits no longer.
pub(super) struct Left<T> {
    pub(super) item: T,
    /// To be dropped without the lock.
    registration: Option<Registration>,
}

/// Those who were taken together.
pub(super) struct Batch<T> {
    pub(super) items: Vec<T>,
    /// To be dropped without the lock.
    registrations: Vec<Registration>,
}

impl<T> Batch<T> {
    fn extend(&mut self, left: Option<Left<T>>) {
        if let Some(Left { item, registration }) = left {
            self.items.push(item);
            self.registrations.extend(registration);
        }
    }
}

impl<T> State<T> {
    pub(super) fn new(config: WaitingRoomConfig, tracks_oldest: bool) -> Self {
        let mut room = WaitingRoom::new(config, now());
        if tracks_oldest {
            room.track_oldest();
        }
        Self {
            room,
            cost: 0,
            consumers: Consumers::default(),
            reservation_waiters: ReservationWaiters::default(),
            batcher: None,
            timers: Timers::default(),
            registrations: HashMap::new(),
        }
    }

    /// Whose wait has ended by now is not taken.
    pub(super) fn keep_time(&mut self, ended: &mut WakeList<Entry<T>>) {
        if self.room.is_timed() {
            self.room.keep_time(now(), ended);
        }
    }

    /// The best of those whose wait has not ended, by what the time is if that matters.
    #[inline]
    pub(super) fn take_best(
        &mut self,
        now: Option<Instant>,
        ended: &mut WakeList<Entry<T>>,
    ) -> Option<Left<T>> {
        if let Some(now) = now {
            self.room.keep_time(now, ended);
        }
        let best = self.room.head()?;
        self.take(best)
    }

    /// The ticket's holder, if it may sit down by the short way and the timer need not be told.
    #[inline(always)]
    pub(super) fn express(&self, ticket: &Ticket, times: Times) -> Option<Express> {
        let who = self.room.express(ticket, &(), times)?;
        let has_timer = !self.room.is_timed() || self.timers.are_armed_here();
        has_timer.then_some(who)
    }

    #[inline(always)]
    pub(super) fn sit_down(&mut self, who: Express, cost: u64, item: T) -> WaiterId {
        self.cost += u128::from(cost);
        let note = |key| Some(Entry::new(item, key));
        self.room.sit_down(who, cost, note)
    }

    /// The best of those who wait, by the short way, if nothing else happens by `now`, and what it costs is `wanted`.
    #[inline(always)]
    pub(super) fn take_express(
        &mut self,
        now: Nanos,
        wanted: Option<impl FnOnce(&u64) -> bool>,
    ) -> Option<T> {
        if !self.registrations.is_empty() {
            return None;
        }
        let (cost, entry) = self.room.take_express(now, wanted)?;
        self.cost -= u128::from(cost);
        Some(entry.item)
    }

    /// Those who join a batch now, up to which [time was kept](Self::keep_time).
    pub(super) fn select(&mut self, mut selection: Selection) -> Batch<T> {
        let most = selection.most().min(self.room.len());
        let mut batch = Batch {
            items: Vec::new(),
            registrations: Vec::new(),
        };
        while let Some(item) = self.take_express(0, Some(|&cost: &u64| selection.takes(cost))) {
            if batch.items.is_empty() {
                batch.items.reserve(most.min(USUAL));
            }
            batch.items.push(item);
        }
        self.select_the_rest(selection, &mut batch);
        batch
    }

    fn select_the_rest(&mut self, mut selection: Selection, batch: &mut Batch<T>) {
        let mut passed: Vec<(Skipped, u32)> = Vec::new();
        while let Some(best) = self.room.head()
            && let Some(entry) = self.room.note(best)
        {
            match selection.look(*self.room.demand(best), entry.overtaken) {
                Choice::Take => batch.extend(self.take(best)),
                Choice::Pass => passed.push((self.room.skip(best), selection.taken)),
                Choice::End => break,
            }
        }
        for (aside, taken_before) in passed {
            if let Some(entry) = self.room.note_mut(aside.key()) {
                entry.overtaken += selection.taken - taken_before;
            }
            self.room.restore(aside);
        }
    }

    fn take(&mut self, key: WaiterId) -> Option<Left<T>> {
        let (cost, entry) = self.room.take(key)?;
        self.cost -= u128::from(cost);
        Some(self.leave(entry))
    }

    #[inline(always)]
    fn leave(&mut self, Entry { item, at, .. }: Entry<T>) -> Left<T> {
        let registration = match self.registrations.is_empty() {
            true => None,
            false => self.registrations.remove(&at),
        };
        Left { item, registration }
    }

    /// Takes the waiter out, if it still waits.
    pub(super) fn cancel(&mut self, key: WaiterId) -> Option<Left<T>> {
        if !self.room.waits(key) {
            return None;
        }
        self.cost -= u128::from(*self.room.demand(key));
        let (_, entry) = self.room.cancel(key);
        entry.map(|entry| self.leave(entry))
    }

    /// Keeps the registration for as long as the waiter waits. Gives back one that is of no use any more.
    pub(super) fn register(
        &mut self,
        key: WaiterId,
        registration: Registration,
    ) -> Option<Registration> {
        match self.room.waits(key) {
            true => self.registrations.insert(key.chair(), registration),
            false => Some(registration),
        }
    }

    /// Why the waits ended that did.
    #[cold]
    pub(super) fn reasons(
        &mut self,
        ended: WakeList<Entry<T>>,
        capacity: &Fetched,
    ) -> Vec<(Left<T>, RejectReason<TooLarge>)> {
        let mut rejected = Vec::new();
        for entry in ended {
            let key = self.room.key_of(entry.at);
            let cost = *self.room.demand(key);
            self.cost -= u128::from(cost);
            if let Some(Err(why)) = self.room.take_outcome(key) {
                rejected.push((self.leave(entry), capacity.to_rejection(why, cost)));
            }
        }
        rejected
    }

    /// A consumer has what it came for, or has gone.
    pub(super) fn gone(&mut self, number: &mut Option<u64>) -> Option<Waker> {
        self.consumers.leave(number.take()?)
    }

    /// Whether only consumers wait for anything to happen.
    #[inline]
    pub(super) fn concerns_consumers(&self) -> bool {
        self.reservation_waiters.is_empty() && self.batcher.is_none() && !self.room.is_closed()
    }

    /// Whether nobody waits for anything to happen.
    #[inline]
    pub(super) fn concerns_nobody(&self) -> bool {
        self.consumers.none_waits() && self.reservation_waiters.is_empty() && self.batcher.is_none()
    }

    /// Wakes whoever waited for what is so now.
    pub(super) fn tell(&mut self, wakers: &mut WakeList<Waker>) {
        let is_closed = self.room.is_closed();
        let nothing_will_come = is_closed && self.room.is_empty();
        let requests = if nothing_will_come {
            usize::MAX
        } else {
            self.room.len()
        };
        self.consumers.wake(requests, wakers);
        if !self.reservation_waiters.is_empty() && (self.room.has_chair() || is_closed) {
            self.reservation_waiters.wake_all(wakers);
        }
        if let Some(waker) = self.call_batcher() {
            wakers.push(waker);
        }
    }

    pub(super) fn summary(&self) -> Summary {
        Summary::new(self.room.len(), self.room.is_closed(), self.room.is_timed())
    }

    /// Requests wait, and the runtime that calls this is one in which their waits are to end.
    #[inline]
    pub(super) fn arm_timer_here(&mut self) -> Option<TimerRequest> {
        self.timers.arm_here(self.room.next_end())
    }
}
