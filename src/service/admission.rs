//! The admission of a request: acquire a slot, wait for the inner service, call it, hold the slot.
//!
//! ```text
//! start ──> Rejected                                   the waiting room is full
//!       ──> Failed                                     the inner service failed before it was called
//!       ──> Exempt                                     the request takes no slot
//!       ──> Calling                                    a slot is free and the inner service ready
//!       ──> WaitingForSlot ──> WaitingForInner ──> Calling
//! ```
//!
//! Both waiting states may also end in a rejection or a failure. Only these states and `Exempt` allocate, so a request
//! that finds a slot free is spared the cost of waiting.

mod progress;
mod queued;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bitflags::bitflags;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::adaptive_limit::MeasuredCall;
use super::call_watch::{CallEnd, CallWatch, WatchedCall};
use super::exempt_call::ExemptCall;
use super::late_answer::{CallLimits, LateAnswer};
use super::ready_state::Prepared;
use super::waiting::{
    Admitted, InnerWait, PendingCall, SlotOutcome, SlotWait, WaitOutcome, WaitTimes,
    WaitingForInner, WaitingForSlot,
};
use crate::admit::{Capacity, RejectReason, Ticket};
use crate::gate::{self, ClientStall, Gate, Permit, Reservation, Shared};
use crate::http::{CallHold, HoldLimits};

pub(crate) use progress::Progress;
pub(crate) use queued::JustQueued;

/// The form of a permit while the inner service works, as small as the layer needs it.
pub(crate) trait HoldPermit<C: Capacity> {
    type Held: From<Permit<C>>;
}

/// The parts of an admission that differ between layers. A clone goes with each request that waits.
pub(crate) trait AdmissionHandler<C: Capacity, Req, S: Service<Req>>:
    HoldPermit<C> + Clone
{
    /// The answer for the caller.
    type Answer;

    /// Returns the gate that the request has to pass.
    fn gate(&self) -> &Gate<C>;

    /// Returns `true` if the request passes without a slot. Such a request is prepared for the inner service here.
    #[inline(always)]
    fn exempts(&self, _request: &mut Req) -> bool {
        false
    }

    /// Returns the ticket of a request that arrives at `now` and has to wait.
    fn ticket(&mut self, request: &Req, now: Instant) -> Ticket;

    /// Returns the answer to a request that has just been queued, if it gets an answer before its wait is over. Called
    /// once per wait.
    fn on_queued(_: JustQueued<'_, C, S, Req, Self>) -> Option<Self::Answer>
    where
        S: Clone,
    {
        None
    }

    /// Records that the request was given a slot before it had a ticket.
    #[inline]
    fn on_fast_path(&self, _request: &Req, _demand: &C::Demand, _permit: &mut Permit<C>) {}

    /// Records that a request, which [`poll_ready`](Service::poll_ready) prepared or which may have brought its slot along, has
    /// a slot without having waited.
    fn on_prepared_slot(&mut self, _request: &Req, _demand: &C::Demand, _permit: &mut Permit<C>) {}

    /// Takes the slot that the request brings along, if the slot is right for the request.
    fn carried(&self, _request: &mut Req, _demand: &C::Demand) -> Option<Permit<C>> {
        None
    }

    /// Returns `true` if [`on_admitted`](Self::on_admitted) changes requests that did not wait.
    fn changes_requests(&self) -> bool;

    /// Prepares the request for the slot that it was given.
    fn on_admitted(&self, _request: &mut Req, _permit: &mut Permit<C>, _waited: Duration) {}

    /// Returns the measurement of a request that has its slot from now on, if the limit adapts.
    fn measure(&self) -> Option<MeasuredCall> {
        None
    }

    /// Returns the limits on the time for which the request may hold its slot, if there are any.
    fn hold_limits(&self) -> Option<HoldLimits> {
        None
    }

    /// Returns the head of the request, as far as its rejection needs it.
    fn head(&self, request: &Req) -> http::Request<()>;

    /// Returns the stalls of the client of a request that has this slot, if the slot may be recalled for them.
    #[inline]
    fn client_stall(&self, _: &Permit<C>) -> Option<Arc<ClientStall>> {
        None
    }

    /// Answers a request that has held its slot for too long, for this reason. Its call was dropped.
    fn reject_late(
        &self,
        head: http::Request<()>,
        reason: RejectReason<C::Unservable>,
        waited: Duration,
    ) -> Self::Answer;

    /// Returns `true` if the answer to a measured call says that the inner service is overloaded.
    fn is_overloaded(_: &Result<S::Response, S::Error>) -> bool {
        false
    }

    /// Answers a request without a ticket, if the waiting room is full.
    fn fast_reject(&self, _request: &Req) -> Option<Self::Answer> {
        None
    }

    /// Answers a request that was rejected for `reason`.
    fn reject(
        &self,
        request: Req,
        reason: RejectReason<C::Unservable>,
        waited: Duration,
    ) -> Self::Answer;

    /// Polls the call of a request that did not wait, and passes its response on.
    #[inline(always)]
    fn poll_call(
        future: Pin<&mut S::Future>,
        permit: &mut Option<Self::Held>,
        cx: &mut Context<'_>,
    ) -> Poll<Self::Answer> {
        let result = ready!(future.poll(cx));
        Poll::Ready(Self::respond(result, permit.take(), Duration::ZERO))
    }

    /// Passes the inner service's response on, with the permit. The permit is `None` if the inner service was not
    /// called, or was called for a request that takes no slot.
    fn respond(
        result: Result<S::Response, S::Error>,
        permit: Option<Self::Held>,
        waited: Duration,
    ) -> Self::Answer;

    /// Passes the response of a request on that may hold its slot for a limited time.
    fn respond_limited(
        result: Result<S::Response, S::Error>,
        permit: Self::Held,
        waited: Duration,
        hold: CallHold,
    ) -> Self::Answer;
}

bitflags! {
    /// The configuration of responses at the time when the inner service answers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct ResponseOptions: u64 {
        /// Set if the slot is held until the body ends, rather than only until the headers are there.
        const HOLD_BODY = 1;
        /// Set if `HOLD_BODY` is not for streams of events.
        const EXCEPT_EVENTS = 1 << 3;
        /// Set if a response reports in `server-timing` the time that its request waited.
        const SERVER_TIMING = 1 << 1;
        /// Set if a request that finds every slot busy is rejected at once.
        const SHED = 1 << 2;
    }
}

