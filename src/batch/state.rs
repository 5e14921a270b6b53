//! The state behind the queue's lock: the items in order, and the tasks that wait for a change.

use std::task::Waker;
use std::time::Instant;

use super::TooLarge;
use super::atomic_state::AtomicState;
use super::cancel::Registration;
use super::consumers::Consumers;
use super::selection::{Choice, Selection};
use super::trigger::BatchWaiter;
use crate::admit::{
    RejectReason, Skipped, Ticket, WaitQueue, WaiterId, WaitingRoomConfig, WakeList,
};
use crate::gate::now;
use crate::gate::reserve::ReservationWaiters;
use crate::gate::timer::{TimerRequest, Timers};

/// Memory for so many items is reserved when a batch is made. Most batches are smaller.
const USUAL_BATCH: usize = 64;

pub(super) struct State<T> {
    pub(super) queue: WaitQueue<(), QueueItem<T>>,
    /// What all waiting items cost together. 64 bits may not be enough for their sum.
    pub(super) cost: u128,
    pub(super) consumers: Consumers,
    /// Tasks that wait for a place.
    pub(super) reservation_waiters: ReservationWaiters,
    /// The task that waits until a batch is due.
    pub(super) batcher: Option<BatchWaiter>,
    pub(super) timers: Timers,
}

/// An item in the queue. To be dropped without the lock, as an item's destructor is the caller's code.
pub(super) struct QueueItem<T> {
    pub(super) item: T,
    cost: u64,
    /// How many items overtook it, in all batches so far, because it did not fit.
    overtaken: u32,
    /// What removes it when its token is cancelled.
    registration: Option<Registration>,
}

/// The items of a batch.
pub(super) struct TakenItems<T> {
    pub(super) items: Vec<T>,
    /// To be dropped without the lock: that drops a waker of the token's.
    registrations: Vec<Registration>,
}

/// What is to be done after the lock is released.
pub(super) struct Deferred<T> {
    /// Expired items, with the reason.
    pub(super) rejected: Vec<(QueueItem<T>, RejectReason<TooLarge>)>,
    pub(super) wakes: WakeList<Waker>,
    /// A waker that is not needed any more. Its destructor is the caller's code.
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
    pub(super) fn new(config: WaitingRoomConfig) -> Self {
        Self {
            queue: WaitQueue::new(config, now()),
            cost: 0,
            consumers: Consumers::default(),
            reservation_waiters: ReservationWaiters::default(),
            batcher: None,
            timers: Timers::default(),
        }
    }

