//! The state that all handles of a queue share. Each change of it follows the [rules](crate::gate::with_lock) of a
//! gate's, and some more:
//!
//! - Costs are computed before the lock is taken, and rejections are reported after it is released. A token that is
//!   cancelled removes its item through this lock.
//! - The atomic word is `atomic_state`, with the number of waiting items and the closed flag. A reader that finds the
//!   queue empty there can do without the lock, and an item that is enqueued meanwhile counts as later.
//! - Before the lock is released, a consumer is chosen to be woken for each item, as far as consumers wait.
//! - An item is in one place only, which is the queue or the call that took it out under the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Instant;

use super::builder::RequestQueueBuilder;
use super::deferred::{Deferred, More};
use super::queue::next_queue_id;
use super::selection::Selection;
use super::state::{AtomicState, State};
use super::worker::discard;
use super::{Cost, EnqueueError, OnOversize, TooLarge};
use crate::admit::wake_list::wake;
use crate::admit::{RejectReason, Ticket, WaiterId, WaitingRoomConfig};
use crate::gate::now;
use crate::gate::reserve::ReservationHost;
use crate::gate::timer::{RuntimeId, TimerHost, TimerRequest};
use crate::gate::with_lock::WithLock;
use crate::on_cancel::OnCancel;
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Relaxed};

pub(super) type OnRejected<T> = dyn Fn(T, RejectReason<TooLarge>) + Send + Sync;

pub(super) struct Shared<T> {
    /// An [`AtomicState`], which is written with each change under the lock.
    atomic_state: AtomicU64,
    state: Mutex<State<T>>,
    /// The number that distinguishes the ids of this queue's items from those of other queues.
    pub(super) queue_id: u32,
    /// The largest cost of a batch. An item that costs more is rejected.
    budget: u64,
    cost: Option<Box<dyn Cost<T>>>,
    on_oversize: OnOversize,
    on_rejected: Option<Box<OnRejected<T>>>,
}

