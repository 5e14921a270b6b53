//! What is behind the queue's lock: the items in order, and the tasks that wait for something to happen.

use std::task::Waker;
use std::time::Instant;

use super::TooLarge;
use super::cancel::Registration;
use super::consumers::Consumers;
use super::selection::{Choice, Selection};
use super::summary::Summary;
use super::trigger::BatchWaiter;
use crate::admit::{
    RejectReason, Skipped, Ticket, WaitQueue, WaiterId, WaitingRoomConfig, WakeList,
};
use crate::gate::now;
use crate::gate::reserve::ReservationWaiters;
use crate::gate::timer::{TimerRequest, Timers};

/// Batches are rarely larger.
const USUAL_BATCH: usize = 64;

pub(super) struct State<T> {
    pub(super) queue: WaitQueue<(), QueueItem<T>>,
    /// What all waiting items cost together.
    pub(super) cost: u128,
    pub(super) consumers: Consumers,
    /// Tasks that wait for a place.
    pub(super) reservation_waiters: ReservationWaiters,
    /// The task that waits until a batch is due.
    pub(super) batcher: Option<BatchWaiter>,
    pub(super) timers: Timers,
}

/// An item in the queue.
pub(super) struct QueueItem<T> {
    pub(super) item: T,
    cost: u64,
    /// How many items overtook it because it did not fit.
    overtaken: u32,
    /// What removes it when its token is cancelled.
    registration: Option<Registration>,
}

/// An item that does not wait any more, to be dropped without the lock.
pub(super) struct Removed<T> {
    pub(super) item: T,
    _registration: Option<Registration>,
}

/// Items that were taken together.
pub(super) struct Batch<T> {
    pub(super) items: Vec<T>,
    /// To be dropped without the lock.
    registrations: Vec<Registration>,
}

impl<T> Batch<T> {
    fn push(&mut self, left: QueueItem<T>) {
        self.items.push(left.item);
        self.registrations.extend(left.registration);
    }
}

/// What is left to do without the lock.
pub(super) struct Deferred<T> {
    /// Items whose wait ended, with the reason.
    pub(super) rejected: Vec<(Removed<T>, RejectReason<TooLarge>)>,
    pub(super) wakes: WakeList<Waker>,
    /// A waker that is not needed any more. Its own code runs when it is dropped.
    pub(super) unused: Option<Waker>,
}

impl<T> Default for Deferred<T> {
    fn default() -> Self {
        Self {
            rejected: Vec::new(),
            wakes: WakeList::new(),
            unused: None,
        }
    }
}

impl<T> State<T> {
    pub(super) fn new(config: WaitingRoomConfig, tracks_oldest: bool) -> Self {
        let mut queue = WaitQueue::new(config, now());
        if tracks_oldest {
            queue.track_oldest();
        }
        Self {
            queue,
            cost: 0,
            consumers: Consumers::default(),
            reservation_waiters: ReservationWaiters::default(),
            batcher: None,
            timers: Timers::default(),
        }
    }

