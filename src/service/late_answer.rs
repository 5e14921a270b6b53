//! The answer to a request whose inner service takes longer than the request may hold its slot, or whose slot is recalled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tower_service::Service;

use super::AdmissionHandler;
use crate::admit::{Capacity, RejectReason};
use crate::clock;
use crate::gate::{self, ClientStall, Permit};
use crate::http::{CallHold, HoldLimits};

/// The end of the time for which a call may hold its slot, with the parts that its answer then needs.
pub(super) struct LateAnswer<H> {
    handler: H,
    head: Request<()>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The recall of the slot because the client stalls. `None` if it is not recalled.
    recall: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    is_recalled: bool,
}

/// The limits of a call, with its late answer. `None` if its slot has no limits. It is boxed, because it is rare.
pub(super) type CallLimits<H> = Option<Box<(CallHold, LateAnswer<H>)>>;

impl<H> LateAnswer<H> {
    /// Returns the limits of a call that begins now, and its late answer. `None` if its slot has no limits.
    #[inline]
    pub(super) fn of_call<C, S, Req>(
        handler: &H,
        request: &Req,
        permit: &Permit<C>,
    ) -> CallLimits<H>
    where
        C: Capacity,
        S: Service<Req>,
        H: AdmissionHandler<C, Req, S>,
    {
        let (limits, stall) = (handler.hold_limits(), handler.client_stall(permit));
        if limits.is_none() && stall.is_none() {
            return None;
        }
        let limits = limits.unwrap_or_default();
        Some(Self::of_limits(handler, request, limits, stall))
    }

    #[cold]
    #[inline(never)]
    fn of_limits<C, S, Req>(
        handler: &H,
        request: &Req,
        limits: HoldLimits,
        stall: Option<Arc<ClientStall>>,
    ) -> Box<(CallHold, Self)>
    where
        C: Capacity,
        S: Service<Req>,
        H: AdmissionHandler<C, Req, S>,
    {
        let since = gate::now();
        let recalled = stall.as_ref().map(|stall| stall.recalled().clone());
        let hold = CallHold {
            limits,
            since,
            stall,
        };
        let end = hold.end().and_then(clock::sleep_until);
        let late = Self {
            handler: handler.clone(),
            head: handler.head(request),
            timer: end.map(Box::pin),
            recall: recalled.map(|recalled| Box::pin(recalled.cancelled_owned())),
            is_recalled: false,
        };
        Box::new((hold, late))
    }

    /// Waits for the end of the time, or for the recall of the slot. The time never ends without a limit, or without
    /// Tokio's clock.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(recall) = &mut self.recall
            && recall.as_mut().poll(cx).is_ready()
        {
            self.is_recalled = true;
            return Poll::Ready(());
        }
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
        let reason = match self.is_recalled {
            true => RejectReason::Stalled,
            false => RejectReason::HeldTooLong,
        };
        self.handler.reject_late(self.head, reason, waited)
    }
}
