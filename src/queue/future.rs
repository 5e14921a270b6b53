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
use crate::admit::{Permits, Rejected};
use crate::gate::{Gate, Permit};

/// The front desk of a queue.
pub(super) struct Front<P> {
    pub(super) common: Arc<Common<Permits>>,
    pub(super) protocol: P,
}

impl<Req, S, P> Desk<Permits, Req, S> for Front<P>
where
    S: Service<Req>,
    P: Protocol<Req, S>,
{
    type Answer = Result<P::Response, P::Error>;

    fn gate(&self) -> &Gate<Permits> {
        &self.common.gate
    }

    fn refuse(&self, request: Req, why: Rejected, waited: Duration) -> Self::Answer {
        tracing::debug!(reason = %why, ?waited, "request rejected");
        let common = sealed::Common(&self.common);
        self.protocol.refuse(request, why, waited, &common)
    }

    #[inline]
    fn answer(
        tail: Tail,
        result: Result<S::Response, S::Error>,
        permit: Option<Permit<Permits>>,
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
        way: Way<Admission<Permits, S, Req, Front<P>>>,
    }
}

pin_project! {
    #[project = WayProj]
    enum Way<A> {
        Admitted { #[pin] admission: A },
        TurnedAway { notice: Option<sealed::Notice> },
    }
}

impl<S: Service<Req>, Req, P> ResponseFuture<S, Req, P> {
    #[inline]
    pub(super) fn admitted(admission: Admission<Permits, S, Req, Front<P>>) -> Self {
        let way = Way::Admitted { admission };
        Self { way }
    }

    pub(super) fn turned_away(notice: sealed::Notice) -> Self {
        let notice = Some(notice);
        let way = Way::TurnedAway { notice };
        Self { way }
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
        match self.project().way.project() {
            WayProj::Admitted { admission } => admission.poll(cx),
            WayProj::TurnedAway { notice } => match notice.take() {
                Some(notice) => Poll::Ready(P::turned_away(notice)),
                None => panic!("response future polled after it was answered"),
            },
        }
    }
}

impl<S: Service<Req>, Req, P> fmt::Debug for ResponseFuture<S, Req, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
