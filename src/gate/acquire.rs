//! Waiting for a slot.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::charge::share_of;
use super::inner_ready::InnerReady;
use super::origin::Origin;
use super::permit::Permit;
use super::reserve::Reservation;
use super::state::Shared;
use super::timer::TimerRequest;
use super::with_lock::WithLock;
use crate::admit::{
    AdmitOutcome, Answered, Capacity, RejectReason, ServiceSample, Starting, State, Ticket,
    WaiterId,
};
use crate::clock;
use crate::sync::{Arc, poll_proceed};

/// Waits for a slot. Made by [`Gate::acquire`](super::Gate::acquire).
///
/// A request arrives when this is first polled. It resolves exactly once: to a permit, or to the reason why there is
/// none.
///
/// # Cancel safety
///
/// Dropping it at any time gives up the place in the waiting room at once. A slot that had been granted already goes
/// to the next waiter.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<C: Capacity>(Step<C>);

enum Step<C: Capacity> {
    Arriving(Arriving<C>),
    Waiting(Waiting<C>),
    Done,
}

struct Arriving<C: Capacity> {
    origin: Arc<Origin<C>>,
    ticket: Ticket,
    demand: C::Demand,
    reservation: Option<Reservation<C>>,
    /// The time, if the clock was read before.
    now: Option<Instant>,
}

/// Dropping it gives up the place in the waiting room, or the slot.
struct Waiting<C: Capacity> {
    /// `None` once the outcome was taken.
    place: Option<Place<C>>,
    request: u64,
    /// What is to be learned from its service, if it is watched, once it was granted a slot.
    served: Option<ServiceSample>,
    /// The time from its arrival until it was granted a slot. `None` before, and if it was rejected.
    waited: Option<Duration>,
}

/// Where a request waits at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QueuePlace {
    /// As [`Acquire::position`].
    pub(crate) position: usize,
    /// As [`Acquire::estimated_wait`].
    pub(crate) estimated_wait: Option<Duration>,
    /// How many requests wait in the whole room.
    pub(crate) depth: usize,
    /// Set while it waits for slots that are being made.
    pub(crate) starting: Option<Starting>,
}

/// A waiter's place in the waiting room of its gate.
struct Place<C: Capacity> {
    origin: Arc<Origin<C>>,
    waiter: WaiterId,
}

/// No field is ever pinned.
impl<C: Capacity> Unpin for Acquire<C> {}

type Answer<C> = Result<Permit<C>, RejectReason<<C as Capacity>::Unservable>>;

impl<C: Capacity> Acquire<C> {
    pub(super) fn new(origin: Arc<Origin<C>>, ticket: Ticket, demand: C::Demand) -> Self {
        Self(Step::Arriving(Arriving {
            origin,
            ticket,
            demand,
            reservation: None,
            now: None,
        }))
    }

    /// Sets the present time, which saves reading the clock again.
    pub(super) fn at(mut self, now: Instant) -> Self {
        if let Step::Arriving(arriving) = &mut self.0 {
            arriving.now = Some(now);
        }
        self
    }

    /// Arrives with a place in the waiting room that was reserved before. A place of another gate is freed, and the
    /// request arrives without one.
    pub fn with_reservation(mut self, reservation: Reservation<C>) -> Self {
        if let Step::Arriving(arriving) = &mut self.0
            && reservation.0.is_of(arriving.origin.shared())
        {
            arriving.reservation = Some(reservation);
        }
        self
    }

    /// Gives it another ticket and another demand while it waits. Returns `false` if it was answered already: then nothing
    /// changes, and the outcome is there when it is polled next.
    ///
    /// For a waiter that stands for a queue of work elsewhere, of which another item has become the most urgent one. It moves
    /// to the place of a request with this ticket that arrives as [requeued](Ticket::requeued): the ticket's arrival
    /// decides, the present time without one. It keeps a place, even if none is free in its new partition. But its wait is over if that is what the
    /// ticket says: by its deadline or, unless it is [patient](Ticket::patient), by `max_wait` from its arrival. If a slot
    /// is free for it in its new place, it is granted at once.
    ///
    /// Before it is first polled, this replaces what the request will arrive with. O(log n) in the number of waiters. The
    /// permit's [request](Permit::request) is the last ticket's id.
    ///
    /// ```
    /// use tower_triage::{Gate, Priority, SlotPool, Ticket, WaitingRoomConfig};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let gate = Gate::new(SlotPool::new(1), WaitingRoomConfig::default());
    /// let running = gate.try_acquire(&()).unwrap();
    /// let ticket = |level, id| Ticket::from(Priority(level)).id(id).patient();
    ///
    /// let mut batch = gate.acquire(ticket(1, 1), ());
    /// let urgent = tokio::time::sleep(std::time::Duration::from_millis(1));
    /// tokio::select! {
    ///     _ = &mut batch => unreachable!("the slot is busy"),
    ///     _ = urgent => assert!(batch.set_ticket(ticket(0, 2), ())),
    /// }
    /// drop(running);
    /// assert!(!batch.set_ticket(ticket(1, 3), ()));
    /// assert_eq!(batch.await.unwrap().request(), 2);
    /// # }
    /// ```
    pub fn set_ticket(&mut self, ticket: Ticket, demand: C::Demand) -> bool {
        match &mut self.0 {
            Step::Arriving(arriving) => {
                (arriving.ticket, arriving.demand) = (ticket, demand);
                true
            }
            Step::Waiting(waiting) => waiting.set_ticket(ticket, demand),
            Step::Done => false,
        }
    }