impl<T: Send + 'static> Shared<T> {
    /// Adds an item. If `has_reservation`, it takes a place that was reserved for it.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        item: T,
        ticket: Ticket,
        has_reservation: bool,
    ) -> Result<WaiterId, EnqueueError<T>> {
        // The cost function is the caller's code and may panic. So it runs without the lock, before anything has
        // changed.
        let cost = self.cost.as_ref().map_or(1, |cost| cost.cost(&item));
        let now = now();
        let mut change = self.change();
        let (state, deferred) = change.parts();
        // The reservation ends under the lock that adds the item, so that other items cannot take the place.
        if has_reservation {
            state.queue.unreserve();
        }
        let pushed = match self.too_large(cost) {
            // The item would never fit. But a closed queue reports that it is closed.
            Some(why) if !state.queue.is_closed() => {
                state.queue.count_rejected(&why);
                Err(why)
            }
            _ => state
                .push(cost, ticket, now, deferred)
                .map_err(RejectReason::widen),
        };
        match pushed {
            Ok(id) => {
                state.items.put(id.index(), item);
                let timer = state.arm_timer_here();
                drop(change);
                self.run(timer);
                Ok(id)
            }
            Err(why) => {
                drop(change);
                Err(EnqueueError { item, reason: why })
            }
        }
    }

    /// Takes the item that is next. If the queue is empty, resolves to `None` when it is closed, and otherwise the
    /// consumer waits.
    pub(super) fn poll_dequeue(
        self: &Arc<Self>,
        cx: &Context<'_>,
        id: &mut Option<u64>,
    ) -> Poll<Option<T>> {
        // The first attempt is made without a timer, because a consumer that finds an item does not need one.
        let item = self.dequeue(id);
        if item.is_some() {
            return Poll::Ready(item);
        }
        self.poll_as_consumer(cx, id, |state, deferred| {
            state.advance_if_timed(deferred);
            match state.pop(deferred) {
                Some(item) => Poll::Ready(Some(item)),
                None if state.queue.is_closed() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
    }

    /// Resolves to `true` if an item waits, and to `false` if the queue is closed and empty. Otherwise the consumer
    /// waits.
    pub(super) fn poll_nonempty(
        self: &Arc<Self>,
        cx: &Context<'_>,
        id: &mut Option<u64>,
    ) -> Poll<bool> {
        self.poll_as_consumer(cx, id, |state, deferred| {
            state.advance_if_timed(deferred);
            match state.queue.is_empty() {
                false => Poll::Ready(true),
                true if state.queue.is_closed() => Poll::Ready(false),
                true => Poll::Pending,
            }
        })
    }

    /// Polls `look`. If that is pending, the consumer waits.
    fn poll_as_consumer<R>(
        self: &Arc<Self>,
        cx: &Context<'_>,
        id: &mut Option<u64>,
        look: impl Fn(&mut State<T>, &mut Deferred<T>) -> Poll<R>,
    ) -> Poll<R> {
        // The first attempt uses the stored waker if it wakes the same task, because most polls then need no clone.
        if id.is_some() || !self.is_empty() {
            let found = self.change_with_timer(|state, deferred| {
                let found = look(state, deferred);
                if found.is_ready() {
                    deferred.discard(state.forget_consumer(id));
                    return Some(found);
                }
                state.consumers.will_wake(*id, cx.waker()).then_some(found)
            });
            if let Some(found) = found {
                return found;
            }
        }
        // The waker is cloned and dropped without the lock, because its code is the caller's. An item may have arrived
        // meanwhile.
        let waker = cx.waker().clone();
        let (found, unused) = self.change_with_timer(|state, deferred| {
            let found = look(state, deferred);
            if found.is_ready() {
                deferred.discard(state.forget_consumer(id));
                return (found, Some(waker));
            }
            (found, state.consumers.wait(id, waker))
        });
        discard(unused); // caught, because unwinding would lose an item that was found
        found
    }

    /// Lets a new consumer wait if the queue is empty and accepts requests. Returns `true` if the consumer waits.
    pub(super) fn wait_if_empty(&self, cx: &Context<'_>, id: &mut Option<u64>) -> bool {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        // `waker` was declared before the guard, so an unused one is dropped after the lock is released.
        let is_empty = state.queue.is_empty() && !state.queue.is_closed();
        if is_empty {
            state.consumers.push(id, waker);
        }
        is_empty
    }

    pub(super) fn reconfigure(self: &Arc<Self>, config: WaitingRoomConfig) {
        let now = now();
        let timers = self.change_with_timer(|state, deferred| {
            state.advance(now, deferred);
            for (id, why) in state.queue.reconfigure(config, now) {
                state.reject(id, why, deferred);
            }
            // Tasks that wait for a place are woken too, because with a `max_size` of 0 they would wait for ever.
            state
                .reservation_waiters
                .wake_all(&mut deferred.more().wakes);
            state.timers.rearm_all(state.queue.next_timeout())
        });
        self.run(timers);
    }

    /// Changes the state, and arms a timer in the runtime that calls this if waits can end.
    fn change_with_timer<R>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut State<T>, &mut Deferred<T>) -> R,
    ) -> R {
        let mut change = self.change();
        let (state, deferred) = change.parts();
        let result = act(state, deferred);
        let timer = state.arm_timer_here();
        drop(change);
        self.run(timer);
        result
    }

    fn run(self: &Arc<Self>, timer: Option<TimerRequest>) {
        if let Some(timer) = timer {
            timer.run(self);
        }
    }
}

impl<T> Shared<T> {
    pub(super) fn new(builder: RequestQueueBuilder<T>) -> Arc<Self> {
        let state = State::new(builder.room);
        Arc::new(Self {
            queue_id: next_queue_id(),
            budget: builder.budget,
            cost: builder.cost,
            on_oversize: builder.on_oversize,
            on_rejected: builder.on_rejected,
            atomic_state: AtomicU64::new(state.atomic_state().0),
            state: Mutex::new(state),
        })
    }

    /// Takes the item that is next. A consumer that waited with `id` stops waiting if it gets an item.
    #[inline]
    pub(super) fn dequeue(&self, id: &mut Option<u64>) -> Option<T> {
        if self.is_empty() {
            return None; // read without the lock
        }
        let mut change = self.change();
        let (state, deferred) = change.parts();
        state.advance_if_timed(deferred);
        // This is `None` if the waits of all items have ended.
        let item = state.pop(deferred);
        if item.is_some() {
            deferred.discard(state.forget_consumer(id));
        }
        item
    }

    /// Removes a consumer that was dropped. If it was woken for an item, the next consumer is woken.
    pub(super) fn forget_consumer(&self, mut id: Option<u64>) {
        let mut change = self.change();
        let (state, deferred) = change.parts();
        deferred.discard(state.forget_consumer(&mut id));
    }

    /// Takes the items of a batch, in order.
    pub(super) fn take_batch(&self, count: usize, budget: u64) -> Vec<T> {
        if self.is_empty() {
            return Vec::new(); // read without the lock
        }
        let mut change = self.change();
        let (state, deferred) = change.parts();
        state.advance_if_timed(deferred);
        state.select(Selection::new(self.on_oversize, count, budget), deferred)
    }

    /// Removes an item, if it still waits.
    pub(super) fn remove(&self, id: WaiterId) -> Option<T> {
        let mut change = self.change();
        let (state, deferred) = change.parts();
        state.remove(id, deferred)
    }

