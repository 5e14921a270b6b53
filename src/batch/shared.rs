//! What all handles of a queue share, and the rules of its one lock.
//!
//! - Everything is behind `state`. Nothing that belongs to a caller runs under its lock: costs are asked before,
//!   and wakers are cloned before, it is taken; items, wakers and registrations are dropped, wakers woken and
//!   rejections told, after it is released. A token that is cancelled takes its request out through this lock.
//! - Whoever leaves the lock has said in `summary` how many wait and whether anybody may still come. A reader who
//!   finds nothing there needs no lock: what is enqueued meanwhile may as well have come after it looked.
//! - Whoever leaves the lock has woken a consumer for each request, as far as there are consumers who wait.
//! - An item is in one place: on its chair, or with the one who took it out under the lock. Whose wait ended comes
//!   out of the room in the same breath, and is told after the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::builder::Builder;
use super::cancel::Registration;
use super::capacity::Fetched;
use super::lock::lock;
use super::queue::next_number;
use super::selection::Selection;
use super::state::{Entry, Left, State};
use super::summary::Summary;
use super::{Cost, DequeueError, EnqueueError, OnOversize, TooLarge};
use crate::admit::{
    Epoch, RejectReason, Ticket, Times, WaiterId, WaitingRoomConfig, WakeList, wake,
};
use crate::gate::now;
use crate::gate::reserve::ReservationHost;
use crate::gate::timer::{RuntimeId, TimerHost, TimerRequest};
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Relaxed};

pub(super) type OnRejected<T> = dyn Fn(T, RejectReason<TooLarge>) + Send + Sync;

/// What everyone writes who comes or goes stands first, in as few lines of memory as it fits in.
#[repr(C, align(64))]
pub(super) struct Shared<T> {
    summary: AtomicU64,
    state: Mutex<State<T>>,
    /// Tells this queue's requests from those of others.
    pub(super) number: u32,
    capacity: Fetched,
    cost: Option<Box<dyn Cost<T>>>,
    on_oversize: OnOversize,
    on_rejected: Option<Box<OnRejected<T>>>,
    /// What the room measures instants from.
    epoch: Epoch,
}

/// What is left to do without the lock.
pub(super) struct Aftermath<T> {
    /// Whose wait ended without being taken.
    pub(super) ended: WakeList<Entry<T>>,
    wakers: WakeList<Waker>,
    /// A waker that nobody needs any more.
    unused: Option<Waker>,
}

impl<T> Aftermath<T> {
    fn new() -> Self {
        Self {
            ended: WakeList::new(),
            wakers: WakeList::new(),
            unused: None,
        }
    }

    fn is_nothing(&self) -> bool {
        self.ended.is_empty() && self.wakers.is_empty() && self.unused.is_none()
    }
}

