//! A call of the inner service that is watched until its answer begins.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::adaptive_limit::MeasuredCall;
use super::served_call::ServedCall;
use crate::admit::Capacity;
use crate::gate::Permit;

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
    /// The future of a call, with its watch. It resolves to both the result and the watch.
    pub(super) struct WatchedCall<C: Capacity, F> {
        #[pin]
        future: F,
        // A copy of the watch's own, which stays when the watch is gone.
        waited: Duration,
        watch: Option<CallWatch<C>>,
    }
}

impl<C: Capacity, F> WatchedCall<C, F> {
    pub(super) fn new(future: F, watch: CallWatch<C>) -> Self {
        Self {
            future,
            waited: watch.waited,
            watch: Some(watch),
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

impl<C: Capacity, F: Future> Future for WatchedCall<C, F> {
    type Output = (F::Output, CallWatch<C>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The watch is out of the future while the inner service is polled, so that a panic of the service drops it.
        let watch = this.watch.take().expect("polled after completion");
        let Poll::Ready(result) = this.future.poll(cx) else {
            *this.watch = Some(watch);
            return Poll::Pending;
        };
        Poll::Ready((result, watch))
    }
}
