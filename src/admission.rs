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
use tokio::time::{Sleep, sleep_until};
use tower_service::Service;

use crate::admit::{Capacity, Rejected, Ticket};
use crate::gate::{self, Acquire, Chair, Gate, Permit};
use crate::queue::Hold;

/// What becomes of a request at the front desk of a layer.
pub(crate) trait Desk<C: Capacity, Req, S: Service<Req>> {
    type Answer;

    /// Tells the request where it goes.
    fn seat(&self, _request: &mut Req, _lease: &C::Lease, _waited: Duration) {}

    /// Answers a request that got no slot.
    fn refuse(&self, request: Req, why: Rejected<C::Never>, waited: Duration) -> Self::Answer;

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
    /// A request on its way.
    pub(crate) struct Admission<C, S, Req, D>
    where
        C: Capacity,
        S: Service<Req>,
    {
        // Who has to be asked if the request does not get through at once.
        queued: Option<Queued<C, D>>,
        inner: Option<S>,
        request: Option<Req>,
        tail: Tail,
        waited: Duration,
        #[pin]
        step: Step<C, S::Future>,
    }
}

pin_project! {
    #[project = StepProj]
    enum Step<C, F>
    where
        C: Capacity,
    {
        Waiting { acquire: Acquire<C>, polled: bool, asked_inner: bool },
        Readying { permit: Option<Permit<C>>, patience: Option<Patience<C>> },
        Calling { #[pin] future: F, permit: Option<Permit<C>> },
        Done,
    }
}

struct Queued<C: Capacity, D> {
    gate: Gate<C>,
    desk: D,
    ticket: Ticket,
}

/// The rest of the wait, while the slot is there and the inner service is not ready.
struct Patience<C: Capacity> {
    ends: Pin<Box<Sleep>>,
    why: Rejected<C::Never>,
}

impl<C, S, Req, D> Admission<C, S, Req, D>
where
    C: Capacity,
    S: Service<Req>,
    D: Desk<C, Req, S>,
{
    /// A request that has been passed on already.
    pub(crate) fn calling(future: S::Future, permit: Permit<C>, tail: Tail) -> Self {
        Self {
            queued: None,
            inner: None,
            request: None,
            tail,
            waited: Duration::ZERO,
            step: Step::Calling {
                future,
                permit: Some(permit),
            },
        }
    }

    /// A request that has a slot, while `inner` is not known to be ready.
    pub(crate) fn readying(visit: Visit<C, S, Req, D>, permit: Permit<C>) -> Self {
        visit.start(|_, _| Step::Readying {
            permit: Some(permit),
            patience: None,
        })
    }

    /// A request that arrives at the gate when it is first polled.
    pub(crate) fn waiting(
        visit: Visit<C, S, Req, D>,
        demand: C::Demand,
        chair: Option<Chair<C>>,
    ) -> Self {
        visit.start(|gate, ticket| {
            let acquire = gate.acquire(ticket.clone(), demand);
            Step::Waiting {
                acquire: match chair {
                    Some(chair) => acquire.on_chair(chair),
                    None => acquire,
                },
                polled: false,
                asked_inner: false,
            }
        })
    }
}

/// A request, whom it is for, and what is known of it.
pub(crate) struct Visit<C: Capacity, S, Req, D> {
    pub(crate) gate: Gate<C>,
    pub(crate) desk: D,
    pub(crate) ticket: Ticket,
    pub(crate) inner: S,
    pub(crate) request: Req,
    pub(crate) tail: Tail,
}

impl<C: Capacity, S: Service<Req>, Req, D> Visit<C, S, Req, D> {
    fn start(
        self,
        step: impl FnOnce(&Gate<C>, &Ticket) -> Step<C, S::Future>,
    ) -> Admission<C, S, Req, D> {
        Admission {
            step: step(&self.gate, &self.ticket),
            queued: Some(Queued {
                gate: self.gate,
                desk: self.desk,
                ticket: self.ticket,
            }),
            inner: Some(self.inner),
            request: Some(self.request),
            tail: self.tail,
            waited: Duration::ZERO,
        }
    }
}

impl<C, S, Req, D> Future for Admission<C, S, Req, D>
where
    C: Capacity,
    S: Service<Req> + Clone,
    D: Desk<C, Req, S>,
{
    type Output = D::Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<D::Answer> {
        let mut this = self.project();
        loop {
            match this.step.as_mut().project() {
                StepProj::Waiting {
                    acquire,
                    polled,
                    asked_inner,
                } => {
                    let (Some(queued), Some(inner)) = (&*this.queued, &mut *this.inner) else {
                        unreachable!("a request that waits has not been passed on");
                    };
                    let at_once = !std::mem::replace(polled, true);
                    let answer = if queued.gate.capacity().made_by_head() {
                        match poll_in_turn(acquire, asked_inner, queued, inner, cx) {
                            Poll::Ready(Ok(answer)) => Poll::Ready(answer),
                            Poll::Ready(Err(error)) => {
                                this.step.set(Step::Done);
                                return Poll::Ready(D::answer(
                                    *this.tail,
                                    Err(error),
                                    None,
                                    since(queued.ticket.arrival),
                                ));
                            }
                            Poll::Pending => Poll::Pending,
                        }
                    } else {
                        Pin::new(acquire).poll(cx)
                    };
                    let answer = ready!(answer);
                    if !at_once {
                        *this.waited = since(queued.ticket.arrival);
                    }
                    match answer {
                        Ok(permit) => this.step.set(Step::Readying {
                            permit: Some(permit),
                            patience: None,
                        }),
                        Err(why) => {
                            this.step.set(Step::Done);
                            let request = this.request.take();
                            return Poll::Ready(refuse(queued, request, why, *this.waited));
                        }
                    }
                }
                StepProj::Readying { permit, patience } => {
                    let (Some(queued), Some(inner)) = (&*this.queued, &mut *this.inner) else {
                        unreachable!("a request that has a slot has not been passed on");
                    };
                    match inner.poll_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => {
                            this.step.set(Step::Done);
                            let tail = *this.tail;
                            return Poll::Ready(D::answer(tail, Err(error), None, *this.waited));
                        }
                        Poll::Pending => {
                            let why = ready!(poll_patience(patience, queued, cx));
                            this.step.set(Step::Done);
                            let request = this.request.take();
                            let waited = since(queued.ticket.arrival);
                            return Poll::Ready(refuse(queued, request, why, waited));
                        }
                    }
                    if patience.is_some() {
                        *this.waited = since(queued.ticket.arrival);
                    }
                    let (Some(mut request), Some(permit)) = (this.request.take(), permit.take())
                    else {
                        unreachable!("a request is passed on once");
                    };
                    queued.desk.seat(&mut request, permit.lease(), *this.waited);
                    let future = inner.call(request);
                    *this.inner = None;
                    // A slot that its waiter made is used up by the call.
                    let in_turn = queued.gate.capacity().made_by_head();
                    let permit = Some(permit).filter(|_| !in_turn);
                    this.step.set(Step::Calling { future, permit });
                }
                StepProj::Calling { future, permit } => {
                    let result = ready!(future.poll(cx));
                    let permit = permit.take();
                    this.step.set(Step::Done);
                    return Poll::Ready(D::answer(*this.tail, result, permit, *this.waited));
                }
                StepProj::Done => panic!("response future polled after it was answered"),
            }
        }
    }
}