impl<T: Send + 'static> Shared<T> {
    /// The item takes a chair: one of its own if it `reserved` it.
    #[inline(always)]
    pub(super) fn enqueue(
        self: &Arc<Self>,
        item: T,
        ticket: Ticket,
        reserved: bool,
    ) -> Result<WaiterId, EnqueueError<T>> {
        let cost = self.cost.as_ref().map_or(1, |cost| cost.cost(&item));
        let is_timed = ticket.deadline.is_some() || self.summary().is_timed();
        let times = self.epoch.times(ticket.arrival, is_timed.then(now));
        let mut state = self.lock();
        if !reserved
            && cost <= self.capacity.budget
            && let Some(who) = state.express(&ticket, times)
        {
            let key = state.sit_down(who, cost, item);
            self.tell_of_one(state);
            return Ok(key);
        }
        let times = is_timed.then_some(times);
        self.arrive(state, item, ticket, reserved, cost, times)
    }

    /// As [`enqueue`](Self::enqueue), where there is more to look at.
    #[inline(never)]
    fn arrive(
        self: &Arc<Self>,
        mut guard: MutexGuard<'_, State<T>>,
        item: T,
        ticket: Ticket,
        reserved: bool,
        cost: u64,
        times: Option<Times>,
    ) -> Result<WaiterId, EnqueueError<T>> {
        let mut aftermath = Aftermath::new();
        let state = &mut *guard;
        if reserved {
            state.room.unreserve();
        }
        let times = times.unwrap_or_else(|| {
            let now = state.room.asks_time(&ticket).then(now);
            self.epoch.times(ticket.arrival, now)
        });
        let mut item = Some(item);
        let note = |key| Some(Entry::new(item.take()?, key));
        let (room, ended) = (&mut state.room, &mut aftermath.ended);
        let joined = room.join(&self.capacity, ticket, cost, note, times, ended);
        if joined.is_ok() {
            state.cost += u128::from(cost);
        }
        let timer = state.arm_timer_here();
        self.settle(guard, aftermath, || self.run(timer));
        joined.map_err(|why| match item {
            Some(item) => EnqueueError {
                item,
                why: self.capacity.to_rejection(why, cost),
            },
            None => unreachable!("who is rejected leaves no note"),
        })
    }

    /// The best of those who wait, or `None` if there will never be one; else the consumer waits.
    #[inline(always)]
    pub(super) fn poll_dequeue(
        self: &Arc<Self>,
        cx: &Context<'_>,
        number: &mut Option<u64>,
    ) -> Poll<Option<T>> {
        match self.dequeue(number) {
            Ok(item) => Poll::Ready(Some(item)),
            Err(_) => self.wait_for_best(cx, number),
        }
    }

    #[inline(never)]
    fn wait_for_best(
        self: &Arc<Self>,
        cx: &Context<'_>,
        number: &mut Option<u64>,
    ) -> Poll<Option<T>> {
        let entry = self.poll_as_consumer(cx, number, |state, ended| {
            let now = state.room.is_timed().then(now);
            match state.take_best(now, ended) {
                Some(entry) => Poll::Ready(Some(entry)),
                None if state.room.is_closed() => Poll::Ready(None),
                None => Poll::Pending,
            }
        });
        entry.map(|entry| Some(entry?.item))
    }

    /// Whether anybody waits; if nobody does but may yet, the consumer waits.
    pub(super) fn poll_occupied(
        self: &Arc<Self>,
        cx: &Context<'_>,
        number: &mut Option<u64>,
    ) -> Poll<bool> {
        self.poll_as_consumer(cx, number, |state, ended| {
            state.keep_time(ended);
            match state.room.is_empty() {
                false => Poll::Ready(true),
                true if state.room.is_closed() => Poll::Ready(false),
                true => Poll::Pending,
            }
        })
    }

    /// Looks as a consumer, who waits if it looked in vain.
    fn poll_as_consumer<R>(
        self: &Arc<Self>,
        cx: &Context<'_>,
        number: &mut Option<u64>,
        look: impl Fn(&mut State<T>, &mut WakeList<Entry<T>>) -> Poll<R>,
    ) -> Poll<R> {
        if number.is_some() || !self.is_empty() {
            let found = self.locked_and_timed(|_, state, aftermath| {
                let found = look(state, &mut aftermath.ended);
                if found.is_ready() {
                    aftermath.unused = state.gone(number);
                    return Some(found);
                }
                state.consumers.knows(*number, cx.waker()).then_some(found)
            });
            if let Some(found) = found {
                return found;
            }
        }
        let waker = cx.waker().clone();
        let (found, unused) = self.locked_and_timed(|_, state, aftermath| {
            let found = look(state, &mut aftermath.ended);
            if found.is_ready() {
                aftermath.unused = state.gone(number);
                return (found, Some(waker));
            }
            (found, state.consumers.wait(number, waker))
        });
        drop(unused);
        found
    }

    /// A new consumer waits, unless somebody is there, or nobody will be.
    #[inline(never)]
    pub(super) fn wait_for_the_first(&self, cx: &Context<'_>, number: &mut Option<u64>) -> bool {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        let is_empty = state.room.is_empty() && !state.room.is_closed();
        if is_empty {
            state.consumers.come(number, waker);
        }
        is_empty
    }

    pub(super) fn reconfigure(self: &Arc<Self>, config: WaitingRoomConfig) {
        let now = now();
        let timers = self.locked_and_timed(|shared, state, aftermath| {
            let ended = &mut aftermath.ended;
            state.room.reconfigure(&shared.capacity, config, now, ended);
            // Those who wait for a chair may have nothing to wait for any more.
            state.reservation_waiters.wake_all(&mut aftermath.wakers);
            state.timers.rearm_all(state.room.next_end())
        });
        self.run(timers);
    }

    /// As [`locked`](Self::locked); and sees to it that waits end in the runtime that calls this.
    fn locked_and_timed<R>(
        self: &Arc<Self>,
        act: impl FnOnce(&Self, &mut State<T>, &mut Aftermath<T>) -> R,
    ) -> R {
        let mut aftermath = Aftermath::new();
        let mut state = self.lock();
        let result = act(self, &mut state, &mut aftermath);
        let timer = state.arm_timer_here();
        self.settle(state, aftermath, || self.run(timer));
        result
    }

    fn run(self: &Arc<Self>, timer: Option<TimerRequest>) {
        if let Some(timer) = timer {
            timer.run(self);
        }
    }
}