pin_project! {
    /// The future of a request from its arrival to its response, `A`.
    pub(crate) struct Admission<C, S, Req, H, A>
    where
        C: Capacity,
        S: Service<Req>,
        H: HoldPermit<C>,
    {
        #[pin]
        state: State<C, S, Req, H, H::Held, S::Future, A, S::Error>,
    }
}

pin_project! {
    /// The states of a request. The plain call is apart from all others, so that one comparison tells it from them.
    #[project = StateProj]
    enum State<C, S, Req, H, P, F, A, E>
    where
        C: Capacity,
    {
        Calling {
            #[pin]
            future: F,
            permit: Option<P>,
        },
        Rare { state: RareState<C, S, Req, H, F, A, E> },
    }
}

/// The states of a request that is not in a plain call. Large contents are boxed, because they would make the future grow.
/// Contents that are taken when the state ends are options.
enum RareState<C: Capacity, S, Req, H, F, A, E> {
    Rejected(Option<Box<A>>),
    Failed(Option<E>),
    WaitingForSlot(Option<Box<WaitingForSlot<C, S, Req, H>>>),
    WaitingForInner(Option<Box<WaitingForInner<C, S, Req, H>>>),
    /// A call with a watch. It is a state of its own, so that a plain call does not check for a watch at each poll.
    CallingWatched(Pin<Box<WatchedCall<C, F, H>>>),
    Exempt(Pin<Box<ExemptCall<S, Req, F>>>),
}

impl<C, S, Req, H, A> Admission<C, S, Req, H, A>
where
    C: Capacity,
    S: Service<Req> + Clone,
    H: AdmissionHandler<C, Req, S, Answer = A>,
{
    /// Calls `inner` at once if a slot is free and `inner` is ready. This works without a lock, an allocation or a read
    /// of the clock. Otherwise the request waits with a clone of `inner`, or is rejected.
    ///
    /// `prepared` is `Some` for a call that has a reservation, or is measured, or both.
    #[inline(always)]
    pub(crate) fn start(
        handler: &mut H,
        inner: &mut S,
        request: Req,
        demand: C::Demand,
        prepared: Option<Prepared<Shared<C>>>,
    ) -> Self {
        Self {
            state: State::start(handler, inner, request, demand, prepared),
        }
    }
}

