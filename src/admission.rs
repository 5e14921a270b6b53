//! A request's way through a gate: acquire, inner ready, call, hold.
//!
//! Written twice, the queue and the router would differ in the cases that matter: the caller who leaves in
//! mid-wait, the inner service that is not ready when the slot is there, the body that outlives its headers.
//! Here it stands once. A [`Desk`] says what differs: how a request is seated, answered and refused.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_service::Service;

use crate::admit::{Capacity, RejectReason, Ticket};
use crate::clock;
use crate::gate::{self, Acquire, Gate, Permit, Reservation};
use crate::queue::Hold;

/// What becomes of a request at the front desk of a layer.
pub(crate) trait Desk<C: Capacity, Req, S: Service<Req>> {
    type Answer;
    /// What one is told who was turned away without looking at its ticket.
    type Notice;

    /// The gate that the request has to pass.
    fn gate(&self) -> &Gate<C>;

    /// Tells the request where it goes.
    fn seat(&self, _request: &mut Req, _lease: &mut C::Lease, _waited: Duration) {}

    /// Answers a request that got no slot.
    fn refuse(
        &self,
        request: Req,
        why: RejectReason<C::Unservable>,
        waited: Duration,
    ) -> Self::Answer;

    /// Answers one who was turned away.
    fn turned_away(notice: Self::Notice) -> Self::Answer;

    /// Passes the inner service's answer on, with the permit if it is still held.
    fn answer(
        tail: Tail,
        result: Result<S::Response, S::Error>,
        permit: Option<Permit<C>>,
        waited: Duration,
    ) -> Self::Answer;
}

/// What has to be known when the answer is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tail {
    pub(crate) hold: Hold,
    pub(crate) server_timing: bool,
}

pin_project! {
    /// A request on its way. One that gets through at once carries nothing that only waiting needs.
    pub(crate) struct Admission<C, S, Req, D, N>
    where
        C: Capacity,
        S: Service<Req>,
    {
        tail: Tail,
        waited: Duration,
        #[pin]
        step: Step<C, S, Req, D, S::Future, N, S::Error>,
    }
}

