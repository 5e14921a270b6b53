//! A future that waits for a slot: `Acquire`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
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
    AdmitOutcome, Answered, Arrival, Capacity, RejectReason, ServiceSample, Share, Starting, State,
    Ticket, WaiterId,
};
use crate::clock;
use crate::sync::{Arc, MutexGuard, poll_proceed};

/// A future that waits for a slot. Created by [`Gate::acquire`](super::Gate::acquire).
///
/// The request arrives at the gate when this is first polled. It resolves exactly once: to a permit, or to the reason
/// for the rejection.
///
/// # Cancel safety
///
/// Dropping it at any time gives up the place in the waiting room at once. If a slot had already been granted, the slot
/// goes to the next waiter.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<C: Capacity> {
    /// `None` once the outcome of a wait was returned.
    origin: Option<Arc<Origin<C>>>,
    step: Step<C>,
}

/// The steps of an [`Acquire`], from before its first poll until its outcome was returned.
enum Step<C: Capacity> {
    Arriving(Arriving<C>),
    Waiting(Waiting),
    /// The request was answered when it arrived, and its task has to let others run before it gets the answer.
    Answered(Answer<C>),
    /// The answer was returned.
    Done,
}

/// A request that has yet to arrive at the gate.
struct Arriving<C: Capacity> {
    arrival: Arrival<C::Demand, Waker>,
    reservation: Option<Reservation<C>>,
    /// The time, if the caller has read the clock already.
    now: Option<Instant>,
}

/// A request that has entered the waiting room. It is there while its [`Acquire`] has an origin.
struct Waiting {
    waiter: WaiterId,
    request: u64,
    /// The sample from which the room learns service times, if the request was granted a slot and its service is
    /// watched.
    served: Option<ServiceSample>,
    /// The time from the arrival until a slot was granted. `None` before that, and if the request was rejected.
    waited: Option<Duration>,
}

/// The position of a waiting request at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QueuePlace {
    /// The number that [`Acquire::position`] returns.
    pub(crate) position: usize,
    /// The time that [`Acquire::estimated_wait`] returns.
    pub(crate) estimated_wait: Option<Duration>,
    /// The number of requests that wait in the whole room.
    pub(crate) depth: usize,
    /// Set while the request waits for slots that are being started.
    pub(crate) starting: Option<Starting>,
}

/// The fields are used only through plain references, so moving the future is sound.
impl<C: Capacity> Unpin for Acquire<C> {}

type Answer<C> = Result<Permit<C>, RejectReason<<C as Capacity>::Unservable>>;

impl<C: Capacity> Acquire<C> {
    pub(super) fn new(origin: Arc<Origin<C>>, ticket: Ticket, demand: C::Demand) -> Self {
        Self {
            origin: Some(origin),
            step: Step::Arriving(Arriving {
                arrival: Arrival::new(ticket, demand),
                reservation: None,
                now: None,
            }),
        }
    }

    /// Sets the present time, which saves reading the clock again.
    pub(super) fn at(mut self, now: Instant) -> Self {
        if let Step::Arriving(arriving) = &mut self.step {
            arriving.now = Some(now);
        }
        self
    }

    /// Sets a place in the waiting room that was reserved before, with which the request arrives.
    ///
    /// If the place belongs to another gate, it is freed and the request arrives without a reservation.
    pub fn with_reservation(mut self, reservation: Reservation<C>) -> Self {
        if let (Some(origin), Step::Arriving(arriving)) = (&self.origin, &mut self.step)
            && reservation.0.is_of(origin.shared())
        {
            arriving.reservation = Some(reservation);
        }
        self
    }