/// Waits for one's turn; asks the inner service for room only while it is.
///
/// Whoever made room for a call gives it to who is next by then, which may be somebody better who came
/// meanwhile. The clone that was found ready is then let go, so that the room is free for the other.
fn poll_in_turn<C, S, Req, D>(
    acquire: &mut Acquire<C>,
    asked_inner: &mut bool,
    queued: &Queued<C, D>,
    inner: &mut S,
    cx: &mut Context<'_>,
) -> Poll<Result<Result<Permit<C>, Rejected<C::Never>>, S::Error>>
where
    C: Capacity,
    S: Service<Req> + Clone,
{
    if let Poll::Ready(answer) = Pin::new(&mut *acquire).poll(cx) {
        return Poll::Ready(Ok(answer));
    }
    if acquire.is_next() {
        *asked_inner = true;
        ready!(inner.poll_ready(cx))?;
        queued.gate.slot_made();
        if let Poll::Ready(answer) = Pin::new(&mut *acquire).poll(cx) {
            return Poll::Ready(Ok(answer));
        }
    }
    if std::mem::take(asked_inner) {
        *inner = inner.clone();
    }
    Poll::Pending
}

fn poll_patience<C: Capacity, D>(
    patience: &mut Option<Patience<C>>,
    queued: &Queued<C, D>,
    cx: &mut Context<'_>,
) -> Poll<Rejected<C::Never>> {
    if patience.is_none() {
        let Some((end, why)) = queued.gate.end_of_wait(&queued.ticket) else {
            return Poll::Pending;
        };
        let ends = Box::pin(sleep_until(end.into()));
        *patience = Some(Patience { ends, why });
    }
    let Some(Patience { ends, why }) = patience else {
        return Poll::Pending;
    };
    ends.as_mut().poll(cx).map(|()| why.clone())
}

fn refuse<C, S, Req, D>(
    queued: &Queued<C, D>,
    request: Option<Req>,
    why: Rejected<C::Never>,
    waited: Duration,
) -> D::Answer
where
    C: Capacity,
    S: Service<Req>,
    D: Desk<C, Req, S>,
{
    let Some(request) = request else {
        unreachable!("a request is answered once");
    };
    queued.desk.refuse(request, why, waited)
}

fn since(arrival: Instant) -> Duration {
    gate::now().saturating_duration_since(arrival)
}
