//! Waiting for a slot.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::chair::Chair;
use super::permit::Permit;
use super::shared::Shared;
use super::timer::{Call, Timer};
use crate::admit::{Capacity, Key, Outcome, Rejected, Ticket};
use crate::clock;
use crate::sync::Arc;

/// Waits for a slot. Made by [`Gate::acquire`](super::Gate::acquire).
///
/// A request arrives when this is first polled. The answer comes exactly once: a permit or a reason.
///
/// # Cancel safety
///
/// Dropping it at any time gives up the chair at once. A slot that had been handed over already goes on to
/// the next waiter.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<C: Capacity>(Step<C>);

enum Step<C: Capacity> {
    Arriving(Arriving<C>),
    Waiting(Waiting<C>),
    Done,
}

struct Arriving<C: Capacity> {
    shared: Arc<Shared<C>>,
    ticket: Ticket,
    demand: C::Demand,
    chair: Option<Chair<C>>,
    /// The time, if somebody has looked at the clock.
    now: Option<Instant>,
}

/// Dropping it gives up the chair, or the slot.
struct Waiting<C: Capacity> {
    shared: Arc<Shared<C>>,
    key: Option<Key>,
    request: u64,
}

/// Nothing in it is ever pinned.
impl<C: Capacity> Unpin for Acquire<C> {}

type Answer<C> = Result<Permit<C>, Rejected<<C as Capacity>::Never>>;

impl<C: Capacity> Acquire<C> {
    pub(super) fn new(shared: Arc<Shared<C>>, ticket: Ticket, demand: C::Demand) -> Self {
        Self(Step::Arriving(Arriving {
            shared,
            ticket,
            demand,
            chair: None,
            now: None,
        }))
    }

    /// Takes `now` for the present, which saves reading the clock again.
    pub(super) fn at(mut self, now: Instant) -> Self {
        if let Step::Arriving(arriving) = &mut self.0 {
            arriving.now = Some(now);
        }
        self
    }

    /// Arrives on a chair that was reserved before.
    pub fn on_chair(mut self, chair: Chair<C>) -> Self {
        if let Step::Arriving(arriving) = &mut self.0 {
            arriving.chair = Some(chair);
        }
        self
    }

    /// Where it stands by now among those who compete for the same slots: 1 is next. `None` unless it waits.
    /// O(n log n) in the number of those who wait.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        let (waiting, key) = self.waiting()?;
        waiting
            .shared
            .locked(|_, state, woken| state.position(key, woken))
    }

    /// How long it will probably wait still, from the measured drain rate. `None` unless it waits and the
    /// rate is known.
    #[must_use]
    pub fn estimated_wait(&self) -> Option<Duration> {
        let (waiting, key) = self.waiting()?;
        waiting.shared.locked(|_, state, woken| {
            let position = state.position(key, woken)?;
            state.room.estimated_wait(position)
        })
    }

    /// Whether it has not been polled yet.
    pub(crate) fn is_arriving(&self) -> bool {
        matches!(self.0, Step::Arriving(_))
    }

    /// Whether it waits, nobody goes before it, and whoever had the turn before has used it.
    pub(crate) fn has_turn(&self) -> bool {
        self.waiting().is_some_and(|(waiting, key)| {
            let state = waiting.shared.lock();
            waiting.shared.capacity.turn_is_free() && state.room.head() == Some(key)
        })
    }

    /// Whether its ticket lets it wait.
    pub(crate) fn may_wait(&self) -> bool {
        self.waiting()
            .is_none_or(|(waiting, key)| waiting.shared.lock().room.may_wait(key))
    }

    /// Answers it with `why`, if it still waits.
    pub(crate) fn turn_away(&self, why: Rejected<C::Never>) {
        if let Some((waiting, key)) = self.waiting() {
            waiting
                .shared
                .locked(|_, state, woken| state.room.turn_away(key, why, woken));
        }
    }

    fn waiting(&self) -> Option<(&Waiting<C>, Key)> {
        match &self.0 {
            Step::Waiting(waiting) => Some((waiting, waiting.key?)),
            _ => None,
        }
    }
}

