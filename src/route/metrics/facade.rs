//! Metrics through the `metrics` facade.
//!
//! The keys of what each request counts are made once for each endpoint, model and outcome, because making them costs
//! more than a decision. They are looked up in the recorder of the moment, so that one that is installed late is used,
//! too.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use metrics::{
    Key, Label, Level, Metadata, SharedString, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram, with_recorder,
};

use super::RequestOutcome;
use crate::endpoints::{Decision, EndpointRef, Endpoints};
use crate::gate::GateStatus;

const REQUESTS: &str = "triage_requests_total";
const QUEUE_WAIT: &str = "triage_queue_wait_seconds";
const RETRIES: &str = "triage_retries_total";
const FALLBACKS: &str = "triage_fallbacks_total";
const HEALTH_CHANGES: &str = "triage_endpoint_health_changes_total";
const QUEUE_DEPTH: &str = "triage_queue_depth";
const RUNNING: &str = "triage_running";
const IN_FLIGHT: &str = "triage_endpoint_in_flight";
const LIMIT: &str = "triage_endpoint_limit";
const HEALTHY: &str = "triage_endpoint_healthy";

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

fn describe() {
    let fallbacks = "Requests that were passed to another model because the one asked for could not serve them.";
    let retries = "Requests that were tried again after they failed at this endpoint.";
    let health_changes = "How often an endpoint went out of service or came back.";
    for (counter, what) in [
        (REQUESTS, "Requests, by how they ended."),
        (RETRIES, retries),
        (FALLBACKS, fallbacks),
        (HEALTH_CHANGES, health_changes),
    ] {
        describe_counter!(counter, Unit::Count, what);
    }
    for (gauge, what) in [
        (QUEUE_DEPTH, "Requests that wait."),
        (RUNNING, "Requests that are being served."),
        (IN_FLIGHT, "Requests that an endpoint serves."),
        (LIMIT, "Requests that an endpoint may serve at a time."),
    ] {
        describe_gauge!(gauge, Unit::Count, what);
    }
    describe_gauge!(HEALTHY, "Whether an endpoint is healthy: 1 or 0.");
    let what = "How long requests waited for a slot, of those that had to wait and got one.";
    describe_histogram!(QUEUE_WAIT, Unit::Seconds, what);
}

/// Counts requests, waits, retries, fallbacks and changes of health.
#[derive(Debug, Default)]
pub(in crate::route) struct Metrics {
    described: OnceLock<()>,
    /// The names of the endpoints in the gauges.
    shown: Mutex<BTreeSet<String>>,
}

impl Metrics {
    /// A request for the name `asked`, if that was read, is over. It was sent to an endpoint if there is a `decision`.
    pub(in crate::route) fn ended(
        &self,
        endpoints: &Endpoints,
        asked: Option<&Arc<str>>,
        decision: Option<&Decision>,
        outcome: RequestOutcome,
    ) {
        let idx = outcome.idx();
        if let (Some(decision), Ok(idx)) = (decision, idx) {
            let count = |key: &Key| {
                with_recorder(|recorder| recorder.register_counter(key, &METADATA)).increment(1);
            };
            return match series(&decision.endpoint).requests(decision, idx) {
                Some(key) => count(key),
                None => count(&requests(decision, idx)),
            };
        }
        let known = asked.filter(|asked| endpoints.is_configured(asked));
        let model = known.map_or(SharedString::const_str("other"), shared);
        let outcome = idx.map_or_else(|code| code, |idx| OUTCOMES[idx]);
        counter!(REQUESTS, "endpoint" => "none", "model" => model, "outcome" => outcome)
            .increment(1);
    }

    /// A request has waited and got a slot: its level, and how long it waited.
    pub(in crate::route) fn waited(&self, wait: impl FnOnce() -> (String, Duration)) {
        let (level, waited) = wait();
        histogram!(QUEUE_WAIT, "priority" => level).record(waited);
    }