    /// Replaces the ticket and the demand while the request waits.
    ///
    /// Returns `false` if the request was answered already. In this case nothing changes, and the next poll returns the
    /// outcome.
    ///
    /// This is for a waiter that stands for a queue of work elsewhere, after another item has become the most urgent
    /// one. The waiter moves to the place of a request with this ticket that arrives as [requeued](Ticket::requeued).
    /// The ticket's arrival decides the place, or the present time if the ticket has no arrival. The waiter stays in
    /// the room even if its new partition is full. Its wait ends if the new ticket is overdue: by its deadline or,
    /// unless it is [patient](Ticket::patient), by `max_wait` from its arrival. If a slot is free for its new place,
    /// the waiter gets it at once.
    ///
    /// Before the first poll, this replaces the ticket and demand with which the request will arrive. The permit's
    /// [request](Permit::request) is the id of the last ticket. Takes O(log n) time in the number of waiters.
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
        match &mut self.step {
            Step::Arriving(arriving) => {
                arriving.arrival = Arrival::new(ticket, demand);
                true
            }
            Step::Waiting(waiting) => match &self.origin {
                Some(origin) => waiting.set_ticket(origin, ticket, demand),
                None => false, // its outcome was taken
            },
            Step::Answered(_) | Step::Done => false,
        }
    }

    /// Returns the request's current position among the waiters that compete for the same slots, where 1 is next.
    ///
    /// Returns `None` unless the request waits. Takes O(n log n) time in the number of waiters.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        let (shared, waiter) = self.waiting()?;
        shared.with_lock(|_, state, wakes| state.position(waiter, wakes))
    }

    /// Returns the time that the request will probably still wait, from the measured departure rate.
    ///
    /// Returns `None` unless the request waits and the rate is known.
    #[must_use]
    pub fn estimated_wait(&self) -> Option<Duration> {
        let (shared, waiter) = self.waiting()?;
        shared.with_lock(|shared, state, wakes| {
            let position = state.position(waiter, wakes)?;
            state.wait_at(&shared.capacity, position)
        })
    }

    /// Returns the position of the request and the state of its room. Returns `None` unless the request waits. Costs as
    /// much as [`position`](Self::position).
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

    /// Returns `true` until the request waits, or its answer at the arrival was returned.
    pub(crate) fn is_arriving(&self) -> bool {
        matches!(self.step, Step::Arriving(_) | Step::Answered(_))
    }

    /// Returns `true` if the request may poll the inner service from which slots come. It may do so if it is the head
    /// and the readiness is not claimed by another request.
    pub(crate) fn may_poll_inner(&self) -> bool {
        self.waiting().is_some_and(|(shared, waiter)| {
            let state = shared.lock();
            let is_free = state.inner_ready.as_ref().is_some_and(InnerReady::is_free);
            is_free && state.room.head() == Some(waiter)
        })
    }

    /// Takes the sample from which the waiting room learns service times. Returns it once, if the request waited, was
    /// granted a slot and its service is watched.
    pub(crate) fn take_served(&mut self) -> Option<ServiceSample> {
        match &mut self.step {
            Step::Waiting(waiting) => waiting.served.take(),
            _ => None,
        }
    }

    /// Returns the time from the request's arrival until its slot was granted, if the request waited and got a slot.
    #[inline]
    pub(crate) fn waited(&self) -> Option<Duration> {
        match &self.step {
            Step::Waiting(waiting) => waiting.waited,
            _ => None,
        }
    }

    /// Rejects the request with `reason`, if it still waits.
    pub(crate) fn reject(&self, reason: RejectReason<C::Unservable>) {
        if let Some((shared, waiter)) = self.waiting() {
            shared.with_lock(|_, state, wakes| state.room.reject(waiter, reason, wakes));
        }
    }

    /// Returns the gate and the waiter's id, if the request is in the waiting room.
    #[inline]
    fn waiting(&self) -> Option<(&Arc<Shared<C>>, WaiterId)> {
        match &self.step {
            Step::Waiting(waiting) => Some((self.origin.as_ref()?, waiting.waiter)),
            _ => None,
        }
    }
}

impl<C: Capacity> Future for Acquire<C> {
    type Output = Answer<C>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer<C>> {
        match &self.step {
            Step::Arriving(_) => self.poll_arrival(cx),
            Step::Waiting(_) => self.poll_outcome(cx),
            Step::Answered(_) => self.poll_answered(cx),
            Step::Done => completed(),
        }
    }
}

/// Panics, because the future was polled after it had returned its outcome.
fn completed() -> ! {
    panic!("`Acquire` polled after completion")
}