impl<C, S, Req, H, A> StateOf<C, S, Req, H, A>
where
    C: Capacity,
    S: Service<Req> + Clone,
    H: AdmissionHandler<C, Req, S, Answer = A>,
{
    /// Starts a request. This is no part of its caller, which then gets the large state where it needs it.
    #[inline(never)]
    fn start(
        handler: &mut H,
        inner: &mut S,
        mut request: Req,
        demand: C::Demand,
        prepared: Option<Prepared<Shared<C>>>,
    ) -> Self {
        if handler.exempts(&mut request) {
            return Self::call_exempt(inner, request);
        }
        match prepared {
            // Matched by value, so that nothing is left to be dropped after the call.
            None if !handler.gate().expects_extensions() => {}
            prepared => return Self::start_prepared(handler, inner, request, demand, prepared),
        }
        let Some(permit) = Self::try_acquire(handler, &request, &demand) else {
            return Self::wait_for_slot(handler, inner, request, demand, None);
        };
        // The service is nearly always ready, so the request needs no clone. Otherwise it is polled again with a real
        // waker.
        let ready = inner.poll_ready(&mut Context::from_waker(Waker::noop()));
        if !matches!(ready, Poll::Ready(Ok(()))) {
            return Self::not_ready(handler, inner, request, permit, ready);
        }
        if handler.changes_requests() {
            return Self::call_prepared(handler, inner, request, permit, None);
        }
        // Converted before the call, because nothing may come between the future and its place in the state. The future
        // is large, and each move of it is a copy.
        let permit = Some(permit.into());
        Self::Calling {
            future: inner.call(request),
            permit,
        }
    }

    /// Starts a request that takes no slot.
    #[inline(never)]
    fn call_exempt(inner: &mut S, request: Req) -> Self {
        // A service may be ready only for the instance that was polled, so the request takes a service along.
        let clone = inner.clone();
        let inner = std::mem::replace(inner, clone);
        let call = Box::pin(ExemptCall::new(inner, request));
        RareState::Exempt(call).into()
    }

    /// Starts a request that may bring its slot along, or that was prepared.
    #[cold]
    #[inline(never)]
    fn start_prepared(
        handler: &mut H,
        inner: &mut S,
        mut request: Req,
        demand: C::Demand,
        prepared: Option<Prepared<Shared<C>>>,
    ) -> Self {
        let may_carry = handler.gate().expects_extensions();
        let carried = may_carry.then(|| handler.carried(&mut request, &demand));
        let permit = carried.flatten();
        let permit = permit.or_else(|| Self::try_acquire(handler, &request, &demand));
        let Some(mut permit) = permit else {
            return Self::wait_for_slot(handler, inner, request, demand, prepared);
        };
        handler.on_prepared_slot(&request, &demand, &mut permit);
        let ready = inner.poll_ready(&mut Context::from_waker(Waker::noop()));
        match ready {
            Poll::Ready(Ok(())) => Self::call_prepared(handler, inner, request, permit, prepared),
            ready => Self::not_ready(handler, inner, request, permit, ready),
        }
    }

    /// Takes a slot without a lock.
    #[inline(always)]
    fn try_acquire(handler: &H, request: &Req, demand: &C::Demand) -> Option<Permit<C>> {
        let mut permit = handler.gate().try_acquire(demand)?;
        handler.on_fast_path(request, demand, &mut permit);
        Some(permit)
    }

    /// Calls the inner service, which is ready, for a request that has a slot and is changed, measured, or had a
    /// reservation.
    #[inline(never)]
    fn call_prepared(
        handler: &mut H,
        inner: &mut S,
        mut request: Req,
        mut permit: Permit<C>,
        prepared: Option<Prepared<Shared<C>>>,
    ) -> Self {
        let measured = prepared.is_some().then(|| handler.measure()).flatten();
        drop(prepared); // frees the place in the waiting room, because the request has a slot
        handler.on_admitted(&mut request, &mut permit, Duration::ZERO);
        let late = LateAnswer::of_call::<C, S, Req>(handler, &request, &permit);
        let watch = CallWatch {
            permit,
            waited: Duration::ZERO,
            served: None,
            measured,
        };
        let future = inner.call(request);
        Self::calling(future, watch, late)
    }

    /// Rejects the request if the waiting room is full, or else lets it wait, because all slots are busy or others
    /// wait.
    #[cold]
    #[inline(never)]
    fn wait_for_slot(
        handler: &mut H,
        inner: &S,
        request: Req,
        demand: C::Demand,
        prepared: Option<Prepared<Shared<C>>>,
    ) -> Self {
        let reservation = prepared.and_then(|Prepared(reserved)| reserved.map(Reservation));
        // A reserved place is there even if the room is full for others.
        if reservation.is_none()
            && let Some(answer) = handler.fast_reject(&request)
        {
            return RareState::Rejected(Some(Box::new(answer))).into();
        }
        let now = gate::now();
        let mut ticket = handler.ticket(&request, now);
        let times = WaitTimes::new(&ticket, now);
        let priority = ticket.priority;
        let gate = handler.gate();
        // If slots come from the inner service, only polling the service shows whether the request would have to wait.
        // In a full room, the service is not asked first, because the request would displace a waiter only to learn
        // that it has to wait.
        let is_asked_first =
            gate.is_from_inner() && !ticket.wait && (reservation.is_some() || gate.has_room());
        ticket.wait |= is_asked_first;
        let acquire = gate.acquire_at(ticket, now, demand);
        let acquire = match reservation {
            Some(reservation) => acquire.with_reservation(reservation),
            None => acquire,
        };
        let wait = SlotWait::new(acquire, priority, !is_asked_first);
        let waiting = PendingCall::new(handler.clone(), inner.clone(), request, times, wait);
        RareState::WaitingForSlot(Some(waiting)).into()
    }

    /// Lets a request wait that has a slot while the inner service is not ready. Fails the request if the service has
    /// failed.
    #[cold]
    #[inline(never)]
    fn not_ready(
        handler: &mut H,
        inner: &mut S,
        request: Req,
        permit: Permit<C>,
        ready: Poll<Result<(), S::Error>>,
    ) -> Self {
        if let Poll::Ready(Err(error)) = ready {
            return RareState::Failed(Some(error)).into();
        }
        let now = gate::now();
        let ticket = handler.ticket(&request, now);
        // The service that was polled goes with the request, and a clone stays.
        let clone = inner.clone();
        let asked = std::mem::replace(inner, clone);
        let times = WaitTimes::new(&ticket, now);
        let wait = InnerWait::new(Admitted::at_once(permit, handler.measure()));
        let waiting = PendingCall::new(handler.clone(), asked, request, times, wait);
        RareState::WaitingForInner(Some(waiting)).into()
    }
}

