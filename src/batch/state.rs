//! The state behind the queue's lock, which has the items in order and the tasks that wait for a change.

use std::task::Waker;
use std::time::Instant;

use super::DequeueError;
use super::consumers::Consumers;
use super::deferred::Deferred;
use super::selection::{Choice, Selection};
use super::trigger::BatchWaiter;
use crate::admit::nanos::Epoch;
use crate::admit::{RejectReason, Skipped, Ticket, WaitQueue, WaiterId, WaitingRoomConfig};
use crate::gate::now;
use crate::gate::reserve::ReservationWaiters;
use crate::gate::timer::{TimerRequest, Timers};
use crate::on_cancel::OnCancel;

/// The number of items for which memory is reserved when a batch is made. Most batches are smaller.
const USUAL_BATCH: usize = 64;

pub(super) struct State<T> {
    pub(super) queue: WaitQueue<(), ItemMeta>,
    /// The items by the index of their waiter. An item is here for as long as its entry is in the queue.
    pub(super) items: Items<T>,
    /// The cost of all waiting items together. It has 128 bits, because the sum may exceed 64.
    pub(super) cost: u128,
    pub(super) consumers: Consumers,
    /// The tasks that wait for a place.
    pub(super) reservation_waiters: ReservationWaiters,
    /// The task that waits until a batch is due.
    pub(super) batcher: Option<BatchWaiter>,
    pub(super) timers: Timers,
}

/// The data of an item in the queue, besides the item itself.
pub(super) struct ItemMeta {
    cost: u64,
    /// The number of items that overtook this one, in all batches so far, because it did not fit.
    overtaken: u32,
    /// The registration that removes the item when its token is cancelled.
    registration: Option<OnCancel>,
}

impl<T> State<T> {
    pub(super) fn new(config: WaitingRoomConfig) -> Self {
        let epoch = now();
        Self {
            queue: WaitQueue::new(config, epoch),
            items: Items::new(),
            cost: 0,
            consumers: Consumers::default(),
            reservation_waiters: ReservationWaiters::default(),
            batcher: None,
            timers: Timers::new(Epoch(epoch)),
        }
    }

