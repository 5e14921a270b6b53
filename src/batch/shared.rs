//! What all handles of a queue share, and the rules of its one lock.
//!
//! - Everything is behind `state`. Nothing that belongs to a caller runs under its lock: costs are asked before,
//!   and wakers are cloned before, it is taken; items, wakers and registrations are dropped, wakers woken and
//!   rejections told, after it is released. A token that is cancelled takes its request out through this lock.
//! - Whoever leaves the lock has woken a consumer for each request, as far as there are consumers who wait.
//! - An item is in one place: on its chair, or with the one who took it out under the lock. Whose wait ended comes
//!   out of the room in the same breath, and is told after the lock.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::builder::Builder;
use super::cancel::Registration;
use super::capacity::Fetched;
use super::consumers::Consumers;
use super::due::Batcher;
use super::queue::next_number;
use super::selection::{Choice, Selection};
use super::{Cost, DequeueError, EnqueueError, Misfit, TooLarge};
use crate::admit::{Aside, Key, Outcome, Rejected, RoomConfig, Ticket, WaitingRoom, Woken};
use crate::gate::now;
use crate::gate::timer::{Call, Timed, Timer};
use crate::gate::wishes::Wishes;
use crate::sync::{Arc, Mutex, MutexGuard};

pub(super) type OnRejected<T> = dyn Fn(T, Rejected<TooLarge>) + Send + Sync;

pub(super) struct Shared<T> {
    /// Tells this queue's requests from those of others.
    pub(super) number: u32,
    capacity: Fetched,
    cost: Option<Box<dyn Cost<T>>>,
    misfit: Misfit,
    on_rejected: Option<Box<OnRejected<T>>>,
    state: Mutex<State<T>>,
    timer: Timer,
}

pub(super) struct State<T> {
    pub(super) room: WaitingRoom<Fetched, Entry<T>>,
    /// What all who wait cost together.
    pub(super) cost: u128,
    pub(super) consumers: Consumers,
    /// Who waits for a chair.
    standing: Wishes,
    /// Who waits until a batch is due.
    pub(super) batcher: Option<Batcher>,
    /// Until when the timer sleeps, while it runs.
    alarm: Option<Instant>,
}

/// What waits on a chair.
pub(super) struct Entry<T> {
    pub(super) item: T,
    key: Key,
    cost: u64,
    /// How many went before it because it did not fit.
    overtaken: u32,
    /// What takes it out when its token is cancelled.
    pub(super) registration: Option<Registration>,
}

/// What is left to do without the lock.
pub(super) struct Aftermath<T> {
    /// Whose wait ended without being taken.
    pub(super) ended: Woken<Entry<T>>,
    wakers: Woken<Waker>,
    /// A waker that nobody needs any more.
    unused: Option<Waker>,
}