pin_project! {
    #[project = StepProj]
    enum Step<C, S, Req, D, F, N, E>
    where
        C: Capacity,
    {
        Outside { who: Option<Outside<C, S, Req, D, N, E>> },
        Calling { #[pin] future: F, permit: Option<Permit<C>> },
    }
}

/// A request that is not yet being served, or never will be.
enum Outside<C: Capacity, S, Req, D, N, E> {
    Queued(Box<Queued<C, S, Req, D>>),
    TurnedAway(N),
    /// The inner service failed before it was called.
    Failed(E),
}

/// A request that waits: for a slot, or with one for the inner service to be ready.
struct Queued<C: Capacity, S, Req, D> {
    visit: Visit<S, Req, D>,
    arrival: Instant,
    deadline: Option<Instant>,
    wait: Wait<C>,
}

/// A request, whom it is for, and what is known of it.
pub(crate) struct Visit<S, Req, D> {
    pub(crate) desk: D,
    pub(crate) inner: S,
    pub(crate) request: Req,
}

enum Wait<C: Capacity> {
    ForSlot {
        acquire: Acquire<C>,
        /// Whether the inner service was asked for room by this request's clone of it.
        asked_inner: bool,
    },
    ForInner {
        permit: Option<Permit<C>>,
        patience: Option<Patience<C>>,
    },
}

impl<C: Capacity> Wait<C> {
    fn for_inner(permit: Permit<C>) -> Self {
        Self::ForInner {
            permit: Some(permit),
            patience: None,
        }
    }

    fn is_arriving(&self) -> bool {
        match self {
            Self::ForSlot { acquire, .. } => acquire.is_arriving(),
            Self::ForInner { .. } => false,
        }
    }

    fn take_permit(&mut self) -> Permit<C> {
        match self {
            Self::ForInner { permit, .. } => permit.take(),
            Self::ForSlot { .. } => None,
        }
        .unwrap_or_else(|| unreachable!("a permit is taken once, when it is there"))
    }
}

/// The rest of the wait, while the slot is there and the inner service is not ready.
struct Patience<C: Capacity> {
    ends: Pin<Box<Sleep>>,
    why: RejectReason<C::Unservable>,
}

/// What the gate answered.
type Answer<C> = Result<Permit<C>, RejectReason<<C as Capacity>::Unservable>>;

/// The inner service's future, and the permit if it is still held; or the answer.
type PassedOn<C, F, A> = Result<(F, Option<Permit<C>>), A>;

/// How waiting ended.
enum End<C: Capacity, E> {
    Ready(Permit<C>),
    Refused(RejectReason<C::Unservable>),
    Failed(E),
}

impl<C, S, Req, D, N> Admission<C, S, Req, D, N>
where
    C: Capacity,
    S: Service<Req>,
    D: Desk<C, Req, S, Notice = N>,
{
    /// A request that was turned away.
    pub(crate) fn turned_away(notice: N, tail: Tail) -> Self {
        Self {
            tail,
            waited: Duration::ZERO,
            step: Step::Outside {
                who: Some(Outside::TurnedAway(notice)),
            },
        }
    }

    /// A request that has been passed on already.
    #[inline]
    pub(crate) fn calling(future: S::Future, permit: Permit<C>, tail: Tail) -> Self {
        Self {
            tail,
            waited: Duration::ZERO,
            step: Step::Calling {
                future,
                permit: Some(permit),
            },
        }
    }

    /// A request whose inner service failed before it was called.
    #[cold]
    pub(crate) fn failed(error: S::Error, tail: Tail) -> Self {
        Self {
            tail,
            waited: Duration::ZERO,
            step: Step::Outside {
                who: Some(Outside::Failed(error)),
            },
        }
    }

    /// A request that has a slot, while the inner service is not known to be ready.
    pub(crate) fn readying(
        visit: Visit<S, Req, D>,
        ticket: &Ticket,
        permit: Permit<C>,
        tail: Tail,
    ) -> Self {
        let now = gate::now();
        let times = (arrived(ticket, now), ticket.deadline);
        Self::queued(visit, times, Wait::for_inner(permit), tail)
    }

    /// A request that arrives at the gate when it is first polled, which is about `now`.
    pub(crate) fn waiting(
        visit: Visit<S, Req, D>,
        ticket: Ticket,
        now: Instant,
        demand: C::Demand,
        chair: Option<Reservation<C>>,
        tail: Tail,
    ) -> Self {
        let times = (arrived(&ticket, now), ticket.deadline);
        let acquire = visit.desk.gate().acquire_at(ticket, now, demand);
        let wait = Wait::ForSlot {
            acquire: match chair {
                Some(chair) => acquire.with_reservation(chair),
                None => acquire,
            },
            asked_inner: false,
        };
        Self::queued(visit, times, wait, tail)
    }

    fn queued(
        visit: Visit<S, Req, D>,
        (arrival, deadline): (Instant, Option<Instant>),
        wait: Wait<C>,
        tail: Tail,
    ) -> Self {
        let queued = Queued {
            visit,
            arrival,
            deadline,
            wait,
        };
        Self {
            tail,
            waited: Duration::ZERO,
            step: Step::Outside {
                who: Some(Outside::Queued(Box::new(queued))),
            },
        }
    }
}

/// When a request arrived: not after `now`, whatever its ticket says, so that its wait has a bound.
fn arrived(ticket: &Ticket, now: Instant) -> Instant {
    ticket.arrival.map_or(now, |arrival| arrival.min(now))
}

impl<C, S, Req, D, N> Admission<C, S, Req, D, N>
where
    C: Capacity,
    S: Service<Req>,
{
    /// The slot with which the request is being served.
    #[cfg(feature = "route")]
    pub(crate) fn lease(self: Pin<&mut Self>) -> Option<&C::Lease> {
        match self.project().step.project() {
            StepProj::Calling { permit, .. } => permit.as_ref().map(Permit::lease),
            StepProj::Outside { .. } => None,
        }
    }
}

impl<C, S, Req, D, N> Future for Admission<C, S, Req, D, N>
where
    C: Capacity,
    S: Service<Req> + Clone,
    D: Desk<C, Req, S, Notice = N>,
{
    type Output = D::Answer;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<D::Answer> {
        let mut this = self.project();
        if let StepProj::Outside { who } = this.step.as_mut().project() {
            match ready!(Outside::poll(who, *this.tail, this.waited, cx)) {
                Ok((future, permit)) => this.step.set(Step::Calling { future, permit }),
                Err(answer) => return Poll::Ready(answer),
            }
        }
        let StepProj::Calling { future, permit } = this.step.project() else {
            unreachable!("whoever is not outside is being served");
        };
        let result = ready!(future.poll(cx));
        Poll::Ready(D::answer(*this.tail, result, permit.take(), *this.waited))
    }
}

impl<C, S, Req, D, N> Outside<C, S, Req, D, N, S::Error>
where
    C: Capacity,
    S: Service<Req> + Clone,
    D: Desk<C, Req, S, Notice = N>,
{
    /// Passes the request on, or answers it.
    #[cold]
    #[inline(never)]
    fn poll(
        who: &mut Option<Self>,
        tail: Tail,
        waited: &mut Duration,
        cx: &mut Context<'_>,
    ) -> Poll<PassedOn<C, S::Future, D::Answer>> {
        let end = match who {
            Some(Self::Queued(queued)) => Some(ready!(queued.poll(waited, cx))),
            _ => None,
        };
        Poll::Ready(match (who.take(), end) {
            (Some(Self::Queued(queued)), Some(end)) => queued.pass_on(end, tail, *waited),
            (Some(Self::TurnedAway(notice)), _) => Err(D::turned_away(notice)),
            (Some(Self::Failed(error)), _) => Err(D::answer(tail, Err(error), None, *waited)),
            _ => panic!("response future polled after it was answered"),
        })
    }
}

impl<C, S, Req, D> Queued<C, S, Req, D>
where
    C: Capacity,
    S: Service<Req> + Clone,
    D: Desk<C, Req, S>,
{
    fn poll(&mut self, waited: &mut Duration, cx: &mut Context<'_>) -> Poll<End<C, S::Error>> {
        let arrives = self.wait.is_arriving();
        let end = ready!(self.poll_wait(cx));
        // Who did not wait needs no clock.
        if !arrives {
            *waited = gate::now().saturating_duration_since(self.arrival);
        }
        Poll::Ready(end)
    }

    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<End<C, S::Error>> {
        if let Wait::ForSlot {
            acquire,
            asked_inner,
        } = &mut self.wait
        {
            let answer = if self.visit.desk.gate().capacity().made_by_head() {
                let arrives = acquire.is_arriving();
                match self.visit.poll_in_turn(acquire, asked_inner, cx) {
                    Poll::Ready(Ok(answer)) => answer,
                    Poll::Ready(Err(error)) => return Poll::Ready(End::Failed(error)),
                    Poll::Pending if arrives && !acquire.may_wait() => {
                        acquire.turn_away(RejectReason::NotQueued);
                        ready!(Pin::new(acquire).poll(cx))
                    }
                    Poll::Pending => return Poll::Pending,
                }
            } else {
                ready!(Pin::new(acquire).poll(cx))
            };
            match answer {
                Ok(permit) => self.wait = Wait::for_inner(permit),
                Err(why) => return Poll::Ready(End::Refused(why)),
            }
        }
        match self.visit.inner.poll_ready(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(End::Ready(self.wait.take_permit())),
            Poll::Ready(Err(error)) => Poll::Ready(End::Failed(error)),
            Poll::Pending => self.poll_patience(cx).map(End::Refused),
        }
    }

    /// Resolves when the request has waited long enough, although it has a slot.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<RejectReason<C::Unservable>> {
        let Wait::ForInner { patience, .. } = &mut self.wait else {
            unreachable!("the slot is there");
        };
        if patience.is_none() {
            let gate = self.visit.desk.gate();
            let Some((end, why)) = gate.end_of_wait(self.arrival, self.deadline) else {
                return Poll::Pending;
            };
            // As in the gate: without Tokio's clock, no wait times out.
            let Some(sleep) = clock::sleep_until(end) else {
                return Poll::Pending;
            };
            let ends = Box::pin(sleep);
            *patience = Some(Patience { ends, why });
        }
        let Some(Patience { ends, why }) = patience else {
            return Poll::Pending;
        };
        ends.as_mut().poll(cx).map(|()| why.clone())
    }

    /// Passes the request on, with its permit, or answers it.
    fn pass_on(
        self,
        end: End<C, S::Error>,
        tail: Tail,
        waited: Duration,
    ) -> PassedOn<C, S::Future, D::Answer> {
        let Visit {
            desk,
            mut inner,
            mut request,
        } = self.visit;
        match end {
            End::Ready(mut permit) => {
                desk.seat(&mut request, permit.lease_mut(), waited);
                let future = inner.call(request);
                permit.end_turn();
                Ok((future, Some(permit)))
            }
            End::Refused(why) => Err(desk.refuse(request, why, waited)),
            End::Failed(error) => Err(D::answer(tail, Err(error), None, waited)),
        }
    }
}

impl<S, Req, D> Visit<S, Req, D> {
    /// Waits for one's turn; asks the inner service for room only while it is.
    ///
    /// Whoever made room for a call gives it to who is next by then, which may be somebody better who came
    /// meanwhile. The clone that was asked is then let go, so that the room is free for the other; and the
    /// other is told to ask again, because an inner service that all share wakes only who asked last.
    fn poll_in_turn<C>(
        &mut self,
        acquire: &mut Acquire<C>,
        asked_inner: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Answer<C>, S::Error>>
    where
        C: Capacity,
        S: Service<Req> + Clone,
        D: Desk<C, Req, S>,
    {
        if let Poll::Ready(answer) = Pin::new(&mut *acquire).poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        if acquire.has_turn() {
            *asked_inner = true;
            if self.inner.poll_ready(cx)?.is_ready() {
                self.desk.gate().slot_made();
                if let Poll::Ready(answer) = Pin::new(&mut *acquire).poll(cx) {
                    return Poll::Ready(Ok(answer));
                }
            } else if acquire.has_turn() {
                return Poll::Pending;
            }
        }
        if std::mem::take(asked_inner) {
            self.inner = self.inner.clone();
            self.desk.gate().tell_head();
        }
        Poll::Pending
    }
}
