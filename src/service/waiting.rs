//! The two waits of a request: for a slot, and then for the inner service to be ready.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::Sleep;
use tower_service::Service;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span, debug_span, field};

use super::AdmissionHandler;
use super::adaptive_limit::MeasuredCall;
use super::call_watch::CallWatch;
use super::late_answer::{CallLimits, LateAnswer};
use super::served_call::ServedCall;
use crate::admit::{Capacity, Priority, RejectReason, ServiceSample, Ticket};
use crate::clock;
use crate::gate::{self, Acquire, Permit, ReadinessClaim};

/// The end of a wait: a call, a rejection or an error.
pub(super) enum WaitOutcome<C: Capacity, E> {
    /// The request has a slot, and the inner service is ready.
    Ready(Admitted<C>),
    Rejected(RejectReason<C::Unservable>),
    /// The inner service's `poll_ready` failed.
    Failed(E),
}

/// The end of the wait for a slot, after which a request may go on to wait for the inner service.
pub(super) enum SlotOutcome<C: Capacity, E> {
    Ended(WaitOutcome<C, E>),
    /// The request has a slot, and goes on waiting for the inner service.
    InnerNotReady(Admitted<C>),
}

/// A slot, with the inner service's readiness if the slot comes from there.
pub(super) struct Admitted<C: Capacity> {
    // Declared first, and so dropped first, because the next head polls the inner service once both are free.
    claim: Option<ReadinessClaim<C>>,
    permit: Permit<C>,
    /// The sample from which the waiting room learns service times, if the request waited for the slot.
    served: Option<ServiceSample>,
    measured: Option<MeasuredCall>,
}

impl<C: Capacity> Admitted<C> {
    /// Returns the slot of a request that got it without a wait. The slot does not come from the inner service's
    /// readiness.
    pub(super) fn at_once(permit: Permit<C>, measured: Option<MeasuredCall>) -> Self {
        Self {
            claim: None,
            permit,
            served: None,
            measured,
        }
    }
}

/// A request that waits with the inner service that will be called. `W` is the kind of the wait.
pub(super) struct PendingCall<S, Req, H, W> {
    pub(super) handler: H,
    inner: S,
    pub(super) request: Req,
    times: WaitTimes,
    pub(super) wait: W,
}

/// A request that waits for a slot.
pub(super) type WaitingForSlot<C, S, Req, H> = PendingCall<S, Req, H, SlotWait<C>>;

/// A request that has a slot and waits for the inner service to be ready.
pub(super) type WaitingForInner<C, S, Req, H> = PendingCall<S, Req, H, InnerWait<C>>;

/// The beginning of a wait, and the settings of the ticket that limit it.
pub(super) struct WaitTimes {
    /// The time of the request's first arrival, from which `max_wait` counts.
    arrival: Instant,
    deadline: Option<Instant>,
    is_patient: bool,
}

impl WaitTimes {
    #[inline]
    pub(super) fn new(ticket: &Ticket, now: Instant) -> Self {
        // At most `now`, whatever the ticket says, so that the wait has a bound.
        let arrival = ticket.arrival.map_or(now, |arrival| arrival.min(now));
        Self {
            arrival,
            deadline: ticket.deadline,
            is_patient: ticket.patient,
        }
    }
}

impl<S, Req, H, W> PendingCall<S, Req, H, W> {
    #[inline]
    pub(super) fn new(handler: H, inner: S, request: Req, times: WaitTimes, wait: W) -> Box<Self> {
        Box::new(Self {
            handler,
            inner,
            request,
            times,
            wait,
        })
    }

    /// Returns the time since the request's first arrival.
    fn time_waited(&self) -> Duration {
        gate::now().saturating_duration_since(self.times.arrival)
    }

    /// Calls the inner service, and returns its future. The slot in the `CallWatch` goes with the response. The last value
    /// is there if the slot has limits.
    #[expect(
        clippy::boxed_local,
        reason = "a request is large: it is moved out of the box once, for the call"
    )]
    #[inline]
    pub(super) fn call_inner<C>(
        mut self: Box<Self>,
        admitted: Admitted<C>,
        waited: Duration,
    ) -> (S::Future, CallWatch<C>, CallLimits<H>)
    where
        C: Capacity,
        S: Service<Req>,
        H: AdmissionHandler<C, Req, S>,
    {
        let Admitted {
            claim,
            mut permit,
            served,
            measured,
        } = admitted;
        let gate = self.handler.gate();
        let served = served.map(|served| ServedCall::new(gate, served));
        self.handler
            .on_admitted(&mut self.request, &mut permit, waited);
        let late = LateAnswer::of_call::<C, S, Req>(&self.handler, &self.request, &permit);
        let future = self.inner.call(self.request);
        drop(claim); // used up, so the next head may poll the inner service
        let watch = CallWatch {
            permit,
            waited,
            served,
            measured,
        };
        (future, watch, late)
    }

    /// Gives up the place in the waiting room, or the slot, and returns the answer with the rejection.
    #[inline]
    pub(super) fn reject<C>(
        self,
        reason: RejectReason<C::Unservable>,
        waited: Duration,
    ) -> H::Answer
    where
        C: Capacity,
        S: Service<Req>,
        H: AdmissionHandler<C, Req, S>,
    {
        drop(self.wait); // gives up the slot first, if there is one
        self.handler.reject(self.request, reason, waited)
    }
}

