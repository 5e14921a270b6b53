//! Events of a queue's requests: admitted, rejected, finished.
//!
//! The observer's layer is around that of the queue, and asks the queue's future how far its request has come. So a queue
//! without an observer pays nothing.

mod body;
mod future;
mod layer;
mod observation;
mod request_end;
mod service;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

pub use body::ObservedBody;
pub use future::ObservedFuture;
pub use layer::ObservedLayer;
pub use request_end::RequestEnd;
pub use service::Observed;

use super::request_head::RequestHead;
use crate::admit::RejectReason;

/// An observer of a queue's requests, for counters, histograms and logs. It is given to
/// [`QueueLayer::observe`](super::QueueLayer::observe).
///
/// Each request has one of these courses. Exactly one event is its last one, also if its future or its body is dropped or
/// panics:
///
/// ```text
/// arrived ──> admitted ──> finished                a slot was free
///         ──> queued ──> admitted ──> finished     the request waited for its slot
///         ──> rejected
///         ──> queued ──> rejected                  the wait ended without a slot
///         ──> abandoned                            the response future was dropped before there was a slot
///         ──> queued ──> abandoned
/// ```
///
/// [`Request`](Self::Request) is the part of a request that the observer keeps until its end, such as its path, a trace id,
/// or axum's `MatchedPath`. Every method but [`on_arrived`](Self::on_arrived) does nothing by default.
///
/// An [exempt](super::QueueLayer::exempt) request causes no event after `on_arrived`.
///
/// # Example
///
/// A counter, a histogram, and a warning for every 100th rejection:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::time::Duration;
/// use http::StatusCode;
/// use tower_triage::queue::{Observer, RequestHead};
/// use tower_triage::RejectReason;
///
/// #[derive(Default)]
/// struct Counts { rejected: AtomicU64, waits: [AtomicU64; 32] }
///
/// impl Observer for Counts {
///     type Request = String; // the path
///     fn on_arrived(&self, head: &RequestHead<'_>) -> String {
///         head.uri().path().to_owned()
///     }
///     fn on_admitted(&self, _: &mut String, waited: Duration) {
///         let bucket = (waited.as_millis() as u64 + 1).ilog2().min(31); // below 1, 3, 7, 15, … ms
///         self.waits[bucket as usize].fetch_add(1, Relaxed);
///     }
///     fn on_rejected(&self, path: &mut String, why: &RejectReason, _: StatusCode, _: Duration) {
///         let count = self.rejected.fetch_add(1, Relaxed) + 1;
///         if count % 100 == 1 {
///             eprintln!("{count} requests rejected, the latest at {path}: {why}");
///         }
///     }
/// }
///
/// # use std::sync::Arc;
/// # use axum::{Router, body::Body, routing::get};
/// # use tower::ServiceExt;
/// # use tower_triage::QueueLayer;
/// let counts = Arc::new(Counts::default());
/// let queue = QueueLayer::shed(8).observe(Arc::clone(&counts));
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(queue);
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(app.oneshot(http::Request::new(Body::empty()))).unwrap();
/// # assert_eq!(counts.waits[0].load(Relaxed), 1);
/// ```
///
/// # In use
///
/// The methods run in the tasks of the requests, so they must not block. Some run in destructors, where a panic while
/// another panic unwinds ends the process. So they must not panic either.
///
/// The clock is read when a request arrives, and again at each event that has a time. Two observers of one queue are an
/// observer as a tuple, `(first, second)`. An [`Arc`] of an observer is one, too.
pub trait Observer: Send + Sync + 'static {
    /// The data of one request, from its arrival to its last event.
    type Request: Send + 'static;

    /// Returns the data of a request that arrives, from its head. It is called for exempt requests as well, so it should
    /// count nothing.
    fn on_arrived(&self, head: &RequestHead<'_>) -> Self::Request;

    /// Records that the request begins to wait, because no slot was free or the inner service not ready.
    fn on_queued(&self, _request: &mut Self::Request) {}

    /// Records that the request got its slot and was passed to the inner service, after it had waited for `waited`. That is
    /// zero if a slot was free. Otherwise it counts from the arrival in the ticket, which a classifier may set to an earlier
    /// time. In the other events, it counts from the arrival at this queue. An inner service that fails or panics before it can be called counts as called.
    ///
    /// The call of a request that finds a slot free has begun by then. Its future is polled later.
    fn on_admitted(&self, _request: &mut Self::Request, _waited: Duration) {}

    /// Records that the request was rejected with `status`, after it had waited for `waited`. That is zero if the request
    /// was rejected at once. For gRPC, the status is 200.
    fn on_rejected(
        &self,
        _request: &mut Self::Request,
        _reason: &RejectReason,
        _status: StatusCode,
        _waited: Duration,
    ) {
    }

    /// Records that the request was given up after it had waited for `waited`, because its client left or a layer around
    /// the queue timed out.
    fn on_abandoned(&self, _request: &mut Self::Request, _waited: Duration) {}

    /// Records the end of an admitted request, which ran for `ran` since its admission.
    fn on_finished(&self, _request: &mut Self::Request, _end: RequestEnd, _ran: Duration) {}
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    type Request = O::Request;

    fn on_arrived(&self, head: &RequestHead<'_>) -> O::Request {
        (**self).on_arrived(head)
    }

    fn on_queued(&self, request: &mut O::Request) {
        (**self).on_queued(request);
    }

    fn on_admitted(&self, request: &mut O::Request, waited: Duration) {
        (**self).on_admitted(request, waited);
    }

    fn on_rejected(
        &self,
        request: &mut O::Request,
        reason: &RejectReason,
        status: StatusCode,
        waited: Duration,
    ) {
        (**self).on_rejected(request, reason, status, waited);
    }

    fn on_abandoned(&self, request: &mut O::Request, waited: Duration) {
        (**self).on_abandoned(request, waited);
    }

    fn on_finished(&self, request: &mut O::Request, end: RequestEnd, ran: Duration) {
        (**self).on_finished(request, end, ran);
    }
}

/// Passes each event to the first observer, then to the second.
impl<A: Observer, B: Observer> Observer for (A, B) {
    type Request = (A::Request, B::Request);

    fn on_arrived(&self, head: &RequestHead<'_>) -> Self::Request {
        (self.0.on_arrived(head), self.1.on_arrived(head))
    }

    fn on_queued(&self, (a, b): &mut Self::Request) {
        self.0.on_queued(a);
        self.1.on_queued(b);
    }

    fn on_admitted(&self, (a, b): &mut Self::Request, waited: Duration) {
        self.0.on_admitted(a, waited);
        self.1.on_admitted(b, waited);
    }

    fn on_rejected(
        &self,
        (a, b): &mut Self::Request,
        reason: &RejectReason,
        status: StatusCode,
        waited: Duration,
    ) {
        self.0.on_rejected(a, reason, status, waited);
        self.1.on_rejected(b, reason, status, waited);
    }

    fn on_abandoned(&self, (a, b): &mut Self::Request, waited: Duration) {
        self.0.on_abandoned(a, waited);
        self.1.on_abandoned(b, waited);
    }

    fn on_finished(&self, (a, b): &mut Self::Request, end: RequestEnd, ran: Duration) {
        self.0.on_finished(a, end, ran);
        self.1.on_finished(b, end, ran);
    }
}