    /// Brings the queue up to `now`. Rejects expired items, and promotes those that waited long enough.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant, deferred: &mut Deferred<T>) {
        self.advance_to(self.queue.nanos(now), deferred);
    }

    #[inline]
    fn advance_to(&mut self, now: u64, deferred: &mut Deferred<T>) {
        // The loop ends because each round unlinks an item.
        while let Some((id, why)) = self.queue.advance_to(now) {
            self.reject(id, why, deferred);
        }
    }

    /// Brings the queue up to the present like [`advance`](Self::advance). Reads the clock only if a wait can end or an
    /// item can be promoted.
    #[inline]
    pub(super) fn advance_if_timed(&mut self, deferred: &mut Deferred<T>) {
        if self.queue.is_timed() {
            self.advance_if_due(deferred);
        }
    }

    #[inline(never)]
    fn advance_if_due(&mut self, deferred: &mut Deferred<T>) {
        // Reading the clock takes about 25 ns.
        if let Some(now) = self.queue.due(now) {
            self.advance(now, deferred);
        }
    }

    /// Rejects an item that the queue has unlinked.
    #[cold]
    pub(super) fn reject(&mut self, id: WaiterId, why: RejectReason, deferred: &mut Deferred<T>) {
        let meta = self.queue.take(id);
        let item = self.take_item(id, meta, deferred);
        let rejected = item.map(|item| (item, why.widen()));
        deferred.more().rejected.extend(rejected);
    }

    /// Adds an entry for an item. The caller then stores the item itself in `items` under the returned id.
    #[inline]
    pub(super) fn push(
        &mut self,
        cost: u64,
        ticket: Ticket,
        now: Instant,
        deferred: &mut Deferred<T>,
    ) -> Result<WaiterId, RejectReason> {
        let now = self.queue.nanos(now);
        self.advance_to(now, deferred); // this may free a place
        let meta = ItemMeta {
            cost,
            overtaken: 0,
            registration: None,
        };
        let pushed = self.queue.push_at(ticket, (), now, |_| meta)?;
        self.cost += u128::from(cost);
        if let Some(displaced) = pushed.displaced {
            self.reject(displaced, RejectReason::Displaced, deferred);
        }
        Ok(pushed.id)
    }

    /// Takes the item that is next.
    #[inline]
    pub(super) fn pop(&mut self, deferred: &mut Deferred<T>) -> Option<T> {
        let next = self.queue.peek()?;
        self.serve(next, deferred)
    }

    /// Takes an item that waits.
    #[inline]
    fn serve(&mut self, id: WaiterId, deferred: &mut Deferred<T>) -> Option<T> {
        let meta = self.queue.serve(id);
        self.take_item(id, meta, deferred)
    }

    /// Takes the items of a batch, in order.
    pub(super) fn select(
        &mut self,
        mut selection: Selection,
        deferred: &mut Deferred<T>,
    ) -> Vec<T> {
        let max_count = selection.max_count().min(self.queue.len());
        let mut batch = Vec::with_capacity(max_count.min(USUAL_BATCH));
        // Each skipped item comes with the number of items that were taken before it.
        let mut skipped: Vec<(Skipped, u32)> = Vec::new();
        // The loop ends because each round but the last takes or hides an item.
        while let Some(next) = self.queue.peek() {
            let item = self.queue.get(next);
            match selection.choose(item.cost, item.overtaken) {
                Choice::Take => batch.extend(self.serve(next, deferred)),
                Choice::Skip => skipped.push((self.queue.skip(next), selection.taken)),
                Choice::End => break,
            }
        }
        // Items that were taken after a skipped item have overtaken it. The loop runs backwards, so that each item
        // becomes the head again.
        for (skipped, taken_before) in skipped.into_iter().rev() {
            self.queue.get_mut(skipped.id()).overtaken += selection.taken - taken_before;
            self.queue.restore(skipped);
        }
        batch
    }

    /// Removes an item, if it still waits.
    pub(super) fn remove(&mut self, id: WaiterId, deferred: &mut Deferred<T>) -> Option<T> {
        let meta = self.queue.remove(id)?;
        self.take_item(id, meta, deferred)
    }

    /// Takes the item of a waiter that left the queue, and subtracts its cost.
    #[inline]
    fn take_item(&mut self, id: WaiterId, meta: ItemMeta, deferred: &mut Deferred<T>) -> Option<T> {
        self.cost -= u128::from(meta.cost);
        deferred.unregister(meta.registration);
        self.items.take(id.index())
    }

    /// Keeps the registration for as long as the item waits. Returns it if the item has already left.
    pub(super) fn register(&mut self, id: WaiterId, registration: OnCancel) -> Option<OnCancel> {
        match self.queue.waits(id) {
            true => self.queue.get_mut(id).registration.replace(registration),
            false => Some(registration),
        }
    }

    /// Removes a consumer that took an item or was dropped, if it ever waited. Returns a waker that has become unused.
    #[inline]
    pub(super) fn forget_consumer(&mut self, id: &mut Option<u64>) -> Option<Waker> {
        self.consumers.remove(id.take()?)
    }

    /// Returns the queue in which a place is reserved, and the tasks that wait for a place.
    pub(super) fn reservations(
        &mut self,
    ) -> (&mut WaitQueue<(), ItemMeta>, &mut ReservationWaiters) {
        (&mut self.queue, &mut self.reservation_waiters)
    }

    /// Returns `true` if all lists of waiting tasks are empty, so that [`notify`](Self::notify) has nothing to do.
    #[inline]
    pub(super) fn has_no_waiters(&self) -> bool {
        self.consumers.is_empty() && self.reservation_waiters.is_empty() && self.batcher.is_none()
    }

    /// Collects the wakers of tasks that have what they wait for.
    #[inline(never)]
    pub(super) fn notify(&mut self, deferred: &mut Deferred<T>) {
        let is_closed = self.queue.is_closed();
        let has_ended = is_closed && self.queue.is_empty();
        let items = if has_ended {
            usize::MAX // wakes all consumers
        } else {
            self.queue.len()
        };
        self.consumers.wake(items, deferred);
        // All of these tasks are woken and some wait again, which is cheap enough because reservations are rare.
        if !self.reservation_waiters.is_empty() && (self.queue.has_room() || is_closed) {
            self.reservation_waiters
                .wake_all(&mut deferred.more().wakes);
        }
        if let Some(waker) = self.call_batcher() {
            deferred.wake(waker);
        }
    }

    pub(super) fn atomic_state(&self) -> AtomicState {
        AtomicState::new(self.queue.len(), self.queue.is_closed())
    }

    /// Asks for a timer in the runtime that calls this, if waiting items can expire and the armed timers would fire too
    /// late.
    #[inline]
    pub(super) fn arm_timer_here(&mut self) -> Option<TimerRequest> {
        if self.queue.is_empty() {
            return None;
        }
        // The time may be too early. The timer is then woken once and sleeps again.
        self.timers.arm_here(self.queue.first_end())
    }

    /// Gives back the memory of items, as far as the queue has given back that of their entries.
    #[inline]
    pub(super) fn trim(&mut self) {
        self.items.trim(self.queue.capacity());
    }
}

/// The items by the index of their waiter: those that wait, and those that were unlinked but have not been taken.
pub(super) struct Items<T>(Vec<Option<T>>);

impl<T> Items<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Stores the item of the waiter with this index, which must be free.
    #[inline]
    pub(super) fn put(&mut self, idx: usize, item: T) {
        // Indices are given again once they are free, so the vector is as long as the largest number of items that ever
        // waited at the same time.
        if idx >= self.0.len() {
            self.0.resize_with(idx + 1, || None);
        }
        self.0[idx] = Some(item);
    }

    /// Takes an item out, or returns `None` if the waiter has none.
    #[inline]
    pub(super) fn take(&mut self, idx: usize) -> Option<T> {
        self.0[idx].take()
    }

    /// Gives back the memory of items from the index `capacity` on, which are gone.
    #[inline]
    pub(super) fn trim(&mut self, capacity: usize) {
        if self.0.len() > capacity {
            self.0.truncate(capacity);
            self.0.shrink_to_fit();
        }
    }
}

/// A word that is read without the lock: the number of waiting items in the lower 63 bits, and [`CLOSED`] in the top bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AtomicState(pub(super) u64);

/// The top bit, which is set once the queue stops accepting items.
const CLOSED: u64 = 1 << 63;

impl AtomicState {
    pub(super) fn new(waiting: usize, is_closed: bool) -> Self {
        let closed = if is_closed { CLOSED } else { 0 };
        Self(waiting as u64 | closed) // fewer than 2^63 items fit into memory
    }

    pub(super) fn waiting(self) -> usize {
        (self.0 & !CLOSED) as usize
    }

    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Returns the reason why a consumer found the queue empty.
    pub(super) fn dequeue_error(self) -> DequeueError {
        // An item may have arrived since, before the queue was closed, and has yet to be taken.
        match self.is_closed() && self.waiting() == 0 {
            true => DequeueError::Closed,
            false => DequeueError::Empty,
        }
    }
}