/// The wait for a slot.
pub(super) struct SlotWait<C: Capacity> {
    pub(super) acquire: Acquire<C>,
    priority: Priority,
    /// `false` if the request may wait only until the inner service has reported that it is ready or not.
    may_wait: bool,
    /// `true` if the request's clone of the inner service was polled, so that it may hold the service's readiness.
    polled_inner: bool,
    /// The span `triage.queue`. `None` until the request is queued, and if no subscriber wants the span. Boxed, so that a
    /// waiter without a span grows by one word. Dropped last, because the span covers the end of the wait.
    span: Option<Box<Span>>,
}

impl<C: Capacity> SlotWait<C> {
    #[inline]
    pub(super) fn new(acquire: Acquire<C>, priority: Priority, may_wait: bool) -> Self {
        Self {
            acquire,
            priority,
            may_wait,
            polled_inner: false,
            span: None,
        }
    }

    /// Begins the span of a request that has just been queued.
    #[inline]
    pub(super) fn begin_span(&mut self) {
        // The check is cheaper than the macro's, and nearly always says no.
        if LevelFilter::current() >= Level::DEBUG {
            self.begin_debug_span();
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_debug_span(&mut self) {
        let priority = self.priority.0;
        let span = debug_span!("triage.queue", priority, outcome = field::Empty);
        self.span = (!span.is_disabled()).then(|| Box::new(span));
    }

    /// Ends the span of a request whose wait is over.
    #[inline]
    fn end_span(&mut self, outcome: &'static str) {
        if let Some(span) = self.span.take() {
            span.record("outcome", outcome);
        }
    }
}

/// The slot or the reason of the rejection, or else the inner service's error.
type SlotOrError<C, E> = Result<Result<Permit<C>, RejectReason<<C as Capacity>::Unservable>>, E>;

impl<C, S, Req, H> WaitingForSlot<C, S, Req, H>
where
    C: Capacity,
    S: Service<Req> + Clone,
    H: AdmissionHandler<C, Req, S>,
{
    /// Waits for the slot, then polls the inner service once. Sets `waited` unless the answer was there at once.
    pub(super) fn poll(
        &mut self,
        waited: &mut Duration,
        cx: &mut Context<'_>,
    ) -> Poll<SlotOutcome<C, S::Error>> {
        let is_first_poll = self.wait.acquire.is_arriving();
        let outcome = match ready!(self.poll_slot(cx)) {
            Ok(Ok(permit)) => {
                self.wait.end_span("slot");
                let claim = self.handler.gate().claim_readiness();
                let served = self.wait.acquire.take_served();
                let admitted = Admitted {
                    claim,
                    permit,
                    served,
                    measured: self.handler.measure(),
                };
                match self.inner.poll_ready(cx) {
                    Poll::Ready(Ok(())) => WaitOutcome::Ready(admitted),
                    Poll::Ready(Err(error)) => WaitOutcome::Failed(error),
                    Poll::Pending => return Poll::Ready(SlotOutcome::InnerNotReady(admitted)),
                }
            }
            Ok(Err(reason)) => {
                self.wait.end_span("rejected");
                WaitOutcome::Rejected(reason)
            }
            Err(error) => {
                self.wait.end_span("failed");
                WaitOutcome::Failed(error)
            }
        };
        // A request that was answered at once needs no clock. The wait of a request with a slot ended when the slot was
        // granted.
        if !is_first_poll {
            let known = self.wait.acquire.waited();
            *waited = known.unwrap_or_else(|| self.time_waited());
        }
        Poll::Ready(SlotOutcome::Ended(outcome))
    }

    /// Waits for the slot from the gate. If the slot comes from the inner service, it may have to be there at once.
    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<SlotOrError<C, S::Error>> {
        if !self.handler.gate().is_from_inner() {
            return Pin::new(&mut self.wait.acquire).poll(cx).map(Ok);
        }
        let polled = self.poll_slot_from_inner(cx);
        // While the request is still arriving, its answer waits for the task's cooperative budget.
        if polled.is_pending() && !self.wait.may_wait && !self.wait.acquire.is_arriving() {
            self.wait.acquire.reject(RejectReason::NotQueued);
            return Pin::new(&mut self.wait.acquire).poll(cx).map(Ok);
        }
        polled
    }

    /// Waits for a slot that comes from the inner service's readiness, and polls the service only while this request is
    /// the head.
    ///
    /// The readiness that this request obtains goes to the request that is the head *then*, perhaps a better one that
    /// arrived meanwhile. In that case this request drops its clone of the inner service, which frees the clone's
    /// reservation. The new head is woken, because a shared inner service wakes only the task that polled it last.
    fn poll_slot_from_inner(&mut self, cx: &mut Context<'_>) -> Poll<SlotOrError<C, S::Error>> {
        if let Poll::Ready(answer) = Pin::new(&mut self.wait.acquire).poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        let Self {
            handler,
            inner,
            wait,
            ..
        } = self;
        if wait.acquire.may_poll_inner() {
            wait.polled_inner = true;
            if inner.poll_ready(cx)?.is_ready() {
                handler.gate().on_inner_ready(); // the slot may go to another request that is the head by now
                if let Poll::Ready(answer) = Pin::new(&mut wait.acquire).poll(cx) {
                    return Poll::Ready(Ok(answer));
                }
            } else if wait.acquire.may_poll_inner() {
                return Poll::Pending; // still the head, so the inner service wakes this task
            }
        }
        // This request is not the head any more, so it gives up the reservation of its clone.
        if std::mem::take(&mut wait.polled_inner) {
            *inner = inner.clone();
            handler.gate().notify_head();
        }
        Poll::Pending
    }

    /// Goes on to wait for the inner service with the slot in `admitted`.
    pub(super) fn for_inner(self, admitted: Admitted<C>) -> Box<WaitingForInner<C, S, Req, H>> {
        drop(self.wait);
        let wait = InnerWait::new(admitted);
        PendingCall::new(self.handler, self.inner, self.request, self.times, wait)
    }
}

/// The wait for the inner service to be ready.
pub(super) struct InnerWait<C: Capacity> {
    admitted: Option<Admitted<C>>,
    timeout: Option<ReadyTimeout<C>>,
}

/// The end of the wait for an inner service that is not ready, while the request already has a slot.
struct ReadyTimeout<C: Capacity> {
    sleep: Pin<Box<Sleep>>,
    reason: RejectReason<C::Unservable>,
}

impl<C: Capacity> InnerWait<C> {
    #[inline]
    pub(super) fn new(admitted: Admitted<C>) -> Self {
        Self {
            admitted: Some(admitted),
            timeout: None,
        }
    }
}

impl<C, S, Req, H> WaitingForInner<C, S, Req, H>
where
    C: Capacity,
    S: Service<Req>,
    H: AdmissionHandler<C, Req, S>,
{
    /// Polls the inner service until it is ready or the wait is over. Sets `waited` at the end of the wait.
    pub(super) fn poll(
        &mut self,
        waited: &mut Duration,
        cx: &mut Context<'_>,
    ) -> Poll<WaitOutcome<C, S::Error>> {
        let outcome = match self.inner.poll_ready(cx) {
            Poll::Ready(Ok(())) => match self.wait.admitted.take() {
                Some(admitted) => WaitOutcome::Ready(admitted),
                None => unreachable!("taken once, with the outcome"),
            },
            Poll::Ready(Err(error)) => WaitOutcome::Failed(error),
            Poll::Pending => return self.poll_timeout(waited, cx),
        };
        *waited = self.time_waited();
        Poll::Ready(outcome)
    }

    /// Rejects the request when its wait is over, although it has a slot.
    pub(super) fn poll_timeout(
        &mut self,
        waited: &mut Duration,
        cx: &mut Context<'_>,
    ) -> Poll<WaitOutcome<C, S::Error>> {
        if self.wait.timeout.is_none() {
            self.wait.timeout = self.start_timeout();
        }
        let Some(ReadyTimeout { sleep, reason }) = &mut self.wait.timeout else {
            return Poll::Pending; // the wait has no end
        };
        ready!(sleep.as_mut().poll(cx));
        let reason = reason.clone();
        *waited = self.time_waited();
        Poll::Ready(WaitOutcome::Rejected(reason))
    }

    /// Returns the timeout of the wait, or `None` if the wait is endless.
    fn start_timeout(&self) -> Option<ReadyTimeout<C>> {
        let WaitTimes {
            arrival,
            deadline,
            is_patient,
            ..
        } = self.times;
        let gate = self.handler.gate();
        let permit = &self.wait.admitted.as_ref()?.permit;
        let (end, reason) = gate.end_of_wait(arrival, deadline, is_patient, permit)?;
        // As in the gate, waits do not time out without Tokio's clock.
        let sleep = Box::pin(clock::sleep_until(end)?);
        Some(ReadyTimeout { sleep, reason })
    }
}
