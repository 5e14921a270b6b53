//! The answer to a request whose inner service takes longer than the request may hold its slot.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use tokio::time::Sleep;
use tower_service::Service;

use super::AdmissionHandler;
use crate::admit::Capacity;
use crate::clock;
use crate::gate;
use crate::http::{CallHold, HoldLimits};

/// The end of the time for which a call may hold its slot, with the parts that its answer then needs.
pub(super) struct LateAnswer<H> {
    handler: H,
    head: Request<()>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// The limits of a call, with its late answer. `None` if its slot has no limits. It is boxed, because it is rare.
pub(super) type CallLimits<H> = Option<Box<(CallHold, LateAnswer<H>)>>;

impl<H> LateAnswer<H> {
    /// Returns the limits of a call that begins now, and its late answer. `None` if its slot has no limits.
    #[inline]
    pub(super) fn of_call<C, S, Req>(handler: &H, request: &Req) -> CallLimits<H>
    where
        C: Capacity,
        S: Service<Req>,
        H: AdmissionHandler<C, Req, S>,
    {
        let limits = handler.hold_limits()?;
        Some(Self::of_limits(handler, request, limits))
    }

    #[cold]
    #[inline(never)]
    fn of_limits<C, S, Req>(handler: &H, request: &Req, limits: HoldLimits) -> Box<(CallHold, Self)>
    where
        C: Capacity,
        S: Service<Req>,
        H: AdmissionHandler<C, Req, S>,
    {
        let since = gate::now();
        let hold = CallHold { limits, since };
        let end = hold.end().and_then(clock::sleep_until);
        let late = Self {
            handler: handler.clone(),
            head: handler.head(request),
            timer: end.map(Box::pin),
        };
        Box::new((hold, late))
    }

    /// Waits for the end of the time. It never ends without a limit, or without Tokio's clock.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// Returns the answer of a request that has held its slot for too long.
    pub(super) fn answer<C, S, Req>(self, waited: Duration) -> H::Answer
    where
        C: Capacity,
        S: Service<Req>,
        H: AdmissionHandler<C, Req, S>,
    {
        self.handler.reject_late(self.head, waited)
    }
}
