//! Waiting for a slot.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::chair::Reservation;
use super::permit::Permit;
use super::shared::Shared;
use super::timer::TimerRequest;
use crate::admit::{self, AdmitOutcome, Capacity, RejectReason, State, Ticket, WaiterId};
use crate::clock;
use crate::sync::{Arc, poll_proceed};

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
    chair: Option<Reservation<C>>,
    /// The time, if somebody has looked at the clock.
    now: Option<Instant>,
}

/// Dropping it gives up the chair, or the slot.
struct Waiting<C: Capacity> {
    shared: Arc<Shared<C>>,
    key: Option<WaiterId>,
    request: u64,
}

/// Nothing in it is ever pinned.
impl<C: Capacity> Unpin for Acquire<C> {}

type Answer<C> = Result<Permit<C>, RejectReason<<C as Capacity>::Unservable>>;

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
    pub fn with_reservation(mut self, chair: Reservation<C>) -> Self {
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
    pub(crate) fn turn_away(&self, why: RejectReason<C::Unservable>) {
        if let Some((waiting, key)) = self.waiting() {
            waiting
                .shared
                .locked(|_, state, woken| state.room.reject(key, why, woken));
        }
    }

    fn waiting(&self) -> Option<(&Waiting<C>, WaiterId)> {
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
            Step::Arriving(arriving) => {
                // Only here: a task that waits lets others run anyway.
                let budget = ready!(poll_proceed(cx));
                budget.made_progress();
                arriving.shared.pass(&arriving.demand)
            }
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
        let reserved = chair.map(Reservation::hand_over).is_some();
        let (outcome, leftovers) = shared.arrive(ticket, demand, now, cx.waker(), reserved);
        let arrived = match outcome {
            AdmitOutcome::Leased(lease) => Err(Ok(Permit::new(shared, lease, request))),
            AdmitOutcome::Rejected(why) => Err(Err(why)),
            AdmitOutcome::Queued(key) => Ok(Waiting {
                shared,
                key: Some(key),
                request,
            }),
        };
        // After the permit has been made: a destructor of the caller's may panic.
        drop(leftovers);
        arrived
    }
}

impl<C: Capacity> Waiting<C> {
    fn look(&mut self, cx: &mut Context<'_>) -> Poll<Answer<C>> {
        let Some(key) = self.key else {
            panic!("`Acquire` polled after it was answered");
        };
        let mut state = self.shared.lock();
        if let Some(answer) = state.room.take_answer(key) {
            let missed_slot = state.room.take_missed_slot();
            drop(state);
            return Poll::Ready(self.answered(answer, missed_slot));
        }
        let note = state.room.waker(key);
        let known = note.map(|note| note.will_wake(cx.waker()));
        if known == Some(true) {
            let timer = state.arm_timer_here();
            drop(state);
            self.run(timer);
            return Poll::Pending;
        }
        drop(state);
        // A waker's own code runs when it is cloned or dropped: not under the lock.
        let new = cx.waker().clone();
        if known.is_none() {
            self.retry(key);
        }
        let mut state = self.shared.lock();
        let missed_slot = state.room.take_missed_slot();
        if let Some(answer) = state.room.take_answer(key) {
            drop(state);
            return Poll::Ready(self.answered(answer, missed_slot));
        }
        let unused = state.room.set_waker(key, new).unwrap_or_else(Some);
        let timer = state.arm_timer_here();
        drop(state);
        self.run(timer);
        self.ask_others_if(missed_slot);
        drop(unused);
        Poll::Pending
    }

    /// Its answer was taken, and so its key is void.
    fn answered(
        &mut self,
        (answer, demand): (admit::Answer<C>, C::Demand),
        missed_slot: bool,
    ) -> Answer<C> {
        self.key = None;
        let answer = answer.map(|lease| Permit::new(Arc::clone(&self.shared), lease, self.request));
        self.ask_others_if(missed_slot);
        // After the permit has been made: a destructor of the caller's may panic.
        drop(demand);
        answer
    }

    /// Its waker was taken though it has no answer: perhaps because the capacity panicked when another request's slot
    /// was to go to this one. If it panics again, this request ends with it, and the slot goes to the next.
    #[cold]
    fn retry(&mut self, key: WaiterId) {
        let shared = Arc::clone(&self.shared);
        let retried = catch_unwind(AssertUnwindSafe(|| {
            shared.locked(|shared, state, woken| {
                let now = state.now_if_it_matters();
                state.room.retry(&shared.capacity, key, now, woken);
            });
        }));
        if let Err(panic) = retried {
            self.leave();
            shared.hand_on(None);
            resume_unwind(panic);
        }
    }

    /// Gives up the place in line, or the slot.
    fn leave(&mut self) {
        let Some(key) = self.key.take() else {
            return;
        };
        // Taken apart without the lock: the waker and the demand are the caller's, and so are their destructors.
        let (waiter, missed_slot) = self.shared.locked(|_, state, _| {
            let waiter = state.room.remove(key);
            (waiter, state.room.take_missed_slot())
        });
        if let State::Leased(lease) = waiter.state {
            self.shared.release(lease);
        }
        self.ask_others_if(missed_slot);
    }

    /// This request did not ask for the slot that the capacity's panic left free, or did not need it.
    fn ask_others_if(&self, missed_slot: bool) {
        if missed_slot {
            self.shared.hand_on(None);
        }
    }

    fn run(&self, timer: Option<TimerRequest>) {
        if let Some(timer) = timer {
            timer.run(&self.shared);
        }
    }
}

impl<C: Capacity> Drop for Waiting<C> {
    fn drop(&mut self) {
        self.leave();
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