impl<T> Shared<T> {
    pub(super) fn new(builder: Builder<T>, capacity: Fetched) -> Arc<Self> {
        let state = State::new(builder.room, builder.tracks_oldest);
        Arc::new(Self {
            number: next_number(),
            capacity,
            cost: builder.cost,
            on_oversize: builder.on_oversize,
            on_rejected: builder.on_rejected,
            summary: AtomicU64::new(state.summary().0),
            epoch: Epoch(state.room.epoch()),
            state: Mutex::new(state),
        })
    }

    /// The best of those who wait, for a consumer who may have waited for one; if there is none, whether one may
    /// still come.
    #[inline(always)]
    pub(super) fn dequeue(&self, number: &mut Option<u64>) -> Result<T, DequeueError> {
        let summary = self.summary();
        if summary.waiting() == 0 {
            return Err(summary.nothing());
        }
        let now = summary.is_timed().then(now);
        let nanos = now.map_or(0, |now| self.epoch.nanos(now));
        let mut state = self.lock();
        let Some(item) = state.take_express(nanos, None::<fn(&u64) -> bool>) else {
            return self.take(state, number, now);
        };
        if number.is_some() {
            let unused = state.gone(number);
            self.tell_of_one(state);
            drop(unused);
        } else {
            self.tell_of_one(state);
        }
        Ok(item)
    }

    /// As [`dequeue`](Self::dequeue), where there is more to look at.
    #[inline(never)]
    fn take(
        &self,
        mut state: MutexGuard<'_, State<T>>,
        number: &mut Option<u64>,
        now: Option<Instant>,
    ) -> Result<T, DequeueError> {
        let mut aftermath = Aftermath::new();
        let best = state.take_best(now, &mut aftermath.ended);
        if best.is_some() {
            aftermath.unused = state.gone(number);
        }
        let summary = state.summary();
        self.settle(state, aftermath, || ());
        match best {
            Some(entry) => Ok(entry.item),
            None => Err(summary.nothing()),
        }
    }

    /// The consumer waits no longer.
    pub(super) fn leave(&self, mut number: Option<u64>) {
        self.locked(|_, state, aftermath| aftermath.unused = state.gone(&mut number));
    }

    /// Those who join a batch now, in order.
    pub(super) fn take_batch(&self, count: usize, budget: u64) -> Vec<T> {
        if self.is_empty() {
            return Vec::new();
        }
        let on_oversize = self.on_oversize;
        let batch = self.locked(|_, state, aftermath| {
            state.keep_time(&mut aftermath.ended);
            state.select(Selection::new(on_oversize, count, budget))
        });
        batch.items
    }

    /// Takes the waiter out, if it still waits.
    pub(super) fn remove(&self, key: WaiterId) -> Option<Left<T>> {
        self.locked(|_, state, _| state.cancel(key))
    }

    /// Everyone's, in order.
    pub(super) fn clear(&self) -> Vec<Left<T>> {
        self.locked(|_, state, _| {
            let order = state.room.in_order().into_iter();
            order.filter_map(|key| state.cancel(key)).collect()
        })
    }

    pub(super) fn close(&self) {
        self.locked(|_, state, aftermath| state.room.close(&mut aftermath.ended));
    }

    pub(super) fn drain(&self) {
        self.locked(|_, state, _| state.room.stop_accepting());
    }

    /// Keeps the registration with its entry, for as long as that waits.
    pub(super) fn register(&self, key: WaiterId, registration: Registration) {
        let mut state = self.lock();
        let unused = state.register(key, registration);
        drop(state);
        drop(unused);
    }

    pub(super) fn summary(&self) -> Summary {
        Summary(self.summary.load(Relaxed))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.summary().waiting() == 0
    }