    /// A request that failed at `endpoint` is retried.
    pub(in crate::route) fn retried(&self, endpoint: &EndpointRef) {
        counter!(RETRIES, "endpoint" => endpoint.name().to_owned()).increment(1);
    }

    /// A request goes to a model that it did not ask for.
    pub(in crate::route) fn fell_back(&self, decision: &Decision) {
        let (asked, model) = (shared(&decision.asked), shared(&decision.model));
        counter!(FALLBACKS, "asked" => asked, "model" => model).increment(1);
    }

    pub(in crate::route) fn health_changed(&self, endpoint: &EndpointRef) {
        counter!(HEALTH_CHANGES, "endpoint" => endpoint.name().to_owned()).increment(1);
    }

    /// Sets all gauges to the present values.
    pub(in crate::route) fn record_gauges(&self, status: &GateStatus, endpoints: &[EndpointRef]) {
        self.described.get_or_init(describe);
        gauge!(QUEUE_DEPTH).set(status.depth as f64);
        gauge!(RUNNING).set(status.running as f64);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for endpoint in endpoints {
            shown.remove(endpoint.name());
            let healthy = if endpoint.healthy() { 1.0 } else { 0.0 };
            let (in_flight, limit) = (endpoint.in_flight(), endpoint.limit());
            set(endpoint.name(), in_flight.into(), limit.into(), healthy);
        }
        shown.iter().for_each(|gone| set(gone, 0.0, 0.0, 0.0));
        *shown = endpoints.iter().map(|e| e.name().to_owned()).collect();
    }
}

fn set(endpoint: &str, in_flight: f64, limit: f64, healthy: f64) {
    let name = SharedString::from_shared(endpoint.into());
    gauge!(IN_FLIGHT, "endpoint" => name.clone()).set(in_flight);
    gauge!(LIMIT, "endpoint" => name.clone()).set(limit);
    gauge!(HEALTHY, "endpoint" => name).set(healthy);
}

fn shared(name: &Arc<str>) -> SharedString {
    SharedString::from_shared(Arc::clone(name))
}

/// The keys of one endpoint's counters, by the index of the model and the outcome. Each is made when it is first used.
#[derive(Debug)]
struct MetricKeys(Box<[OnceLock<Box<ByOutcome>>]>);

fn series(endpoint: &EndpointRef) -> &MetricKeys {
    endpoint.extension(|endpoint| {
        let models = endpoint.models.len().min(usize::from(u16::MAX));
        MetricKeys((0..models).map(|_| OnceLock::new()).collect())
    })
}

type ByOutcome = [OnceLock<Key>; OUTCOMES.len()];

impl MetricKeys {
    /// The key for requests of `decision` with the outcome at `idx`. `None` for a model beyond the last index.
    fn requests(&self, decision: &Decision, idx: usize) -> Option<&Key> {
        let by_outcome = self.0.get(usize::from(decision.nth_model))?;
        let by_outcome = by_outcome.get_or_init(Box::default);
        Some(by_outcome[idx].get_or_init(|| requests(decision, idx)))
    }
}

fn requests(decision: &Decision, idx: usize) -> Key {
    let labels = vec![
        Label::new("endpoint", decision.endpoint.name().to_owned()),
        Label::new("model", shared(&decision.model)),
        Label::new("outcome", OUTCOMES[idx]),
    ];
    Key::from_parts(REQUESTS, labels)
}

/// The labels of outcomes other than a rejection.
const OUTCOMES: [&str; 6] = [
    "ok",
    "client_error",
    "server_error",
    "broke_off",
    "failed",
    "cancelled",
];

impl RequestOutcome {
    /// Its index in [`OUTCOMES`], or the code of a rejection.
    fn idx(self) -> Result<usize, &'static str> {
        Ok(match self {
            Self::Answered(status) if status.is_server_error() => 2,
            Self::Answered(status) if status.is_client_error() => 1,
            Self::Answered(_) => 0,
            Self::Reset => 3,
            Self::Failed => 4,
            Self::Cancelled => 5,
            Self::Rejected(code) => return Err(code),
        })
    }
}