    /// Brings the queue up to `now`: rejects expired items, and promotes those that waited long enough.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant, deferred: &mut Deferred<T>) {
        self.advance_to(self.queue.nanos(now), deferred);
    }

    #[inline]
    fn advance_to(&mut self, now: u64, deferred: &mut Deferred<T>) {
        while let Some((id, why)) = self.queue.advance_to(now) {
            self.reject(id, why, deferred);
        }
    }

    /// As [`advance`](Self::advance), but reads the clock only if a wait can end or an item can be promoted.
    pub(super) fn advance_if_timed(&mut self, deferred: &mut Deferred<T>) {
        // Reading it costs about 25 ns.
        if self.queue.is_timed() {
            self.advance(now(), deferred);
        }
    }

    /// Rejects an item that the queue has unlinked.
    #[cold]
    pub(super) fn reject(&mut self, id: WaiterId, why: RejectReason, deferred: &mut Deferred<T>) {
        let item = self.queue.take(id);
        self.cost -= u128::from(item.cost);
        deferred.rejected.push((item, why.widen()));
    }

    /// Takes the item out and adds it. Leaves it there if it is rejected.
    #[inline]
    pub(super) fn push(
        &mut self,
        (item, cost): (&mut Option<T>, u64),
        ticket: Ticket,
        now: Instant,
        deferred: &mut Deferred<T>,
    ) -> Result<WaiterId, RejectReason> {
        let now = self.queue.nanos(now);
        self.advance_to(now, deferred); // may free a place
        let new = |_| QueueItem {
            item: item
                .take()
                .unwrap_or_else(|| unreachable!("called at most once")),
            cost,
            overtaken: 0,
            registration: None,
        };
        let pushed = self.queue.push_at(ticket, (), now, new)?;
        self.cost += u128::from(cost);
        if let Some(displaced) = pushed.displaced {
            self.reject(displaced, RejectReason::Displaced, deferred);
        }
        Ok(pushed.id)
    }

    /// Takes the item that is next.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<QueueItem<T>> {
        let next = self.queue.peek()?;
        let item = self.queue.pop(next);
        self.cost -= item.as_ref().map_or(0, |item| u128::from(item.cost));
        item
    }

    /// Takes the items of a batch, in order.
    pub(super) fn select(&mut self, mut selection: Selection) -> TakenItems<T> {
        let max_count = selection.max_count().min(self.queue.len());
        let mut batch = TakenItems {
            items: Vec::with_capacity(max_count.min(USUAL_BATCH)),
            registrations: Vec::new(),
        };
        // With the number of items that were taken before each.
        let mut skipped: Vec<(Skipped, u32)> = Vec::new();
        while let Some(next) = self.queue.peek() {
            let item = self.queue.get(next);
            match selection.choose(item.cost, item.overtaken) {
                Choice::Take => {
                    if let Some(item) = self.queue.pop(next) {
                        self.cost -= u128::from(item.cost);
                        batch.items.push(item.item);
                        batch.registrations.extend(item.registration);
                    }
                }
                Choice::Skip => skipped.push((self.queue.skip(next), selection.taken)),
                Choice::End => break,
            }
        }
        // Those that were taken after a skipped item have overtaken it. Backwards, so that each becomes the head.
        for (skipped, taken_before) in skipped.into_iter().rev() {
            self.queue.get_mut(skipped.id()).overtaken += selection.taken - taken_before;
            self.queue.restore(skipped);
        }
        batch
    }

    /// Removes an item, if it still waits.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<QueueItem<T>> {
        let item = self.queue.remove(id)?;
        self.cost -= u128::from(item.cost);
        Some(item)
    }

    /// Keeps the registration for as long as the item waits. Returns it if the item has left already.
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

    /// Removes a consumer that took an item or was dropped, if it ever waited. Returns a waker that is not needed any
    /// more.
    pub(super) fn forget_consumer(&mut self, id: &mut Option<u64>) -> Option<Waker> {
        self.consumers.remove(id.take()?)
    }

    /// The queue in which a place is reserved, and the tasks that wait for one.
    pub(super) fn reservations(
        &mut self,
    ) -> (&mut WaitQueue<(), QueueItem<T>>, &mut ReservationWaiters) {
        (&mut self.queue, &mut self.reservation_waiters)
    }

    /// Whether no task waits for a change, so that [`notify`](Self::notify) has nothing to do.
    #[inline]
    pub(super) fn has_no_waiters(&self) -> bool {
        self.consumers.is_empty() && self.reservation_waiters.is_empty() && self.batcher.is_none()
    }

    /// Collects the wakers of tasks that have what they wait for.
    pub(super) fn notify(&mut self, wakes: &mut WakeList<Waker>) {
        let is_closed = self.queue.is_closed();
        let has_ended = is_closed && self.queue.is_empty();
        let items = if has_ended {
            usize::MAX // wakes all consumers
        } else {
            self.queue.len()
        };
        self.consumers.wake(items, wakes);
        // All of them, of which some wait again: reservations are rare.
        if !self.reservation_waiters.is_empty() && (self.queue.has_room() || is_closed) {
            self.reservation_waiters.wake_all(wakes);
        }
        if let Some(waker) = self.call_batcher() {
            wakes.push(waker);
        }
    }

    pub(super) fn atomic_state(&self) -> AtomicState {
        AtomicState::new(self.queue.len(), self.queue.is_closed())
    }

    /// Asks for a timer in the runtime that calls this, if waiting items can expire and none is armed early enough.
    #[inline]
    pub(super) fn arm_timer_here(&mut self) -> Option<TimerRequest> {
        self.timers.arm_here(self.queue.next_timeout())
    }
}
