//! The state that all handles of a queue share. Each change of it follows the [rules](crate::gate::with_lock) of a gate's; besides:
//!
//! - Costs are asked before the lock is taken, and rejections are told after it is released. A token that is cancelled
//!   removes its item through this lock.
//! - The atomic word is `atomic_state`: the number of waiting items, and whether more are accepted. A reader that finds no
//!   item there needs no lock; an item that is enqueued meanwhile counts as later.
//! - Before the lock is released, a consumer is chosen to be woken for each item, as far as consumers wait.
//! - An item is in one place: in the queue, or with the call that took it out under the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Instant;

use super::atomic_state::AtomicState;
use super::batch_item::discard;
use super::builder::RequestQueueBuilder;
use super::cancel::Registration;
use super::deferred::{Deferred, More};
use super::queue::next_queue_id;
use super::selection::Selection;
use super::state::State;
use super::{Cost, EnqueueError, OnOversize, TooLarge};
use crate::admit::wake_list::wake;
use crate::admit::{RejectReason, Ticket, WaiterId, WaitingRoomConfig};
use crate::gate::now;
use crate::gate::reserve::ReservationHost;
use crate::gate::timer::{RuntimeId, TimerHost, TimerRequest};
use crate::gate::with_lock::WithLock;
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Relaxed};

pub(super) type OnRejected<T> = dyn Fn(T, RejectReason<TooLarge>) + Send + Sync;

pub(super) struct Shared<T> {
    /// An [`AtomicState`], written with each change under the lock.
    atomic_state: AtomicU64,
    state: Mutex<State<T>>,
    /// Distinguishes the ids of this queue's items from those of other queues.
    pub(super) queue_id: u32,
    /// What a batch may cost at most: an item that costs more is rejected.
    budget: u64,
    cost: Option<Box<dyn Cost<T>>>,
    on_oversize: OnOversize,
    on_rejected: Option<Box<OnRejected<T>>>,
}