    /// Runs `act` under the lock, and tells everyone whom it concerns.
    pub(super) fn locked<R>(
        &self,
        act: impl FnOnce(&Self, &mut State<T>, &mut Aftermath<T>) -> R,
    ) -> R {
        let mut aftermath = Aftermath::new();
        let mut state = self.lock();
        let result = act(self, &mut state, &mut aftermath);
        self.settle(state, aftermath, || ());
        result
    }

    /// Leaves the lock after one has come or gone and nothing else has changed, and tells everyone whom it concerns.
    #[inline]
    fn tell_of_one(&self, state: MutexGuard<'_, State<T>>) {
        let summary = self.summary().with_waiting(state.room.len());
        self.summary.store(summary.0, Relaxed);
        if !state.concerns_nobody() {
            self.tell(state);
        }
    }

    #[inline(never)]
    fn tell(&self, mut state: MutexGuard<'_, State<T>>) {
        if state.concerns_consumers() {
            let requests = state.room.len();
            let waker = state.consumers.wake_next(requests);
            drop(state);
            return waker.into_iter().for_each(wake);
        }
        let mut wakers = WakeList::new();
        state.tell(&mut wakers);
        drop(state);
        wakers.wake_all();
    }

    /// Leaves the lock, sees to the timer, and tells everyone whom it concerns.
    #[inline]
    fn settle(
        &self,
        state: MutexGuard<'_, State<T>>,
        aftermath: Aftermath<T>,
        timer: impl FnOnce(),
    ) {
        self.summary.store(state.summary().0, Relaxed);
        if aftermath.is_nothing() && state.concerns_nobody() {
            // There is nothing in it to be dropped, which is not found out in no time.
            std::mem::forget(aftermath);
            drop(state);
            return timer();
        }
        self.tell_everyone(state, aftermath, timer);
    }

    #[cold]
    fn tell_everyone(
        &self,
        mut state: MutexGuard<'_, State<T>>,
        aftermath: Aftermath<T>,
        timer: impl FnOnce(),
    ) {
        let Aftermath {
            ended,
            mut wakers,
            unused,
        } = aftermath;
        let rejected = match ended.is_empty() {
            true => Vec::new(),
            false => state.reasons(ended, &self.capacity),
        };
        state.tell(&mut wakers);
        drop(state);
        timer();
        wakers.wake_all();
        if !rejected.is_empty() {
            self.tell_rejected(rejected);
        }
        // Last, because a waker's own code runs when it is dropped, and may panic.
        drop(unused);
    }

    #[cold]
    fn tell_rejected(&self, rejected: Vec<(Left<T>, RejectReason<TooLarge>)>) {
        for (entry, why) in rejected {
            // Whoever found out is not to blame, and is not to lose what it came for.
            let _ = catch_unwind(AssertUnwindSafe(|| match &self.on_rejected {
                Some(act) => act(entry.item, why),
                None => drop(entry),
            }));
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }
}

impl<T> ReservationHost for Shared<T> {
    fn poll_reserve(&self, id: &mut Option<u64>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        // Cloned and dropped without the lock: a waker's code is the caller's.
        let waker = cx.waker().clone();
        let mut guard = self.lock();
        let state = &mut *guard;
        let (found, unused) = state.reservation_waiters.poll(&mut state.room, id, waker);
        drop(guard);
        drop(unused);
        found
    }

    fn cancel_reserve(&self, id: u64) {
        let waker = self.lock().reservation_waiters.remove(id);
        drop(waker); // without the lock
    }

    fn unreserve(&self) {
        self.locked(|_, state, _| state.room.unreserve());
    }
}

impl<T: Send + 'static> TimerHost for Shared<T> {
    fn on_timer(self: &Arc<Self>, runtime: RuntimeId) -> Option<Instant> {
        let now = now();
        self.locked(|_, state, aftermath| {
            state.room.expire(now, &mut aftermath.ended);
            let next_end = state.room.next_end();
            let trim = state.room.trim_idle(now);
            state.timers.on_woken(runtime, now, next_end, trim)
        })
    }

    /// Consumers that wait in another runtime are woken, to arm the timer of that one.
    fn on_timer_stopped(&self, runtime: RuntimeId, was_spawned: bool) {
        self.locked(|_, state, aftermath| {
            state.timers.remove(runtime);
            if was_spawned {
                state.consumers.wake(usize::MAX, &mut aftermath.wakers);
            }
        });
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