impl<T: Send + 'static> Shared<T> {
    /// The item takes a chair: one of its own if it `reserved` it.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        item: T,
        ticket: Ticket,
        reserved: bool,
    ) -> Result<Key, EnqueueError<T>> {
        let cost = self.cost.as_ref().map_or(1, |cost| cost.cost(&item));
        self.locked_and_timed(|shared, state, aftermath| {
            let State { room, .. } = state;
            if reserved {
                room.unreserve();
            }
            let now = now_if_it_matters(room, &ticket);
            let ended = &mut aftermath.ended;
            let key = match room.arrive(&shared.capacity, ticket, cost, now, ended) {
                Outcome::Queued(key) => key,
                Outcome::Rejected(why) => return Err(EnqueueError { item, why }),
                Outcome::Leased(never) => match never {},
            };
            let entry = Entry {
                item,
                key,
                cost,
                overtaken: 0,
                registration: None,
            };
            // Nobody can have been answered between the call before and this one.
            let _ = room.leave_note(key, entry);
            state.cost += u128::from(cost);
            Ok(key)
        })
    }

    /// The best of those who wait, or `None` if there will never be one; else the consumer waits.
    pub(super) fn poll_dequeue(
        self: &Arc<Self>,
        cx: &Context<'_>,
        number: &mut Option<u64>,
    ) -> Poll<Option<T>> {
        let look =
            |state: &mut State<T>, aftermath: &mut Aftermath<T>| match state.take_best(aftermath) {
                Some(entry) => Poll::Ready(Some(entry)),
                None if state.room.is_closed() => Poll::Ready(None),
                None => Poll::Pending,
            };
        self.poll_as_consumer(cx, number, look)
            .map(|entry| Some(entry?.item))
    }

    /// Whether anybody waits; if nobody does but may yet, the consumer waits.
    pub(super) fn poll_occupied(
        self: &Arc<Self>,
        cx: &Context<'_>,
        number: &mut Option<u64>,
    ) -> Poll<bool> {
        self.poll_as_consumer(cx, number, |state, aftermath| {
            state.keep_time(aftermath);
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
        look: impl Fn(&mut State<T>, &mut Aftermath<T>) -> Poll<R>,
    ) -> Poll<R> {
        let found = self.locked_and_timed(|_, state, aftermath| {
            let found = look(state, aftermath);
            if found.is_ready() {
                aftermath.unused = state.gone(number);
                return Some(found);
            }
            state.consumers.knows(*number, cx.waker()).then_some(found)
        });
        if let Some(found) = found {
            return found;
        }
        let waker = cx.waker().clone();
        self.locked_and_timed(|_, state, aftermath| {
            let found = look(state, aftermath);
            aftermath.unused = match found.is_ready() {
                true => state.gone(number).or(Some(waker)),
                false => state.consumers.wait(number, waker),
            };
            found
        })
    }

    pub(super) fn reconfigure(self: &Arc<Self>, config: RoomConfig) {
        let now = now();
        self.locked_and_timed(|shared, state, aftermath| {
            let ended = &mut aftermath.ended;
            state.room.reconfigure(&shared.capacity, config, now, ended);
            // Those who wait for a chair may have nothing to wait for any more.
            state.standing.tell_all(&mut aftermath.wakers);
        });
    }

    /// As [`locked`](Self::locked); and calls the timer, if it is to wake earlier than it will.
    fn locked_and_timed<R>(
        self: &Arc<Self>,
        act: impl FnOnce(&Self, &mut State<T>, &mut Aftermath<T>) -> R,
    ) -> R {
        let (result, call) = self.locked(|shared, state, aftermath| {
            let result = act(shared, state, aftermath);
            (result, state.call_timer())
        });
        if let Some(call) = call {
            Timer::take(self, call);
        }
        result
    }
}

impl<T> Shared<T> {
    pub(super) fn new(builder: Builder<T>, capacity: Fetched) -> Arc<Self> {
        Arc::new(Self {
            number: next_number(),
            capacity,
            cost: builder.cost,
            misfit: builder.misfit,
            on_rejected: builder.on_rejected,
            state: Mutex::new(State {
                room: WaitingRoom::new(builder.room, now()),
                cost: 0,
                consumers: Consumers::default(),
                standing: Wishes::default(),
                batcher: None,
                alarm: None,
            }),
            timer: Timer::new(),
        })
    }

    /// The best of those who wait; if there is none, whether one may still come.
    pub(super) fn try_dequeue(&self) -> Result<T, DequeueError> {
        let entry = self.locked(|_, state, aftermath| {
            let best = state.take_best(aftermath);
            best.ok_or_else(|| state.nothing())
        });
        Ok(entry?.item)
    }

    /// The consumer waits no longer.
    pub(super) fn leave(&self, mut number: Option<u64>) {
        self.locked(|_, state, aftermath| aftermath.unused = state.gone(&mut number));
    }

    /// Those who join a batch now, in order.
    pub(super) fn take_batch(&self, count: usize, budget: u64) -> Vec<T> {
        let misfit = self.misfit;
        let batch = self.locked(|_, state, aftermath| {
            state.keep_time(aftermath);
            state.select(Selection::new(misfit, count, budget))
        });
        batch.into_iter().map(|entry| entry.item).collect()
    }

    /// The waiter's entry, if it still waits.
    pub(super) fn remove(&self, key: Key) -> Option<Entry<T>> {
        self.locked(|_, state, _| state.cancel(key))
    }

    /// Everyone's, in order.
    pub(super) fn clear(&self) -> Vec<Entry<T>> {
        self.locked(|_, state, _| {
            let order = state.room.in_order();
            order
                .into_iter()
                .filter_map(|key| state.cancel(key))
                .collect()
        })
    }

    pub(super) fn close(&self) {
        self.locked(|_, state, aftermath| state.room.close(&mut aftermath.ended));
    }

    pub(super) fn drain(&self) {
        self.locked(|_, state, _| state.room.let_nobody_in());
    }

    /// Keeps the registration with its entry, for as long as that waits.
    pub(super) fn register(&self, key: Key, registration: Registration) {
        let mut state = self.lock();
        let unused = match state.entry_mut(key) {
            Some(entry) => entry.registration.replace(registration),
            None => Some(registration),
        };
        drop(state);
        drop(unused);
    }

    /// Reserves a chair, or waits for one. `None` if there will never be one.
    pub(super) fn poll_chair(&self, cx: &Context<'_>, wish: &mut Option<u64>) -> Poll<Option<()>> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        if state.room.is_closed() || state.room.config().chairs == 0 {
            return Poll::Ready(None);
        }
        if state.room.reserve() {
            return Poll::Ready(Some(()));
        }
        let old = state.standing.note(wish, waker);
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// Gives a reserved chair up.
    pub(super) fn unreserve(&self) {
        self.locked(|_, state, _| state.room.unreserve());
    }

    /// Whoever wished for a chair no longer does.
    pub(super) fn withdraw(&self, wish: u64) {
        let waker = self.lock().standing.withdraw(wish);
        drop(waker);
    }

    /// Runs `act` under the lock, then tells everyone whom it concerns, without the lock.
    pub(super) fn locked<R>(
        &self,
        act: impl FnOnce(&Self, &mut State<T>, &mut Aftermath<T>) -> R,
    ) -> R {
        let mut aftermath = Aftermath {
            ended: Woken::new(),
            wakers: Woken::new(),
            unused: None,
        };
        let mut state = self.lock();
        let result = act(self, &mut state, &mut aftermath);
        let Aftermath {
            ended,
            mut wakers,
            unused,
        } = aftermath;
        let rejected = if ended.is_empty() {
            Vec::new()
        } else {
            state.reasons(ended)
        };
        state.tell(&mut wakers);
        drop(state);
        drop(unused);
        if !wakers.is_empty() {
            wakers.into_iter().for_each(Waker::wake);
        }
        if !rejected.is_empty() {
            self.tell_rejected(rejected);
        }
        result
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[cold]
    fn tell_rejected(&self, rejected: Vec<(Entry<T>, Rejected<TooLarge>)>) {
        let mut panics = None;
        for (entry, why) in rejected {
            let told = catch_unwind(AssertUnwindSafe(|| match &self.on_rejected {
                Some(act) => act(entry.item, why),
                None => drop(entry),
            }));
            panics = told.err().or(panics);
        }
        if let Some(panic) = panics {
            resume_unwind(panic);
        }
    }
}

impl<T> State<T> {
    fn take_best(&mut self, aftermath: &mut Aftermath<T>) -> Option<Entry<T>> {
        self.keep_time(aftermath);
        let best = self.room.head()?;
        self.take(best)
    }

    fn nothing(&self) -> DequeueError {
        if self.room.is_closed() {
            DequeueError::Closed
        } else {
            DequeueError::Empty
        }
    }

    /// A consumer has what it came for, or has gone.
    fn gone(&mut self, number: &mut Option<u64>) -> Option<Waker> {
        number
            .take()
            .and_then(|number| self.consumers.leave(number))
    }

    /// Whose wait has ended by now is not taken.
    pub(super) fn keep_time(&mut self, aftermath: &mut Aftermath<T>) {
        if self.room.next_end().is_some() || self.room.config().promote_after.is_some() {
            self.room.keep_time(now(), &mut aftermath.ended);
        }
    }

    fn take(&mut self, key: Key) -> Option<Entry<T>> {
        let entry = self.room.take(key)?;
        self.cost -= u128::from(entry.cost);
        Some(entry)
    }

    fn cancel(&mut self, key: Key) -> Option<Entry<T>> {
        if !self.room.waits(key) {
            return None;
        }
        let (_, entry) = self.room.cancel(key);
        let entry = entry?;
        self.cost -= u128::from(entry.cost);
        Some(entry)
    }

    fn entry_mut(&mut self, key: Key) -> Option<&mut Entry<T>> {
        self.room.waits(key).then(|| self.room.note_mut(key))?
    }

    fn select(&mut self, mut selection: Selection) -> Vec<Entry<T>> {
        let mut batch = Vec::new();
        let mut passed: Vec<(Aside, u32)> = Vec::new();
        while let Some(best) = self.room.head()
            && let Some(entry) = self.room.note_mut(best)
        {
            match selection.look(entry.cost, entry.overtaken) {
                Choice::Take => batch.extend(self.take(best)),
                Choice::Pass => passed.push((self.room.set_aside(best), selection.taken)),
                Choice::End => break,
            }
        }
        for (aside, taken_before) in passed {
            if let Some(entry) = self.room.note_mut(aside.key()) {
                entry.overtaken += selection.taken - taken_before;
            }
            self.room.put_back(aside);
        }
        batch
    }

    /// Why the waits ended that did.
    #[cold]
    fn reasons(&mut self, ended: Woken<Entry<T>>) -> Vec<(Entry<T>, Rejected<TooLarge>)> {
        let mut rejected = Vec::new();
        for entry in ended {
            self.cost -= u128::from(entry.cost);
            if let Some(Err(why)) = self.room.collect(entry.key) {
                rejected.push((entry, why));
            }
        }
        rejected
    }

    fn tell(&mut self, wakers: &mut Woken<Waker>) {
        let is_closed = self.room.is_closed();
        let nothing_will_come = is_closed && self.room.is_empty();
        let requests = if nothing_will_come {
            usize::MAX
        } else {
            self.room.len()
        };
        self.consumers.wake(requests, wakers);
        if !self.standing.is_empty() && (self.room.has_chair() || is_closed) {
            self.standing.tell_all(wakers);
        }
        if let Some(waker) = self.call_batcher() {
            wakers.push(waker);
        }
    }

    fn call_timer(&mut self) -> Option<Call> {
        let next = self.room.next_end()?;
        if self.alarm.is_some_and(|alarm| alarm <= next) {
            return None;
        }
        let call = Timer::call(self.alarm.is_some())?;
        self.alarm = Some(next);
        Some(call)
    }
}

/// The time, if anything depends on it.
fn now_if_it_matters<T>(room: &WaitingRoom<Fetched, Entry<T>>, ticket: &Ticket) -> Instant {
    let config = room.config();
    let is_bounded = ticket.deadline.is_some() || config.max_wait.is_some();
    if is_bounded || config.promote_after.is_some() || room.next_end().is_some() {
        now()
    } else {
        ticket.arrival
    }
}

impl<T: Send + 'static> Timed for Shared<T> {
    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn ring(self: &Arc<Self>) -> Option<Instant> {
        let now = now();
        self.locked(|_, state, aftermath| {
            state.room.expire(now, &mut aftermath.ended);
            state.alarm = state.room.next_end();
            state.alarm
        })
    }

    /// Consumers who wait on another runtime are told, to start the timer there.
    fn timer_stopped(&self, ran: bool) {
        let mut wakers = Woken::new();
        let mut state = self.lock();
        state.alarm = None;
        if ran {
            state.consumers.wake(usize::MAX, &mut wakers);
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        self.timer.wake();
    }
}