impl<C: Capacity> Acquire<C> {
    /// Lets the request arrive. Its parts stay where they are until the room takes them, because they are large.
    #[inline]
    fn poll_arrival(&mut self, cx: &mut Context<'_>) -> Poll<Answer<C>> {
        let (Some(origin), Step::Arriving(arriving)) = (&self.origin, &mut self.step) else {
            completed();
        };
        // Only arrivals use up budget, because a task that has to wait lets other tasks run anyway. A request arrives without
        // budget, too, because later ones would go first otherwise; only its answer has to wait.
        let may_answer = poll_proceed(cx).map(|budget| budget.made_progress());
        let (outcome, share) = arriving.arrive(origin, cx);
        let request = arriving.arrival.ticket.id;
        let answer = match outcome {
            AdmitOutcome::Queued(waiter) => {
                self.step = Step::Waiting(Waiting {
                    waiter,
                    request,
                    served: None,
                    waited: None,
                });
                return Poll::Pending;
            }
            AdmitOutcome::Leased(lease) => {
                let permit = Permit::new(Arc::clone(origin), lease, request);
                Ok(match arriving.arrival.demand() {
                    Some(demand) => permit.for_share(demand, share, arriving.arrival.ticket.cost),
                    None => permit,
                })
            }
            AdmitOutcome::Rejected(reason) => Err(reason),
        };
        // The unused demand is dropped after the permit has been made, because its destructor may panic.
        match may_answer {
            Poll::Ready(()) => {
                self.step = Step::Done;
                Poll::Ready(answer)
            }
            Poll::Pending => {
                self.step = Step::Answered(answer);
                Poll::Pending
            }
        }
    }

    /// Returns the answer that the request got when it arrived, as soon as the task has budget again.
    #[cold]
    #[inline(never)]
    fn poll_answered(&mut self, cx: &mut Context<'_>) -> Poll<Answer<C>> {
        ready!(poll_proceed(cx)).made_progress();
        match std::mem::replace(&mut self.step, Step::Done) {
            Step::Answered(answer) => Poll::Ready(answer),
            _ => completed(),
        }
    }

    /// Returns the outcome, or leaves the task's waker with the waiter and arms the timer of the current runtime.
    #[inline]
    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Answer<C>> {
        let (Some(origin), Step::Waiting(waiting)) = (&self.origin, &mut self.step) else {
            completed();
        };
        let mut unused = None;
        let mut state = origin.lock();
        let answered = match state.room.take_answer(waiting.waiter) {
            Some(answered) => {
                drop(state);
                answered
            }
            None => match waiting.go_on(origin, state, cx, &mut unused) {
                Some(answered) => answered,
                None => return Poll::Pending,
            },
        };
        let Answered {
            answer,
            demand,
            share,
            served,
            waited,
        } = answered;
        (waiting.served, waiting.waited) = (served, waited);
        let request = waiting.request;
        // Taken, because the waiter's id is not valid any more.
        let Some(origin) = self.origin.take() else {
            completed();
        };
        let answer = answer.map(|lease| Permit::new(origin, lease, request));
        let answer = match share {
            None => answer,
            share => answer.map(|permit| permit.for_share(&demand, share, 1)),
        };
        // Both destructors are the caller's and may panic. The permit is still a variable then, which is dropped, while a value
        // that is being returned would be lost.
        drop(demand);
        drop(unused);
        Poll::Ready(answer)
    }

    /// Gives up the place in the waiting room, or the slot.
    fn cancel(&mut self) {
        let Some((shared, id)) = self.waiting() else {
            return; // it never arrived, or its outcome was taken
        };
        // The waiter is taken apart without the lock, because its waker and demand have destructors of the caller.
        let waiter = shared.with_lock(|_, state, _| state.room.remove(id, clock::now()));
        if let State::Leased { lease, .. } = waiter.state {
            shared.release_unclaimed(lease);
        }
    }
}

