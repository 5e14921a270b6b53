//! Metrics that are published through the `metrics` facade.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use metrics::{
    Counter, Histogram, SharedString, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use super::RequestOutcome;
use super::kept::Kept;
use crate::admit::{MAX_LEVELS, Priority, PriorityLevels};
use crate::endpoints::{Decision, Endpoint, EndpointRef, Endpoints, Via};
use crate::gate::{GateStatus, LevelStatus};

const REQUESTS: &str = "triage_requests_total";
const QUEUE_WAIT: &str = "triage_queue_wait_seconds";
const RETRIES: &str = "triage_retries_total";
const REFUSALS: &str = "triage_endpoint_refusals_total";
const FALLBACKS: &str = "triage_fallbacks_total";
const HEALTH_CHANGES: &str = "triage_endpoint_health_changes_total";
const QUEUE_DEPTH: &str = "triage_queue_depth";
const RUNNING: &str = "triage_running";
const LEVEL_WAITING: &str = "triage_level_waiting";
const LEVEL_OLDEST: &str = "triage_queue_oldest_seconds";
const LEVEL_REJECTED: &str = "triage_level_rejected_total";
const LEVEL_ESTIMATE: &str = "triage_level_estimated_wait_seconds";
const LEVEL_TARGET: &str = "triage_level_target_wait_seconds";
const LEVEL_RESERVED: &str = "triage_level_reserved_slots";
const IN_FLIGHT: &str = "triage_endpoint_in_flight";
const LIMIT: &str = "triage_endpoint_limit";
const ADAPTIVE: &str = "triage_endpoint_limit_adaptive";
const HEALTHY: &str = "triage_endpoint_healthy";

fn describe() {
    let fallbacks = "Requests that another model served because the one asked for could not.";
    let retries = "Requests that were tried again after they failed at this endpoint.";
    let refusals = "Requests that an endpoint refused because it was full.";
    let health_changes = "How often an endpoint went out of service or came back.";
    for (counter, what) in [
        (REQUESTS, "Requests, by how they ended."),
        (RETRIES, retries),
        (REFUSALS, refusals),
        (FALLBACKS, fallbacks),
        (HEALTH_CHANGES, health_changes),
        (LEVEL_REJECTED, "Requests that the queue refused, by level."),
    ] {
        describe_counter!(counter, Unit::Count, what);
    }
    let what = "How long requests waited for a slot, of those that had to wait and got one.";
    describe_histogram!(QUEUE_WAIT, Unit::Seconds, what);
    describe_gauges();
}

fn describe_gauges() {
    for (gauge, what) in [
        (QUEUE_DEPTH, "Requests that wait."),
        (RUNNING, "Requests that are being served."),
        (LEVEL_WAITING, "Requests that wait, by level."),
        (LEVEL_RESERVED, "Slots kept for a level and those above."),
        (IN_FLIGHT, "Requests that an endpoint serves."),
        (LIMIT, "Requests that an endpoint may serve at a time."),
    ] {
        describe_gauge!(gauge, Unit::Count, what);
    }
    let estimate = "How long one more request of a level would wait; NaN while that is not known.";
    let oldest = "Time since the arrival of a level's oldest waiter; 0 while none waits.";
    describe_gauge!(LEVEL_OLDEST, Unit::Seconds, oldest);
    let target = "The wait from which on requests of a level are refused; +Inf without one.";
    describe_gauge!(LEVEL_ESTIMATE, Unit::Seconds, estimate);
    describe_gauge!(LEVEL_TARGET, Unit::Seconds, target);
    describe_gauge!(ADAPTIVE, "Whether an endpoint's limit adapts: 1 or 0.");
    describe_gauge!(HEALTHY, "Whether an endpoint is healthy: 1 or 0.");
}

/// Counters of requests, waits, retries, fallbacks and changes of health, with the gauges of endpoints and levels.
#[derive(Debug, Default)]
pub(in crate::route) struct Metrics {
    described: OnceLock<()>,
    shown: Mutex<Shown>,
    waits: [Kept<LevelWaits>; MAX_LEVELS],
}