    /// Its position by now among the waiters that compete for the same slots: 1 is next. `None` unless it waits.
    /// O(n log n) in the number of waiters.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        let (shared, waiter) = self.waiting()?;
        shared.with_lock(|_, state, wakes| state.position(waiter, wakes))
    }

    /// How long it will probably still wait, from the measured departure rate. `None` unless it waits and the rate is
    /// known.
    #[must_use]
    pub fn estimated_wait(&self) -> Option<Duration> {
        let (shared, waiter) = self.waiting()?;
        shared.with_lock(|shared, state, wakes| {
            let position = state.position(waiter, wakes)?;
            state.wait_at(&shared.capacity, position)
        })
    }

    /// Where it waits. `None` unless it does. Costs as much as [`position`](Self::position).
    pub(crate) fn place(&self) -> Option<QueuePlace> {
        let (shared, waiter) = self.waiting()?;
        shared.with_lock(|_, state, wakes| {
            let position = state.position(waiter, wakes)?;
            Some(QueuePlace {
                position,
                estimated_wait: state.wait_at(&shared.capacity, position),
                depth: state.room.len(),
                starting: state.room.starting(&shared.capacity, waiter),
            })
        })
    }

    /// Whether it has not been polled yet.
    pub(crate) fn is_arriving(&self) -> bool {
        matches!(self.0, Step::Arriving(_))
    }

    /// Whether it may poll the inner service, where slots come from there: it is the head, and no other request has
    /// claimed the readiness.
    pub(crate) fn may_poll_inner(&self) -> bool {
        self.waiting().is_some_and(|(shared, waiter)| {
            let state = shared.lock();
            let is_free = state.inner_ready.as_ref().is_some_and(InnerReady::is_free);
            is_free && state.room.head() == Some(waiter)
        })
    }

    /// What the waiting room is to learn from its service, if it waited, was granted a slot and is watched. Once.
    pub(crate) fn take_served(&mut self) -> Option<ServiceSample> {
        match &mut self.0 {
            Step::Waiting(waiting) => waiting.served.take(),
            _ => None,
        }
    }

    /// Returns the time from the request's arrival until it was granted its slot, if it waited and has one.
    #[inline]
    pub(crate) fn waited(&self) -> Option<Duration> {
        match &self.0 {
            Step::Waiting(waiting) => waiting.waited,
            _ => None,
        }
    }

    /// Rejects it with `reason`, if it still waits.
    pub(crate) fn reject(&self, reason: RejectReason<C::Unservable>) {
        if let Some((shared, waiter)) = self.waiting() {
            shared.with_lock(|_, state, wakes| state.room.reject(waiter, reason, wakes));
        }
    }

    fn waiting(&self) -> Option<(&Arc<Shared<C>>, WaiterId)> {
        match &self.0 {
            Step::Waiting(waiting) => {
                let place = waiting.place.as_ref()?;
                Some((&place.origin, place.waiter))
            }
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
                arriving.origin.try_fast_path(&arriving.demand)
            }
            Step::Waiting(waiting) => return waiting.poll_outcome(cx),
            Step::Done => panic!("`Acquire` polled after completion"),
        };
        let Step::Arriving(arriving) = std::mem::replace(&mut self.0, Step::Done) else {
            unreachable!("matched above");
        };
        match lease {
            Some(lease) => {
                let is_fair = arriving.origin.is_fair();
                let permit = Permit::new(arriving.origin, lease, arriving.ticket.id);
                if is_fair {
                    let share = share_of(&arriving.ticket);
                    let share = Some(Box::new(share));
                    return Poll::Ready(Ok(permit.for_share(&arriving.demand, share)));
                }
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
    /// Enters the waiting room, or is answered at once.
    fn arrive(self, cx: &mut Context<'_>) -> Result<Waiting<C>, Answer<C>> {
        let Self {
            origin,
            ticket,
            demand,
            reservation,
            now,
        } = self;
        let request = ticket.id;
        let now = now.unwrap_or_else(clock::now);
        // A caller's code: not under the lock, and while the reservation is still this request's.
        let waker = cx.waker().clone();
        let reserved = reservation.map(|held| held.0.hand_over()).is_some();
        let (arrival, share) = origin.arrive(ticket, demand, now, waker, reserved);
        let arrived = match arrival.outcome {
            AdmitOutcome::Leased(lease) => {
                let permit = Permit::new(origin, lease, request);
                let demand = arrival.unused.as_ref().map(|(demand, _)| demand);
                Err(Ok(match demand {
                    Some(demand) => permit.for_share(demand, share),
                    None => permit,
                }))
            }
            AdmitOutcome::Rejected(reason) => Err(Err(reason)),
            AdmitOutcome::Queued(waiter) => Ok(Waiting {
                place: Some(Place { origin, waiter }),
                request,
                served: None,
                waited: None,
            }),
        };
        // After the permit has been made: a caller's destructor may panic.
        drop(arrival.unused);
        arrived
    }
}

impl<C: Capacity> Waiting<C> {
    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Answer<C>> {
        let Some(Place { origin, waiter }) = &self.place else {
            panic!("`Acquire` polled after completion");
        };
        let waiter = *waiter;
        let mut state = origin.lock();
        if let Some(outcome) = state.room.take_answer(waiter) {
            drop(state);
            return Poll::Ready(self.complete(outcome));
        }
        let known = state.room.waker(waiter);
        let was_taken = known.is_none();
        // The usual spurious poll: the waker that is there will do.
        if known.is_some_and(|waker| waker.will_wake(cx.waker())) {
            let timer = state.arm_timer_here(waiter);
            drop(state);
            run(timer, origin);
            return Poll::Pending;
        }
        drop(state);
        // A waker's own code runs when it is cloned or dropped: not under the lock.
        let new = cx.waker().clone();
        if was_taken {
            // It was woken to arm a timer: until then none has ended its wait.
            origin.with_lock(|_, state, wakes| state.room.advance_waits(clock::now(), wakes));
        }
        let mut state = origin.lock();
        // It may have been answered while the lock was released.
        if let Some(outcome) = state.room.take_answer(waiter) {
            drop(state);
            return Poll::Ready(self.complete(outcome));
        }
        let unused = state.room.set_waker(waiter, new).unwrap_or_else(Some);
        let timer = state.arm_timer_here(waiter);
        drop(state);
        run(timer, origin);
        drop(unused); // without the lock
        Poll::Pending
    }

    /// Gives it another ticket and another demand, as [`Acquire::set_ticket`] does.
    fn set_ticket(&mut self, ticket: Ticket, mut demand: C::Demand) -> bool {
        let Some(Place { origin, waiter }) = &self.place else {
            return false; // its outcome was taken
        };
        let request = ticket.id;
        let (is_changed, timer) = origin.with_lock(|shared, state, wakes| {
            let (now, room) = (clock::now(), &mut state.room);
            let capacity = &shared.capacity;
            let is_changed = room.set_ticket(capacity, *waiter, ticket, &mut demand, now, wakes);
            // It may end earlier than before.
            let timer = is_changed.then(|| state.arm_timer_here(*waiter));
            (is_changed, timer.flatten())
        });
        run(timer, origin);
        if is_changed {
            self.request = request;
        }
        // Without the lock, the demand is dropped here: the old one or the new.
        is_changed
    }

    /// Its outcome was taken, so its id is no longer valid.
    fn complete(&mut self, answered: Answered<C>) -> Answer<C> {
        let Answered {
            answer,
            demand,
            share,
            served,
            waited,
        } = answered;
        (self.served, self.waited) = (served, waited);
        let Some(Place { origin, .. }) = self.place.take() else {
            unreachable!("an outcome is taken once");
        };
        let answer = answer.map(|lease| Permit::new(origin, lease, self.request));
        // After the permit has been made: a caller's destructor may panic.
        let answer = match share {
            None => answer,
            share => answer.map(|permit| permit.for_share(&demand, share)),
        };
        drop(demand);
        answer
    }

    /// Gives up the place in the waiting room, or the slot.
    fn cancel(&mut self) {
        let Some(Place { origin, waiter }) = self.place.take() else {
            return; // its outcome was taken
        };
        // Taken apart without the lock: the waker and the demand are the caller's, and so are their destructors.
        let waiter = origin.with_lock(|_, state, _| state.room.remove(waiter, clock::now()));
        if let State::Leased { lease, .. } = waiter.state {
            if origin.from_inner {
                origin.end_claim(); // it can't have called the inner service
            }
            // Counted or not: the room knows that it is given back.
            origin.shared().release(lease);
        }
    }
}

fn run<C: Capacity>(timer: Option<TimerRequest>, shared: &Arc<Shared<C>>) {
    if let Some(timer) = timer {
        timer.run(shared);
    }
}

impl<C: Capacity> Drop for Waiting<C> {
    fn drop(&mut self) {
        self.cancel();
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