impl<C: Capacity, S, Req, H, P, F, A, E> From<RareState<C, S, Req, H, F, A, E>>
    for State<C, S, Req, H, P, F, A, E>
{
    #[inline]
    fn from(state: RareState<C, S, Req, H, F, A, E>) -> Self {
        Self::Rare { state }
    }
}

type StateOf<C, S, Req, H, A> = State<
    C,
    S,
    Req,
    H,
    <H as HoldPermit<C>>::Held,
    <S as Service<Req>>::Future,
    A,
    <S as Service<Req>>::Error,
>;

impl<C, S, Req, H, A> Admission<C, S, Req, H, A>
where
    C: Capacity,
    S: Service<Req>,
    H: HoldPermit<C, Held = Permit<C>>,
{
    /// Returns the lease of the slot with which the request is being served.
    #[cfg(feature = "route")]
    pub(crate) fn lease(self: Pin<&mut Self>) -> Option<&C::Lease> {
        match self.project().state.project() {
            StateProj::Calling { permit, .. } => permit.as_ref().map(Permit::lease),
            StateProj::Rare {
                state: RareState::CallingWatched(call),
            } => call.lease(),
            StateProj::Rare { .. } => None,
        }
    }
}

impl<C, S, Req, H, A> Future for Admission<C, S, Req, H, A>
where
    C: Capacity,
    S: Service<Req> + Clone,
    H: AdmissionHandler<C, Req, S, Answer = A>,
{
    type Output = A;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<A> {
        let mut this = self.project();
        // Twice at most: what has not ended was called.
        loop {
            if this.state.is_calling() {
                let StateProj::Calling { future, permit } = this.state.project() else {
                    unreachable!("checked above");
                };
                return H::poll_call(future, permit, cx);
            }
            let polled = this.state.as_mut().poll_otherwise(cx);
            if let Some(answer) = ready!(polled) {
                return Poll::Ready(answer);
            }
        }
    }
}

impl<C: Capacity, S, Req, H, P: From<Permit<C>>, F, A, E> State<C, S, Req, H, P, F, A, E> {
    #[inline]
    fn is_calling(&self) -> bool {
        matches!(self, Self::Calling { .. })
    }