    /// Brings the queue up to `now`: items whose wait has ended are rejected.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant, deferred: &mut Deferred<T>) {
        while let Some((id, why)) = self.queue.advance(now) {
            self.reject(id, why, deferred);
        }
    }

    /// As [`advance`](Self::advance), with the clock read only if anything depends on it.
    pub(super) fn advance_if_timed(&mut self, deferred: &mut Deferred<T>) {
        if self.queue.is_timed() {
            self.advance(now(), deferred);
        }
    }

    /// An item whose wait has ended leaves.
    #[cold]
    pub(super) fn reject(&mut self, id: WaiterId, why: RejectReason, deferred: &mut Deferred<T>) {
        let item = self.queue.take(id);
        let removed = self.account(item);
        deferred.rejected.push((removed, why.widen()));
    }

    /// Adds an item, or gives it back with the reason.
    #[inline]
    pub(super) fn push(
        &mut self,
        (item, cost): (T, u64),
        ticket: Ticket,
        now: Instant,
        deferred: &mut Deferred<T>,
    ) -> Result<WaiterId, (T, RejectReason)> {
        self.advance(now, deferred);
        let mut item = Some(item);
        let new = |_| QueueItem {
            item: item
                .take()
                .unwrap_or_else(|| unreachable!("it is pushed once")),
            cost,
            overtaken: 0,
            registration: None,
        };
        match self.queue.push(ticket, (), now, new) {
            Ok(pushed) => {
                self.cost += u128::from(cost);
                if let Some(displaced) = pushed.displaced {
                    self.reject(displaced, RejectReason::Displaced, deferred);
                }
                Ok(pushed.id)
            }
            Err(why) => match item {
                Some(item) => Err((item, why)),
                None => unreachable!("an item that is not pushed is not taken"),
            },
        }
    }

    /// Takes the item that goes next.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Removed<T>> {
        let next = self.queue.peek()?;
        let item = self.queue.pop(next)?;
        Some(self.account(item))
    }

    /// Takes the items that join a batch now.
    pub(super) fn select(&mut self, mut selection: Selection) -> Batch<T> {
        let most = selection.most().min(self.queue.len());
        let mut batch = Batch {
            items: Vec::with_capacity(most.min(USUAL_BATCH)),
            registrations: Vec::new(),
        };
        let mut skipped: Vec<(Skipped, u32)> = Vec::new();
        while let Some(next) = self.queue.peek() {
            let item = self.queue.get(next);
            match selection.look(item.cost, item.overtaken) {
                Choice::Take => {
                    if let Some(item) = self.queue.pop(next) {
                        self.cost -= u128::from(item.cost);
                        batch.push(item);
                    }
                }
                Choice::Pass => skipped.push((self.queue.skip(next), selection.taken)),
                Choice::End => break,
            }
        }
        for (skipped, taken_before) in skipped {
            self.queue.get_mut(skipped.id()).overtaken += selection.taken - taken_before;
            self.queue.restore(skipped);
        }
        batch
    }

    /// Removes an item, if it still waits.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Removed<T>> {
        let item = self.queue.remove(id)?;
        Some(self.account(item))
    }

    /// An item has left the queue.
    #[inline]
    fn account(&mut self, item: QueueItem<T>) -> Removed<T> {
        self.cost -= u128::from(item.cost);
        Removed {
            item: item.item,
            _registration: item.registration,
        }
    }

    /// Keeps the registration for as long as the item waits. Gives it back if it does not.
    pub(super) fn register(
        &mut self,
        id: WaiterId,
        registration: Registration,
    ) -> Option<Registration> {
        match self.queue.waits(id) {
            true => self.queue.get_mut(id).registration.replace(registration),
            false => Some(registration),
        }
    }

    /// A consumer has an item, or has gone.
    pub(super) fn forget_consumer(&mut self, number: &mut Option<u64>) -> Option<Waker> {
        self.consumers.leave(number.take()?)
    }

    /// What a reservation is made in, and what waits for one.
    pub(super) fn reservations(
        &mut self,
    ) -> (&mut WaitQueue<(), QueueItem<T>>, &mut ReservationWaiters) {
        (&mut self.queue, &mut self.reservation_waiters)
    }

    /// Whether no task waits for anything to happen.
    #[inline]
    pub(super) fn has_no_waiters(&self) -> bool {
        self.consumers.none_waits() && self.reservation_waiters.is_empty() && self.batcher.is_none()
    }

    /// Collects the wakers of tasks that waited for what is so now.
    pub(super) fn notify(&mut self, wakes: &mut WakeList<Waker>) {
        let is_closed = self.queue.is_closed();
        let has_ended = is_closed && self.queue.is_empty();
        let items = if has_ended {
            usize::MAX
        } else {
            self.queue.len()
        };
        self.consumers.wake(items, wakes);
        if !self.reservation_waiters.is_empty() && (self.queue.has_room() || is_closed) {
            self.reservation_waiters.wake_all(wakes);
        }
        if let Some(waker) = self.call_batcher() {
            wakes.push(waker);
        }
    }

    pub(super) fn summary(&self) -> Summary {
        Summary::new(self.queue.len(), self.queue.is_closed())
    }

    /// Items wait, and the runtime that calls this is one in which their waits are to end.
    #[inline]
    pub(super) fn arm_timer_here(&mut self) -> Option<TimerRequest> {
        self.timers.arm_here(self.queue.next_timeout())
    }
}
