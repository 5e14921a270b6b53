//! An observer that publishes a queue's requests through the `metrics` facade.
//!
//! The handles of all series are kept, so a request looks none of them up in the recorder. Clients cannot choose labels:
//! methods that are not registered are counted as `_OTHER`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Method, StatusCode};
use metrics::{
    Counter, Gauge, Histogram, Label, SharedString, Unit, counter, describe_counter,
    describe_gauge, describe_histogram, gauge, histogram,
};

use super::observe::{Observer, RequestEnd};
use super::request_head::RequestHead;
use crate::admit::RejectReason;
use crate::http::ToRejection;

const ACTIVE: &str = "http.server.active_requests";
const DURATION: &str = "http.server.request.duration";
const QUEUED: &str = "triage.queue.queued_requests";
const TIME_IN_QUEUE: &str = "triage.queue.request.time_in_queue";
const REJECTIONS: &str = "triage.queue.rejections";

const METHOD: &str = "http.request.method";
const STATUS: &str = "http.response.status_code";
const ERROR: &str = "error.type";

/// The methods that OpenTelemetry knows, and the name for all others.
const METHODS: [&str; 11] = [
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE",
    "_OTHER",
];

/// An [`Observer`] that publishes a queue's requests through the [`metrics`](https://docs.rs/metrics) facade. Clones share
/// their series.
///
/// Names and labels are those of OpenTelemetry's
/// [conventions for HTTP servers](https://opentelemetry.io/docs/specs/semconv/http/http-metrics/) where these have one:
///
/// | name | type | labels | value |
/// |---|---|---|---|
/// | `http.server.active_requests` | gauge | `http.request.method` | requests that wait or run, each until its response's body ends |
/// | `http.server.request.duration` | histogram, s | `http.request.method`, `http.response.status_code`, `error.type` | time from a request's arrival to the end of its response's body, the wait included |
/// | `triage.queue.queued_requests` | gauge | | requests that wait |
/// | `triage.queue.request.time_in_queue` | histogram, s | | wait of requests that had to wait and got a slot |
/// | `triage.queue.rejections` | counter | `error.type` | rejected requests |
///
/// `error.type` is present if the request failed:
///
/// | value | request |
/// |---|---|
/// | `queue_full`, `overloaded`, … | rejected, with this [code](crate::rejection#reasons-and-codes) |
/// | `500`, `502`, … | answered with this status by the inner service |
/// | `cancelled` | given up by the client, or by a layer around the queue |
/// | `broke_off` | its response's body failed |
/// | `failed` | the inner service returned an error in place of a response |
/// | `panicked` | the inner service panicked |
///
/// A queue does not know `url.scheme` and `http.route`, which the conventions have as well. gRPC requests have the status
/// 200, also if they fail. Exempt requests are in no series.
///
/// The series are registered once. So use an exporter without an idle timeout: series that it has removed would stay away
/// until the process ends.
///
/// Prometheus has no dots in names. The crate `metrics-exporter-prometheus` prints `http_server_request_duration` and the
/// label `http_response_status_code`. With its `with_recommended_naming(true)`, and in a collector of OpenTelemetry, the
/// names are `http_server_request_duration_seconds`, `triage_queue_request_time_in_queue_seconds` and
/// `triage_queue_rejections_total`.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_triage::queue::QueueMetrics;
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// // The recorder of the program is installed by now.
/// let queue = QueueLayer::new(QueueConfig::new(8)).observe(QueueMetrics::new());
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(queue);
/// ```
#[derive(Clone)]
pub struct QueueMetrics(Arc<Series>);

struct Series {
    active: [OnceLock<Gauge>; METHODS.len()],
    queued: Gauge,
    time_in_queue: Histogram,
    rejections: ArcSwap<HashMap<&'static str, Counter>>,
    durations: ArcSwap<HashMap<Labels, Histogram>>,
}

impl Series {
    /// Returns the gauge of a method, which is registered on its first use.
    fn active(&self, method: usize) -> &Gauge {
        self.active[method].get_or_init(|| gauge!(ACTIVE, METHOD => METHODS[method]))
    }
}

/// The labels of a request that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Labels {
    /// The index of the method in [`METHODS`].
    method: usize,
    status: Option<StatusCode>,
    error: Option<&'static str>,
}

/// The data of one request.
#[derive(Debug)]
pub struct MeasuredRequest {
    /// The index of the method in [`METHODS`].
    method: usize,
    is_queued: bool,
    waited: Duration,
}

impl QueueMetrics {
    /// Describes the metrics to the recorder of the program, and registers them. Install the recorder before, because later
    /// ones get nothing of this observer.
    #[must_use]
    pub fn new() -> Self {
        describe();
        Self(Arc::new(Series {
            active: [const { OnceLock::new() }; METHODS.len()],
            queued: gauge!(QUEUED),
            time_in_queue: histogram!(TIME_IN_QUEUE),
            rejections: ArcSwap::default(),
            durations: ArcSwap::default(),
        }))
    }
}