    /// Returns the state of a call that has begun, which is watched only if `watch` has reports to make or the call has
    /// limits.
    fn calling(future: F, watch: CallWatch<C>, late: CallLimits<H>) -> Self {
        if late.is_none() && watch.is_empty() {
            let permit = Some(watch.permit.into());
            return Self::Calling { future, permit };
        }
        RareState::CallingWatched(Box::pin(WatchedCall::new(future, watch, late))).into()
    }
}

impl<C, S, Req, H, A> StateOf<C, S, Req, H, A>
where
    C: Capacity,
    S: Service<Req> + Clone,
    H: AdmissionHandler<C, Req, S, Answer = A>,
{
    /// Ends the request, or calls the inner service and returns `None`. The service's future is polled next.
    #[cold]
    #[inline(never)]
    fn poll_otherwise(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<A>> {
        let mut waited = Duration::ZERO;
        let waited = &mut waited;
        let StateProj::Rare { state } = self.as_mut().project() else {
            return Poll::Ready(None);
        };
        match state {
            RareState::CallingWatched(call) => {
                let (result, watch, hold) = match ready!(call.as_mut().poll(cx)) {
                    CallEnd::Answered(result, watch, hold) => (result, watch, hold),
                    CallEnd::Late(late, waited) => {
                        return Poll::Ready(Some(late.answer::<C, S, Req>(waited)));
                    }
                };
                let waited = watch.waited;
                let permit = watch.answered(|| H::is_overloaded(&result)).into();
                Poll::Ready(Some(match hold {
                    None => H::respond(result, Some(permit), waited),
                    Some(hold) => H::respond_limited(result, permit, waited, hold),
                }))
            }
            RareState::Exempt(call) => {
                let result = ready!(call.as_mut().poll(cx));
                Poll::Ready(Some(H::respond(result, None, Duration::ZERO)))
            }
            RareState::Rejected(answer) => Poll::Ready(Some(*take(answer))),
            RareState::Failed(error) => {
                let failed = Err(take(error));
                Poll::Ready(Some(H::respond(failed, None, Duration::ZERO)))
            }
            RareState::WaitingForSlot(waiting) => {
                let arrives = queued::is_arriving(waiting);
                let polled = waiting.as_mut().map(|waiting| waiting.poll(waited, cx));
                let Poll::Ready(outcome) = polled.unwrap_or_else(|| completed()) else {
                    return match arrives {
                        true => queued::announce(waiting),
                        false => Poll::Pending,
                    };
                };
                let waiting = take(waiting);
                match outcome {
                    SlotOutcome::Ended(outcome) => self.end_wait(waiting, outcome, *waited),
                    // ## WaitingForSlot => WaitingForInner
                    SlotOutcome::InnerNotReady(admitted) => {
                        let mut waiting = waiting.for_inner(admitted);
                        let Poll::Ready(outcome) = waiting.poll_timeout(waited, cx) else {
                            *state = RareState::WaitingForInner(Some(waiting));
                            return Poll::Pending;
                        };
                        self.end_wait(waiting, outcome, *waited)
                    }
                }
            }
            RareState::WaitingForInner(waiting) => {
                let polled = waiting.as_mut().map(|waiting| waiting.poll(waited, cx));
                let outcome = ready!(polled.unwrap_or_else(|| completed()));
                let waiting = take(waiting);
                self.end_wait(waiting, outcome, *waited)
            }
        }
    }

    /// Ends the request, or calls the inner service and returns `None`.
    #[inline]
    fn end_wait<W>(
        mut self: Pin<&mut Self>,
        call: Box<PendingCall<S, Req, H, W>>,
        outcome: WaitOutcome<C, S::Error>,
        waited: Duration,
    ) -> Poll<Option<A>> {
        match outcome {
            // ## WaitingForSlot | WaitingForInner => Calling
            WaitOutcome::Ready(admitted) => {
                let (future, watch, late) = call.call_inner(admitted, waited);
                self.set(State::calling(future, watch, late));
                Poll::Ready(None)
            }
            WaitOutcome::Rejected(reason) => Poll::Ready(Some(call.reject(reason, waited))),
            WaitOutcome::Failed(error) => {
                drop(call.wait); // gives up the place in the waiting room, or the slot, first
                Poll::Ready(Some(H::respond(Err(error), None, waited)))
            }
        }
    }
}

/// Takes the content of a state that ends.
pub(super) fn take<T>(held: &mut Option<T>) -> T {
    held.take().unwrap_or_else(|| completed())
}

/// Panics, because the future was polled after it had returned its answer.
fn completed() -> ! {
    panic!("response future polled after completion")
}
