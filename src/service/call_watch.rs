//! A call of the inner service that is watched until its answer begins.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::adaptive_limit::MeasuredCall;
use super::late_answer::{CallLimits, LateAnswer};
use super::served_call::ServedCall;
use crate::admit::Capacity;
use crate::gate::Permit;
use crate::http::CallHold;

/// The permit of a call, and the reports to make when its answer begins. `served` is for a request that waited, and
/// `measured` for a layer with a limit that adapts.
pub(super) struct CallWatch<C: Capacity> {
    pub(super) permit: Permit<C>,
    pub(super) waited: Duration,
    pub(super) served: Option<ServedCall<C>>,
    pub(super) measured: Option<MeasuredCall>,
}

impl<C: Capacity> CallWatch<C> {
    /// Returns `true` if both reports are absent.
    pub(super) fn is_empty(&self) -> bool {
        self.waited.is_zero() && self.served.is_none() && self.measured.is_none()
    }

    /// Reports that the inner service has answered, with a response or an error, and returns the permit.
    pub(super) fn answered(self, is_overloaded: impl FnOnce() -> bool) -> Permit<C> {
        if let Some(served) = self.served {
            served.answered();
        }
        if let Some(measured) = self.measured {
            measured.answered(is_overloaded());
        }
        self.permit
    }
}

pin_project! {
    /// The future of a call, with its watch and its limits.
    pub(super) struct WatchedCall<C: Capacity, F, H> {
        // `None` once the call was dropped because its time was over.
        #[pin]
        future: Option<F>,
        // A copy of the watch's own, which stays when the watch is gone.
        waited: Duration,
        watch: Option<CallWatch<C>>,
        // The limits of the call. `None` if it has none.
        late: CallLimits<H>,
    }
}

/// The end of a watched call.
pub(super) enum CallEnd<C: Capacity, T, H> {
    /// The inner service has answered.
    Answered(T, CallWatch<C>, Option<CallHold>),
    /// The call has held its slot for too long, after the request had waited for this time.
    Late(LateAnswer<H>, Duration),
}

impl<C: Capacity, F, H> WatchedCall<C, F, H> {
    pub(super) fn new(future: F, watch: CallWatch<C>, late: CallLimits<H>) -> Self {
        Self {
            future: Some(future),
            waited: watch.waited,
            watch: Some(watch),
            late,
        }
    }

    /// Returns the time that the request waited, also after the call has ended.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns the lease of the slot with which the request is being served.
    #[cfg(feature = "route")]
    pub(super) fn lease(&self) -> Option<&C::Lease> {
        self.watch.as_ref().map(|watch| watch.permit.lease())
    }
}

impl<C: Capacity, F: Future, H> Future for WatchedCall<C, F, H> {
    type Output = CallEnd<C, F::Output, H>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // The watch is out of the future while the inner service is polled, so that a panic of the service drops it.
        let (Some(future), Some(watch)) = (this.future.as_mut().as_pin_mut(), this.watch.take())
        else {
            panic!("polled after completion");
        };
        if let Poll::Ready(result) = future.poll(cx) {
            let hold = this.late.take().map(|limits| limits.0);
            return Poll::Ready(CallEnd::Answered(result, watch, hold));
        }
        let is_late = (this.late.as_mut()).is_some_and(|limits| limits.1.poll_end(cx).is_ready());
        let Some(limits) = this.late.take_if(|_| is_late) else {
            *this.watch = Some(watch);
            return Poll::Pending;
        };
        this.future.set(None); // the slot is free only after the work is gone
        drop(watch);
        Poll::Ready(CallEnd::Late(limits.1, *this.waited))
    }
}
