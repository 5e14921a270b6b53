//! Calls that are measured, for a limit that adapts.
//!
//! The inner service is wrapped: its call begins when the request has its slot, and its response ends the measurement. A
//! future that is dropped before has no response, and is not measured. Requests of layers with a fixed limit pass by.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::future::{Answer, QueueHandler};
use super::protocol::{Protocol, QueuedFor, sealed};
use crate::admit::{
    AdaptiveLimit, Capacity, InvalidAdaptiveLimit, LimitOutcome, LimitSample, Limiter,
    RejectReason, SlotPool, Ticket,
};
use crate::clock;
use crate::gate::{Gate, Permit, Reservation};
use crate::service::{Admission, AdmissionHandler, JustQueued, LayerState, ResponseOptions};

/// An admission whose call is measured.
pub(super) type MeasuredAdmission<S, Req, P> =
    Admission<SlotPool, Measured<S, P>, Req, MeasuredHandler<P>, Answer<P, S, Req>>;

/// As [`Admission::start`].
pub(super) fn start<S, Req, P>(
    handler: &QueueHandler<P>,
    inner: &mut S,
    request: Req,
    reservation: Option<Reservation<SlotPool>>,
) -> MeasuredAdmission<S, Req, P>
where
    S: Service<Req> + Clone,
    P: Protocol<Req, S>,
{
    // The one that was polled goes with the request; a clone stays.
    let clone = inner.clone();
    let mut measured = Measured {
        inner: std::mem::replace(inner, clone),
        state: Arc::clone(&handler.state),
        protocol: PhantomData,
    };
    let mut handler = MeasuredHandler(handler.clone());
    Admission::start(&mut handler, &mut measured, request, (), reservation)
}

impl LayerState<SlotPool> {
    /// The limit is this from now on.
    pub(super) fn fix_limit(&self, limit: usize) {
        self.change_limit(|limiter| {
            *limiter = None;
            limit
        });
    }

    /// The limit adapts from now on, from what it is.
    pub(super) fn adapt_limit(&self, config: &AdaptiveLimit) -> Result<(), InvalidAdaptiveLimit> {
        config.validate()?;
        self.change_limit(|limiter| {
            let now = self.gate.capacity().limit();
            match limiter {
                Some(limiter) => limiter.reconfigure(config).ok(),
                None => Limiter::new(&config.initial(now))
                    .ok()
                    .map(|new| *limiter = Some(new)),
            };
            limiter.as_ref().map_or(now, Limiter::limit)
        });
        Ok(())
    }

    fn observe(&self, sample: LimitSample, now: Instant) {
        self.change_limit(|limiter| match limiter {
            Some(limiter) => limiter.observe(sample, now),
            None => self.gate.capacity().limit(), // fixed meanwhile
        });
    }

    fn change_limit(&self, change: impl FnOnce(&mut Option<Limiter>) -> usize) {
        let (gate, slots) = (&self.gate, self.gate.capacity());
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = change(&mut limiter);
        // Under the lock: of two changes the later one stays.
        let has_grown = limit != slots.limit() && slots.set_limit(limit);
        drop(limiter);
        if has_grown {
            gate.shared().on_capacity_grown(); // wakes: a caller's code
        }
    }
}

/// An inner service whose calls are measured.
pub(super) struct Measured<S, P> {
    inner: S,
    state: Arc<LayerState<SlotPool>>,
    /// Says what a response means.
    protocol: PhantomData<fn() -> P>,
}

impl<S: Clone, P> Clone for Measured<S, P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            state: Arc::clone(&self.state),
            protocol: PhantomData,
        }
    }
}

impl<S, Req, P> Service<Req> for Measured<S, P>
where
    S: Service<Req>,
    P: Protocol<Req, S>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = MeasuredCall<S::Future, S::Response, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (in_flight, began) = (self.state.gate.capacity().in_use(), clock::now());
        MeasuredCall {
            future: self.inner.call(request),
            state: Arc::clone(&self.state),
            in_flight,
            began,
            is_overloaded: P::is_overloaded,
        }
    }
}

pin_project! {
    /// A call until its response.
    pub(super) struct MeasuredCall<F, R, E> {
        #[pin]
        future: F,
        state: Arc<LayerState<SlotPool>>,
        in_flight: usize,
        began: Instant,
        is_overloaded: fn(&Result<R, E>) -> bool,
    }
}

impl<F, R, E> Future for MeasuredCall<F, R, E>
where
    F: Future<Output = Result<R, E>>,
{
    type Output = Result<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<R, E>> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        let now = clock::now();
        let sample = LimitSample {
            latency: now.saturating_duration_since(*this.began),
            in_flight: *this.in_flight,
            waiting: this.state.gate.has_waiters(),
            outcome: match (this.is_overloaded)(&result) {
                true => LimitOutcome::Overloaded,
                false => LimitOutcome::Ok,
            },
        };
        this.state.observe(sample, now);
        Poll::Ready(result)
    }
}

/// The handler of a queue, in front of a service that is measured.
#[derive(Clone)]
pub(super) struct MeasuredHandler<P>(QueueHandler<P>);

impl<P> MeasuredHandler<P> {
    pub(super) fn state(&self) -> &LayerState<SlotPool> {
        &self.0.state
    }
}

impl<Req, S, P> AdmissionHandler<SlotPool, Req, Measured<S, P>> for MeasuredHandler<P>
where
    S: Service<Req>,
    P: Protocol<Req, S>,
{
    type Answer = Answer<P, S, Req>;

    fn gate(&self) -> &Gate<SlotPool> {
        &self.0.state.gate
    }

    fn options(&self) -> ResponseOptions {
        self.0.state.options()
    }

    fn ticket(&mut self, request: &Req, now: Instant) -> Ticket {
        AdmissionHandler::<SlotPool, Req, S>::ticket(&mut self.0, request, now)
    }

    fn on_queued(
        queued: JustQueued<'_, SlotPool, Measured<S, P>, Req, Self>,
    ) -> Option<Self::Answer> {
        P::on_queued(sealed::Queued(QueuedFor::MeasuredCall(queued)))
    }

    fn fast_reject(&self, request: &Req) -> Option<Self::Answer> {
        AdmissionHandler::<SlotPool, Req, S>::fast_reject(&self.0, request)
    }

    fn reject(&self, request: Req, reason: RejectReason, waited: Duration) -> Self::Answer {
        AdmissionHandler::<SlotPool, Req, S>::reject(&self.0, request, reason, waited)
    }

    fn respond<const IN_BODY: bool>(
        options: ResponseOptions,
        result: Result<S::Response, S::Error>,
        permit: Option<Permit<SlotPool>>,
        waited: Duration,
    ) -> Self::Answer {
        <QueueHandler<P> as AdmissionHandler<SlotPool, Req, S>>::respond::<IN_BODY>(
            options, result, permit, waited,
        )
    }
}