fn describe() {
    let active = "Requests that wait or run, each until its response's body ends.";
    describe_gauge!(ACTIVE, Unit::Count, active);
    let duration = "Time from a request's arrival to the end of its response's body.";
    describe_histogram!(DURATION, Unit::Seconds, duration);
    describe_gauge!(QUEUED, Unit::Count, "Requests that wait.");
    let wait = "Wait of requests that had to wait and got a slot.";
    describe_histogram!(TIME_IN_QUEUE, Unit::Seconds, wait);
    describe_counter!(REJECTIONS, Unit::Count, "Rejected requests.");
}

impl Default for QueueMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for QueueMetrics {
    type Request = MeasuredRequest;

    fn on_arrived(&self, head: &RequestHead<'_>) -> MeasuredRequest {
        MeasuredRequest {
            method: method_index(head.method()),
            is_queued: false,
            waited: Duration::ZERO,
        }
    }

    fn on_queued(&self, request: &mut MeasuredRequest) {
        request.is_queued = true;
        self.0.queued.increment(1);
        self.0.active(request.method).increment(1);
    }

    fn on_admitted(&self, request: &mut MeasuredRequest, waited: Duration) {
        if request.is_queued {
            request.waited = waited;
            self.0.queued.decrement(1);
            self.0.time_in_queue.record(waited);
        } else {
            self.0.active(request.method).increment(1);
        }
    }

    fn on_rejected(
        &self,
        request: &mut MeasuredRequest,
        reason: &RejectReason,
        status: StatusCode,
        waited: Duration,
    ) {
        let code = reason.to_rejection().code();
        let rejected = cached(
            &self.0.rejections,
            code,
            || counter!(REJECTIONS, ERROR => code),
        );
        rejected.increment(1);
        self.leave_queue(request, Some(status), code, waited);
    }

    fn on_abandoned(&self, request: &mut MeasuredRequest, waited: Duration) {
        self.leave_queue(request, None, "cancelled", waited);
    }

    fn on_finished(&self, request: &mut MeasuredRequest, end: RequestEnd, ran: Duration) {
        self.0.active(request.method).decrement(1);
        let error = match end {
            RequestEnd::Complete(_) => None,
            RequestEnd::BodyFailed(_) => Some("broke_off"),
            RequestEnd::BodyDropped(_) | RequestEnd::Cancelled => Some("cancelled"),
            RequestEnd::ServiceFailed => Some("failed"),
            RequestEnd::Panicked => Some("panicked"),
        };
        self.record(request, end.status(), error, request.waited + ran);
    }
}

impl QueueMetrics {
    /// Records the end of a request that got no slot.
    fn leave_queue(
        &self,
        request: &MeasuredRequest,
        status: Option<StatusCode>,
        error: &'static str,
        waited: Duration,
    ) {
        if request.is_queued {
            self.0.queued.decrement(1);
            self.0.active(request.method).decrement(1);
        }
        self.record(request, status, Some(error), waited);
    }

    fn record(
        &self,
        request: &MeasuredRequest,
        status: Option<StatusCode>,
        error: Option<&'static str>,
        took: Duration,
    ) {
        let labels = Labels {
            method: request.method,
            status,
            error,
        };
        let duration = cached(&self.0.durations, labels, || {
            histogram!(DURATION, labels.to_labels())
        });
        duration.record(took);
    }
}

impl Labels {
    fn to_labels(self) -> Vec<Label> {
        let mut labels = vec![Label::from_static_parts(METHOD, METHODS[self.method])];
        let status = self.status.map(|status| status.as_str().to_owned());
        let failed = self.status.is_some_and(|status| status.is_server_error());
        let error = match self.error {
            Some(error) => Some(SharedString::const_str(error)),
            None => status.clone().filter(|_| failed).map(SharedString::from),
        };
        labels.extend(status.map(|status| Label::new(STATUS, status)));
        labels.extend(error.map(|error| Label::new(ERROR, error)));
        labels
    }
}

/// Returns the index of the method in [`METHODS`].
fn method_index(method: &Method) -> usize {
    let known = METHODS.binary_search(&method.as_str());
    known.unwrap_or(METHODS.len() - 1)
}

/// Returns the handle for `key`, which is registered on its first use.
fn cached<K, H>(handles: &ArcSwap<HashMap<K, H>>, key: K, register: impl Fn() -> H) -> H
where
    K: Copy + Eq + std::hash::Hash,
    H: Clone,
{
    if let Some(handle) = handles.load().get(&key) {
        return handle.clone();
    }
    let handle = register();
    // Another thread may have added the same key, with a handle of the same series.
    handles.rcu(|known| {
        let mut known = HashMap::clone(known);
        known.insert(key, handle.clone());
        known
    });
    handle
}

impl fmt::Debug for QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueMetrics").finish_non_exhaustive()
    }
}