impl<T: Send + 'static> Shared<T> {
    /// Adds an item, in a place that was reserved for it if `has_reservation`.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        item: T,
        ticket: Ticket,
        has_reservation: bool,
    ) -> Result<WaiterId, EnqueueError<T>> {
        // The caller's code, which may panic: without the lock, before anything has changed.
        let cost = self.cost.as_ref().map_or(1, |cost| cost.cost(&item));
        let now = now();
        let mut change = self.change();
        let (state, deferred) = change.parts();
        // Under the lock that adds the item, so that no other item takes the place.
        if has_reservation {
            state.queue.unreserve();
        }
        let pushed = match self.too_large(cost) {
            // It would never fit. But a closed queue says that it is closed.
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
                Err(EnqueueError { item, why })
            }
        }
    }

    /// Takes the item that is next, or `None` if the queue is closed and empty; else the consumer waits.
    pub(super) fn poll_dequeue(
        self: &Arc<Self>,
        cx: &Context<'_>,
        id: &mut Option<u64>,
    ) -> Poll<Option<T>> {
        // First without a timer, which a consumer that need not wait does not need.
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

    /// Whether an item waits. If none does but more are accepted, the consumer waits.
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

    /// Polls `look`; if that is pending, the consumer waits.
    fn poll_as_consumer<R>(
        self: &Arc<Self>,
        cx: &Context<'_>,
        id: &mut Option<u64>,
        look: impl Fn(&mut State<T>, &mut Deferred<T>) -> Poll<R>,
    ) -> Poll<R> {
        // First with the waker that is kept, if it wakes the same task: most polls need no clone.
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
        // Cloned and dropped without the lock: a waker's code is the caller's. Meanwhile an item may have come.
        let waker = cx.waker().clone();
        let (found, unused) = self.change_with_timer(|state, deferred| {
            let found = look(state, deferred);
            if found.is_ready() {
                deferred.discard(state.forget_consumer(id));
                return (found, Some(waker));
            }
            (found, state.consumers.wait(id, waker))
        });
        discard(unused); // an item may have been found: unwinding would lose it
        found
    }

    /// A new consumer waits if the queue is empty and not closed. Returns whether it does.
    pub(super) fn wait_if_empty(&self, cx: &Context<'_>, id: &mut Option<u64>) -> bool {
        let waker = cx.waker().clone();
        let mut state = self.lock();
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
            // With a `max_size` of 0 there is no place to wait for any more.
            state
                .reservation_waiters
                .wake_all(&mut deferred.more().wakes);
            state.timers.rearm_all(state.queue.next_timeout())
        });
        self.run(timers);
    }

    /// Changes the state, and arms a timer in the runtime that calls this, if waits can end.
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

    /// Takes the item that is next. A consumer that waited with `id` waits no longer if it gets one.
    #[inline]
    pub(super) fn dequeue(&self, id: &mut Option<u64>) -> Option<T> {
        if self.is_empty() {
            return None; // without the lock
        }
        let mut change = self.change();
        let (state, deferred) = change.parts();
        state.advance_if_timed(deferred);
        // `None` if the waits of all items have ended.
        let item = state.pop(deferred);
        if item.is_some() {
            deferred.discard(state.forget_consumer(id));
        }
        item
    }

    /// A consumer was dropped. If it was woken for an item, the next is woken.
    pub(super) fn forget_consumer(&self, mut id: Option<u64>) {
        let mut change = self.change();
        let (state, deferred) = change.parts();
        deferred.discard(state.forget_consumer(&mut id));
    }

    /// Takes the items of a batch, in order.
    pub(super) fn take_batch(&self, count: usize, budget: u64) -> Vec<T> {
        if self.is_empty() {
            return Vec::new(); // without the lock
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

    /// Removes all items, in order.
    pub(super) fn clear(&self) -> Vec<T> {
        let mut change = self.change();
        let (state, deferred) = change.parts();
        state.advance_if_timed(deferred); // may promote or reject some
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

    /// Keeps the registration with its item for as long as that waits.
    pub(super) fn register(&self, id: WaiterId, registration: Registration) {
        let mut state = self.lock();
        let unused = state.register(id, registration);
        drop(state);
        drop(unused); // without the lock: it locks the token
    }

    pub(super) fn atomic_state(&self) -> AtomicState {
        // Relaxed: no other memory is read that depends on it.
        AtomicState(self.atomic_state.load(Relaxed))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.atomic_state().waiting() == 0
    }

    /// The reason for which an item of this cost may not wait, if it would fit into no batch.
    fn too_large(&self, cost: u64) -> Option<RejectReason<TooLarge>> {
        let budget = self.budget;
        (cost > budget).then_some(RejectReason::Unservable(TooLarge { cost, budget }))
    }

    /// Does what is rarely left to do after the lock was released.
    #[cold]
    fn finish_more(&self, mut more: More<T>) {
        more.wakes.wake_all();
        for (item, why) in more.rejected {
            // The caller of the queue is not to lose its own item by a panic of the callback, or of a destructor.
            let _ = catch_unwind(AssertUnwindSafe(|| match &self.on_rejected {
                Some(act) => act(item, why),
                None => drop(item),
            }));
        }
        discard(more.unused); // likewise
    }
}

impl<T> WithLock for Shared<T> {
    type State = State<T>;
    type Deferred = Deferred<T>;

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code of a caller runs under the lock, so a panic there left nothing half done.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[inline]
    fn publish(&self, state: &mut State<T>, deferred: &mut Deferred<T>) {
        // Relaxed: stores are ordered by the lock, and the items are read under it.
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
        // Cloned and dropped without the lock: a waker's code is the caller's.
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
        drop(waker); // without the lock
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
        let trim = state.queue.trim_idle(now); // memory that a burst left behind
        state.timers.on_woken(runtime, now, next_timeout, trim)
    }

    /// Wakes all consumers, so that one that waits in another runtime arms a timer there.
    fn on_timer_stopped(&self, runtime: RuntimeId, was_spawned: bool) {
        let mut change = self.change();
        let (state, deferred) = change.parts();
        state.timers.remove(runtime);
        if was_spawned {
            // More than are needed: a runtime stops rarely, and a consumer that finds no item waits again.
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