/// The histogram of the waits at a level. Another level may have the number of an earlier one after a change of the
/// configuration.
struct LevelWaits {
    level: String,
    histogram: Histogram,
}

/// The counters of the requests that an endpoint served, for each of its models and each of [`RequestOutcome::SERVED`].
struct Served(Box<[[Kept<Counter>; RequestOutcome::SERVED.len()]]>);

impl Served {
    /// Counts a request that ended as `outcome`, the number of an outcome in [`RequestOutcome::SERVED`].
    fn count(decision: &Decision, outcome: usize) {
        let served = decision.endpoint.extension(|endpoint: &Endpoint| {
            let models = endpoint.models.iter();
            Self(models.map(|_| Default::default()).collect())
        });
        let find = || {
            let endpoint = decision.endpoint.name().to_owned();
            let (model, outcome) = (shared(&decision.model), RequestOutcome::SERVED[outcome]);
            counter!(REQUESTS, "endpoint" => endpoint, "model" => model, "outcome" => outcome)
        };
        match served.0.get(usize::from(decision.nth_model)) {
            Some(kept) => kept[outcome].with(|_| true, find, |counter| counter.increment(1)),
            None => find().increment(1),
        }
    }
}

/// The names of endpoints and levels that the gauges have values for. They are kept so that the gauges of names that
/// have left can be reset.
#[derive(Debug, Default)]
struct Shown {
    endpoints: BTreeSet<String>,
    levels: BTreeSet<String>,
}

impl Metrics {
    /// Counts a request that is over. The request asked for the name `asked`, if that was read, and it was sent to an
    /// endpoint if there is a `decision`.
    pub(in crate::route) fn ended(
        &self,
        endpoints: &Endpoints,
        asked: Option<&Arc<str>>,
        decision: Option<&Decision>,
        outcome: RequestOutcome,
    ) {
        let (decision, served) = match (decision, outcome.served()) {
            (Some(decision), Ok(served)) => (decision, served),
            (None, Ok(served)) => {
                return unserved(endpoints, asked, RequestOutcome::SERVED[served]);
            }
            (_, Err(code)) => return unserved(endpoints, asked, code),
        };
        Served::count(decision, served);
        if decision.via == Via::Fallback {
            let (asked, model) = (shared(&decision.asked), shared(&decision.model));
            counter!(FALLBACKS, "asked" => asked, "model" => model).increment(1);
        }
    }

    /// Records the wait of a request that has waited at the level `priority` of `levels` and got a slot.
    pub(in crate::route) fn waited(
        &self,
        levels: &PriorityLevels,
        priority: Priority,
        waited: Duration,
    ) {
        let level = levels.name(priority);
        let find = || LevelWaits {
            level: level.to_owned(),
            histogram: histogram!(QUEUE_WAIT, "priority" => level.to_owned()),
        };
        let record = |it: &LevelWaits| it.histogram.record(waited);
        // The name comes from a list of at most `MAX_LEVELS`, and lower priorities have the last name.
        let nth = usize::from(priority.0).min(MAX_LEVELS - 1);
        self.waits[nth].with(|it| it.level == level, find, record);
    }

    /// Counts a retry of a request that failed at `endpoint`.
    pub(in crate::route) fn retried(&self, endpoint: &EndpointRef) {
        counter!(RETRIES, "endpoint" => endpoint.name().to_owned()).increment(1);
    }

    /// Counts a request that `endpoint` refused because it was full.
    pub(in crate::route) fn refused(&self, endpoint: &EndpointRef) {
        counter!(REFUSALS, "endpoint" => endpoint.name().to_owned()).increment(1);
    }

    pub(in crate::route) fn health_changed(&self, endpoint: &EndpointRef) {
        counter!(HEALTH_CHANGES, "endpoint" => endpoint.name().to_owned()).increment(1);
    }