impl<C: Capacity> Future for Acquire<C> {
    type Output = Answer<C>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer<C>> {
        let lease = match &mut self.0 {
            Step::Arriving(arriving) => arriving.shared.pass(&arriving.demand),
            Step::Waiting(waiting) => return waiting.look(cx),
            Step::Done => panic!("`Acquire` polled after it was answered"),
        };
        let Step::Arriving(arriving) = std::mem::replace(&mut self.0, Step::Done) else {
            unreachable!("it was found arriving");
        };
        match lease {
            Some(lease) => {
                let permit = Permit::new(arriving.shared, lease, arriving.ticket.id);
                Poll::Ready(Ok(permit))
            }
            None => match arriving.arrive(cx) {
                Ok(waiting) => {
                    self.0 = Step::Waiting(waiting);
                    Poll::Pending
                }
                Err(answer) => Poll::Ready(answer),
            },
        }
    }
}

impl<C: Capacity> Arriving<C> {
    /// Takes a chair, or is answered at once.
    fn arrive(self, cx: &mut Context<'_>) -> Result<Waiting<C>, Answer<C>> {
        let Self {
            shared,
            ticket,
            demand,
            chair,
            now,
        } = self;
        let request = ticket.id;
        let now = now.unwrap_or_else(clock::now);
        let reserved = chair.map(Chair::hand_over).is_some();
        match shared.arrive(ticket, demand, now, cx.waker(), reserved) {
            Outcome::Leased(lease) => Err(Ok(Permit::new(shared, lease, request))),
            Outcome::Rejected(why) => Err(Err(why)),
            Outcome::Queued(key) => Ok(Waiting {
                shared,
                key: Some(key),
                request,
            }),
        }
    }
}

impl<C: Capacity> Waiting<C> {
    fn look(&mut self, cx: &mut Context<'_>) -> Poll<Answer<C>> {
        let Some(key) = self.key else {
            panic!("`Acquire` polled after it was answered");
        };
        let Some(answer) = self.answer(key, cx.waker()) else {
            return Poll::Pending;
        };
        self.key = None;
        let permit = |lease| Permit::new(Arc::clone(&self.shared), lease, self.request);
        Poll::Ready(answer.map(permit))
    }
}

impl<C: Capacity> Waiting<C> {
    /// The answer, if there is one; else `waker` will be told.
    fn answer(&self, key: Key, waker: &Waker) -> Option<Result<C::Lease, Rejected<C::Never>>> {
        let mut state = self.shared.lock();
        let answer = state.room.collect(key);
        let told = || {
            let note = state.room.note(key);
            note.is_some_and(|note| note.will_wake(waker))
        };
        if answer.is_some() || told() {
            let call = state.call_timer();
            drop(state);
            self.take_timer(call);
            return answer;
        }
        drop(state);
        // A waker's own code runs when it is cloned or dropped: not under the lock.
        let new = waker.clone();
        let mut state = self.shared.lock();
        let answer = state.room.collect(key);
        let unused = match answer {
            None => state.room.leave_note(key, new).unwrap_or_else(Some),
            Some(_) => Some(new),
        };
        let call = state.call_timer();
        drop(state);
        drop(unused);
        self.take_timer(call);
        answer
    }

    fn take_timer(&self, call: Option<Call>) {
        if let Some(call) = call {
            Timer::take(&self.shared, call);
        }
    }
}

impl<C: Capacity> Drop for Waiting<C> {
    fn drop(&mut self) {
        let Some(key) = self.key else {
            return;
        };
        let (lease, waker) = self.shared.locked(|_, state, _| state.room.cancel(key));
        drop(waker);
        if let Some(lease) = lease {
            self.shared.release(lease);
        }
    }
}

impl<C: Capacity> fmt::Debug for Acquire<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.0 {
            Step::Arriving(_) => "arriving",
            Step::Waiting(_) => "waiting",
            Step::Done => "done",
        };
        f.debug_tuple("Acquire").field(&step).finish()
    }
}