    /// Removes all items, and returns them in order.
    pub(super) fn clear(&self) -> Vec<T> {
        let mut change = self.change();
        let (state, deferred) = change.parts();
        state.advance_if_timed(deferred); // this may promote or reject items
        let order = state.queue.in_order().into_iter();
        order.filter_map(|id| state.remove(id, deferred)).collect()
    }

    pub(super) fn close(&self) {
        let mut change = self.change();
        let (state, deferred) = change.parts();
        for id in state.queue.close() {
            state.reject(id, RejectReason::ShuttingDown, deferred);
        }
    }

    pub(super) fn drain(&self) {
        self.change().parts().0.queue.stop_accepting();
    }

    /// Keeps the registration with its item for as long as the item waits.
    pub(super) fn register(&self, id: WaiterId, registration: OnCancel) {
        let mut state = self.lock();
        let unused = state.register(id, registration);
        drop(state);
        drop(unused); // dropped without the lock, because this locks the token
    }

    pub(super) fn atomic_state(&self) -> AtomicState {
        // The load is relaxed, because it guards only the word itself.
        AtomicState(self.atomic_state.load(Relaxed))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.atomic_state().waiting() == 0
    }

    /// Returns the reason to reject an item of this cost, if it is larger than the budget of every batch.
    fn too_large(&self, cost: u64) -> Option<RejectReason<TooLarge>> {
        let budget = self.budget;
        (cost > budget).then_some(RejectReason::Unservable(TooLarge { cost, budget }))
    }

    /// Does the rare work that is left after the lock was released.
    #[cold]
    fn finish_more(&self, mut more: More<T>) {
        more.wakes.wake_all();
        for (item, why) in more.rejected {
            // A panic of the callback or of a destructor is caught, so that the caller of the queue does not lose its
            // own item by it.
            let _ = catch_unwind(AssertUnwindSafe(|| match &self.on_rejected {
                Some(act) => act(item, why),
                None => drop(item),
            }));
        }
        discard(more.unused); // a panic of the waker's destructor is caught, too
    }
}

impl<T> WithLock for Shared<T> {
    type State = State<T>;
    type Deferred = Deferred<T>;

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The code of callers runs outside the lock, so a panic under the lock left the state consistent.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[inline]
    fn publish(&self, state: &mut State<T>, deferred: &mut Deferred<T>) {
        // The store is relaxed, because the lock orders all stores, and the items are read under it.
        self.atomic_state.store(state.atomic_state().0, Relaxed);
        if !state.has_no_waiters() {
            state.notify(deferred);
        }
        state.trim();
    }

    #[inline]
    fn finish(&self, deferred: &mut Deferred<T>) {
        if let Some(first) = deferred.wake.take() {
            wake(first);
        }
        if let Some(more) = deferred.more.take() {
            self.finish_more(*more);
        }
    }
}

impl<T> ReservationHost for Shared<T> {
    fn poll_reserve(&self, id: &mut Option<u64>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        // The waker is cloned and dropped without the lock, because its code is the caller's.
        let waker = cx.waker().clone();
        let mut guard = self.lock();
        let (queue, waiters) = guard.reservations();
        let is_possible = !queue.is_closed() && queue.config().max_size > 0;
        let (found, unused) = waiters.poll(is_possible, || queue.reserve(), id, waker);
        drop(guard);
        drop(unused);
        found
    }

    fn cancel_reserve(&self, id: u64) {
        let waker = self.lock().reservation_waiters.remove(id);
        drop(waker); // dropped without the lock
    }

    fn unreserve(&self) {
        self.change().parts().0.queue.unreserve();
    }
}

impl<T: Send + 'static> TimerHost for Shared<T> {
    fn on_timer(self: &Arc<Self>, runtime: RuntimeId) -> Option<Instant> {
        let now = now();
        let mut change = self.change();
        let (state, deferred) = change.parts();
        state.advance(now, deferred);
        let next_timeout = state.queue.next_timeout();
        let trim = state.queue.trim_idle(now); // gives back memory that a burst left behind
        state.timers.on_woken(runtime, now, next_timeout, trim)
    }

    /// Wakes all consumers, so that one that waits in another runtime arms a timer there.
    fn on_timer_stopped(&self, runtime: RuntimeId, was_spawned: bool) {
        let mut change = self.change();
        let (state, deferred) = change.parts();
        state.timers.remove(runtime);
        if was_spawned {
            // This wakes more consumers than necessary, but a runtime stops rarely, and a consumer that finds the queue
            // empty waits again.
            state.consumers.wake(usize::MAX, deferred);
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .timers
            .wake_all();
    }
}
