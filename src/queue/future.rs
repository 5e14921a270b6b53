//! The response of a request that may have to wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tower_service::Service;

use super::common::Common;
use super::protocol::{Protocol, sealed};
use crate::admission::{Admission, Desk, Tail};
use crate::admit::{RejectReason, SlotPool};
use crate::gate::{Gate, Permit};

/// The front desk of a queue.
pub(super) struct Front<P> {
    pub(super) common: Arc<Common<SlotPool>>,
    pub(super) protocol: P,
}

impl<Req, S, P> Desk<SlotPool, Req, S> for Front<P>
where
    S: Service<Req>,
    P: Protocol<Req, S>,
{
    type Answer = Result<P::Response, P::Error>;
    type Notice = sealed::Notice;

    fn gate(&self) -> &Gate<SlotPool> {
        &self.common.gate
    }

    fn refuse(&self, request: Req, why: RejectReason, waited: Duration) -> Self::Answer {
        tracing::debug!(reason = %why, ?waited, "request rejected");
        let common = sealed::Common(&self.common);
        self.protocol.refuse(request, why, waited, &common)
    }

    fn turned_away(notice: sealed::Notice) -> Self::Answer {
        P::turned_away(notice)
    }

    #[inline]
    fn answer(
        tail: Tail,
        result: Result<S::Response, S::Error>,
        permit: Option<Permit<SlotPool>>,
        waited: Duration,
    ) -> Self::Answer {
        P::answer(result, permit, waited, sealed::Tail(tail))
    }
}

pin_project! {
    /// The response of a [`Queue`](super::Queue).
    ///
    /// # Cancel safety
    ///
    /// Dropping it gives up the chair, or the slot, at once.
    pub struct ResponseFuture<S, Req, P>
    where
        S: Service<Req>,
    {
        #[pin]
        pub(super) admission: Admission<SlotPool, S, Req, Front<P>, sealed::Notice>,
    }
}

impl<S, Req, P> Future for ResponseFuture<S, Req, P>
where
    S: Service<Req> + Clone,
    P: Protocol<Req, S>,
{
    type Output = Result<P::Response, P::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().admission.poll(cx)
    }
}

impl<S: Service<Req>, Req, P> fmt::Debug for ResponseFuture<S, Req, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