    /// Sets all gauges, and the counters of levels, to the current values.
    pub(in crate::route) fn record_gauges(&self, status: &GateStatus, endpoints: &[EndpointRef]) {
        self.described.get_or_init(describe);
        gauge!(QUEUE_DEPTH).set(status.depth as f64);
        gauge!(RUNNING).set(status.running as f64);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let now = endpoints.iter().map(|e| e.name().to_owned()).collect();
        let before = std::mem::replace(&mut shown.endpoints, now);
        for gone in before.difference(&shown.endpoints) {
            set_endpoint(gone, [0.0; 4]);
        }
        for endpoint in endpoints {
            let flag = |is_set: bool| if is_set { 1.0 } else { 0.0 };
            let (in_flight, limit) = (endpoint.in_flight().into(), endpoint.limit().into());
            let (adaptive, healthy) = (flag(endpoint.is_adaptive()), flag(endpoint.healthy()));
            set_endpoint(endpoint.name(), [in_flight, limit, adaptive, healthy]);
        }
        let now = status.levels.iter().map(|level| level.name.clone());
        let before = std::mem::replace(&mut shown.levels, now.collect());
        for gone in before.difference(&shown.levels) {
            set_level(gone, [0.0, 0.0, 0.0, f64::NAN, f64::INFINITY]);
        }
        status.levels.iter().for_each(record_level);
    }
}

/// Counts a request that no endpoint served. The request asked for the name `asked`, if that was read.
fn unserved(endpoints: &Endpoints, asked: Option<&Arc<str>>, outcome: &'static str) {
    let known = asked.filter(|asked| endpoints.is_configured(asked));
    let model = known.map_or(SharedString::const_str("other"), shared);
    counter!(REQUESTS, "endpoint" => "none", "model" => model, "outcome" => outcome).increment(1);
}

fn set_endpoint(endpoint: &str, values: [f64; 4]) {
    let name = SharedString::from_shared(endpoint.into());
    for (gauge, value) in [IN_FLIGHT, LIMIT, ADAPTIVE, HEALTHY]
        .into_iter()
        .zip(values)
    {
        gauge!(gauge, "endpoint" => name.clone()).set(value);
    }
}

fn record_level(level: &LevelStatus) {
    let [waiting, reserved] = [level.waiting, level.reserved].map(|count| count as f64);
    let seconds = |wait: Option<Duration>| wait.map(|wait| wait.as_secs_f64());
    let oldest = seconds(level.oldest).unwrap_or(0.0);
    let estimate = seconds(level.estimated_wait).unwrap_or(f64::NAN);
    let target = seconds(level.target_wait).unwrap_or(f64::INFINITY);
    let values = [waiting, reserved, oldest, estimate, target];
    set_level(&level.name, values);
    for (code, count) in level.stats.by_code() {
        // A level is counted for a code only from its first such request on, as with the labels of every counter.
        if count > 0 {
            let name = level.name.clone();
            counter!(LEVEL_REJECTED, "priority" => name, "code" => code).absolute(count);
        }
    }
}

fn set_level(level: &str, values: [f64; 5]) {
    let name = SharedString::from_shared(level.into());
    let gauges = [
        LEVEL_WAITING,
        LEVEL_RESERVED,
        LEVEL_OLDEST,
        LEVEL_ESTIMATE,
        LEVEL_TARGET,
    ];
    for (gauge, value) in gauges.into_iter().zip(values) {
        gauge!(gauge, "priority" => name.clone()).set(value);
    }
}

/// Returns the label of a name, which is `none` for a request that names no model.
fn shared(name: &Arc<str>) -> SharedString {
    match name.is_empty() {
        true => SharedString::const_str("none"),
        false => SharedString::from_shared(Arc::clone(name)),
    }
}

impl RequestOutcome {
    /// The labels of the outcomes of requests that an endpoint served.
    const SERVED: [&'static str; 7] = [
        "ok",
        "client_error",
        "server_error",
        "broke_off",
        "failed",
        "cancelled",
        "error_in_stream",
    ];

    /// Returns the number of the outcome in [`SERVED`](Self::SERVED), or the code of a rejection.
    fn served(self) -> Result<usize, &'static str> {
        Ok(match self {
            Self::Answered(status) if status.is_server_error() => 2,
            Self::Answered(status) if status.is_client_error() => 1,
            Self::Answered(_) => 0,
            Self::Reset => 3,
            Self::Failed => 4,
            Self::Cancelled => 5,
            Self::ErrorInStream => 6,
            Self::Rejected(code) => return Err(code),
        })
    }
}
