//! The response future of a queue, and its handler of admissions.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::protocol::{Protocol, sealed};
use super::request::QueueRequest;
use crate::admit::{RejectReason, SlotPool, Ticket};
use crate::gate::{self, BodyPermit, Gate, Permit};
use crate::http::{CallHold, HoldLimits};
use crate::service::{
    Admission, AdmissionHandler, HoldPermit, JustQueued, LayerState, MeasuredCall, Prepare,
    ResponseOptions,
};

/// The handler of a queue's requests, which reads their tickets and writes rejections and responses.
#[derive(Clone)]
pub(super) struct QueueHandler<P> {
    pub(super) state: Arc<LayerState<SlotPool>>,
    pub(super) protocol: P,
}

impl<P> HoldPermit<SlotPool> for QueueHandler<P> {
    type Held = BodyPermit;
}

impl<Req, S, P> AdmissionHandler<SlotPool, Req, S> for QueueHandler<P>
where
    S: Service<Req>,
    P: Protocol<Req, S>,
{
    type Answer = Result<P::Response, P::Error>;

    #[inline]
    fn gate(&self) -> &Gate<SlotPool> {
        &self.state.gate
    }

    #[inline(always)]
    fn exempts(&self, request: &mut Req) -> bool {
        self.protocol.exempts(request)
    }

    fn ticket(&mut self, request: &Req, now: Instant) -> Ticket {
        let settings = self.state.settings();
        let mut ticket = self
            .protocol
            .ticket(request, &sealed::Settings(&settings), now);
        // A layer that sheds lets no request wait, whatever its classifier says.
        ticket.patient &= !self.state.options().contains(ResponseOptions::SHED);
        ticket
    }

    fn on_queued(queued: JustQueued<'_, SlotPool, S, Req, Self>) -> Option<Self::Answer>
    where
        S: Clone,
    {
        P::on_queued(sealed::Queued(queued))
    }

    #[inline]
    fn changes_requests(&self) -> bool {
        self.protocol.changes_requests()
    }

    fn on_admitted(&self, request: &mut Req, permit: &mut Permit<SlotPool>, waited: Duration) {
        self.protocol.on_admitted(request, Some(permit), waited);
    }

    fn carried(&self, request: &mut Req, _: &()) -> Option<Permit<SlotPool>> {
        self.protocol.carried(request, &self.state.gate)
    }

    fn on_prepared_slot(&mut self, request: &Req, demand: &(), permit: &mut Permit<SlotPool>) {
        if self.state.gate.is_fair() && !permit.has_account() {
            let ticket = AdmissionHandler::<SlotPool, Req, S>::ticket(self, request, gate::now());
            permit.set_share(demand, &ticket);
        }
    }

    fn measure(&self) -> Option<MeasuredCall> {
        let is_measured = self.state.prepare().contains(Prepare::MEASUREMENT);
        is_measured.then(|| MeasuredCall::new(&self.state))
    }

    #[inline]
    fn hold_limits(&self) -> Option<HoldLimits> {
        self.state.hold_limits()
    }

    fn head(&self, request: &Req) -> http::Request<()> {
        self.protocol.head(request)
    }

    fn reject_late(
        &self,
        head: http::Request<()>,
        reason: RejectReason,
        waited: Duration,
    ) -> Self::Answer {
        tracing::debug!(%reason, ?waited, "request rejected");
        let rejected = sealed::Rejected {
            state: &self.state,
            reason,
            waited,
            full: None,
        };
        self.protocol.reject_head(&head, rejected)
    }

    fn is_overloaded(result: &Result<S::Response, S::Error>) -> bool {
        P::is_overloaded(result)
    }

    #[inline]
    fn fast_reject(&self, request: &Req) -> Option<Self::Answer> {
        let level = || {
            let settings = self.state.settings();
            let priority = self
                .protocol
                .priority(request, &sealed::Settings(&settings))?;
            Some(settings.config.room.levels.clamp(priority).0)
        };
        // Neither takes the lock.
        let (reason, full) = match self.state.options().contains(ResponseOptions::SHED) {
            true => (RejectReason::Shed, self.state.gate.fast_shed()?),
            false => (RejectReason::Full, self.state.gate.fast_reject(level)?),
        };
        tracing::debug!(%reason, "request rejected");
        let rejected = sealed::Rejected {
            state: &self.state,
            reason,
            waited: Duration::ZERO,
            full: Some(full),
        };
        Some(self.protocol.reject(request, rejected))
    }

    fn reject(&self, request: Req, reason: RejectReason, waited: Duration) -> Self::Answer {
        tracing::debug!(%reason, ?waited, "request rejected");
        let rejected = sealed::Rejected {
            state: &self.state,
            reason,
            waited,
            full: None,
        };
        self.protocol.reject(&request, rejected)
    }

    #[inline(always)]
    fn poll_call(
        future: Pin<&mut S::Future>,
        permit: &mut Option<BodyPermit>,
        cx: &mut Context<'_>,
    ) -> Poll<Self::Answer> {
        P::poll_call(future, permit, cx)
    }

    #[inline(always)]
    fn respond(
        result: Result<S::Response, S::Error>,
        permit: Option<BodyPermit>,
        waited: Duration,
    ) -> Self::Answer {
        P::respond(result, permit, waited)
    }

    fn respond_limited(
        result: Result<S::Response, S::Error>,
        permit: BodyPermit,
        waited: Duration,
        hold: CallHold,
    ) -> Self::Answer {
        P::respond_limited(result, permit, waited, sealed::CallHold(hold))
    }
}

/// The answer to a request: a response or an error, in the form of the protocol.
pub(super) type Answer<P, S, Req> =
    Result<<P as Protocol<Req, S>>::Response, <P as Protocol<Req, S>>::Error>;

pin_project! {
    /// The response future of a [`Queue`](super::Queue).
    ///
    /// # Cancel safety
    ///
    /// Dropping it at any time gives up the place in the waiting room, or the slot, at once.
    pub struct QueueFuture<S, Req, P>
    where
        S: Service<Req>,
        Req: QueueRequest<S, P>,
    {
        #[pin]
        pub(super) admission: Admission<SlotPool, S, Req, QueueHandler<P>, Answer<P, S, Req>>,
    }
}

impl<S, Req, P> Future for QueueFuture<S, Req, P>
where
    Req: QueueRequest<S, P>,
{
    type Output = Answer<P, S, Req>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().admission.poll(cx)
    }
}

impl<S, Req, P> fmt::Debug for QueueFuture<S, Req, P>
where
    Req: QueueRequest<S, P>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueFuture").finish_non_exhaustive()
    }
}