impl<C: Capacity> Arriving<C> {
    /// Takes a slot without the lock, or enters the waiting room.
    #[inline]
    fn arrive(
        &mut self,
        origin: &Arc<Origin<C>>,
        cx: &mut Context<'_>,
    ) -> (AdmitOutcome<C>, Option<Box<Share>>) {
        let demand = self.arrival.demand();
        if let Some(lease) = demand.and_then(|demand| origin.try_fast_path(demand)) {
            let share = origin.is_fair().then(|| share_of(&self.arrival.ticket));
            return (AdmitOutcome::Leased(lease), share.map(Box::new));
        }
        let now = self.now.unwrap_or_else(clock::now);
        // Cloned before the lock is taken, because a waker's code is the caller's. If it panics, the reservation stays with
        // the future, which frees it.
        self.arrival.waker = Some(cx.waker().clone());
        let reserved = self.reservation.take();
        let reserved = reserved.map(|held| held.0.hand_over()).is_some();
        origin.arrive(&mut self.arrival, now, reserved)
    }
}

impl Waiting {
    /// Leaves the task's waker with the waiter and arms the timer of the current runtime, unless the request has been
    /// answered by now. A waker that is not needed is left in `unused`.
    #[cold]
    #[inline(never)]
    fn go_on<C: Capacity>(
        &self,
        origin: &Arc<Origin<C>>,
        mut state: MutexGuard<'_, super::state::State<C>>,
        cx: &mut Context<'_>,
        unused: &mut Option<Waker>,
    ) -> Option<Answered<C>> {
        let waiter = self.waiter;
        let known = state.room.waker(waiter);
        let was_taken = known.is_none();
        // On the usual spurious poll, the waker that is there will do.
        if known.is_some_and(|waker| waker.will_wake(cx.waker())) {
            let timer = state.arm_timer_here(waiter);
            drop(state);
            run(timer, origin);
            return None;
        }
        drop(state);
        // The waker is cloned without the lock, because its code is the caller's.
        let new = cx.waker().clone();
        if was_taken {
            // The waiter was woken to arm a timer, and until then its wait may have passed its end unnoticed.
            origin.with_lock(|_, state, wakes| state.room.advance_waits(clock::now(), wakes));
        }
        let mut state = origin.lock();
        // The request may have been answered while the lock was released.
        if let Some(answered) = state.room.take_answer(waiter) {
            *unused = Some(new);
            return Some(answered);
        }
        *unused = state.room.set_waker(waiter, new).unwrap_or_else(Some);
        let timer = state.arm_timer_here(waiter);
        drop(state);
        run(timer, origin);
        None
    }

    /// Replaces the waiter's ticket and demand, as described at [`Acquire::set_ticket`].
    fn set_ticket<C: Capacity>(
        &mut self,
        origin: &Arc<Origin<C>>,
        ticket: Ticket,
        mut demand: C::Demand,
    ) -> bool {
        let (waiter, request) = (self.waiter, ticket.id);
        let (is_changed, timer) = origin.with_lock(|shared, state, wakes| {
            let (now, room) = (clock::now(), &mut state.room);
            let capacity = &shared.capacity;
            let is_changed = room.set_ticket(capacity, waiter, ticket, &mut demand, now, wakes);
            // The new ticket may end the wait earlier than the old one.
            let timer = is_changed.then(|| state.arm_timer_here(waiter));
            (is_changed, timer.flatten())
        });
        run(timer, origin);
        if is_changed {
            self.request = request;
        }
        // The unused demand, the old one or the new, is dropped here without the lock.
        is_changed
    }
}

/// Performs the action on a timer, if there is one. To be called without the lock.
fn run<C: Capacity>(timer: Option<TimerRequest>, shared: &Arc<Shared<C>>) {
    if let Some(timer) = timer {
        timer.run(shared);
    }
}

impl<C: Capacity> Drop for Acquire<C> {
    #[inline]
    fn drop(&mut self) {
        if self.waiting().is_some() {
            self.cancel();
        }
    }
}

impl<C: Capacity> fmt::Debug for Acquire<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::Arriving(_) | Step::Answered(_) => "arriving",
            Step::Waiting(_) if self.origin.is_some() => "waiting",
            Step::Waiting(_) | Step::Done => "done",
        };
        f.debug_tuple("Acquire").field(&step).finish()
    }
}
