//! What the engine behind an endpoint says of its load, and how that changes a limit that adapts.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
#[cfg(feature = "client")]
use std::time::Instant;

use http::uri::PathAndQuery;

use super::EndpointRef;
#[cfg(feature = "client")]
use crate::admit::{LimitOutcome, LimitSample};

/// Where an engine of language models reports its load, in Prometheus's text format.
///
/// For an endpoint with a [limit](super::Endpoint::limit) that adapts by
/// [`LimitAlgorithm::Aimd`](crate::admit::LimitAlgorithm::Aimd): the limit falls by a tenth for each reading in which
/// requests wait inside the engine, and grows by at most one after each in which none does. The latency of such an engine grows with its batch by
/// design, so it says little about the limit; that requests wait inside says that the batch is full. A reading does not
/// count while more requests are in flight than the limit allows: then a lower limit has still to take effect. The other
/// algorithms all but ignore it.
///
/// Understood are, summed over their labels, the requests that wait: `vllm:num_requests_waiting`,
/// `sglang:num_queue_reqs`, `tgi_queue_size`; and, the highest of them, how full the cache of keys and values is:
/// `vllm:kv_cache_usage_perc`, `vllm:gpu_cache_usage_perc` of older versions, `sglang:token_usage`.
///
/// `Forward::checks` reads it, with the headers of the endpoint. The last reading is in
/// [`EndpointStatus::engine`](super::EndpointStatus::engine).
///
/// ```
/// use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm};
/// use tower_triage::endpoints::{Endpoint, EngineMetrics};
///
/// let vllm = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:8000"))
///     .limit(AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd))
///     .load(EngineMetrics::new("/metrics"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineMetrics {
    /// The path, after the endpoint's base path. It begins with `/` and may have a query. Default `/metrics`.
    pub path: String,
    /// How long from the start of a reading to that of the next, give or take a tenth by chance. A reading that takes
    /// longer delays the next; it is given up after 5 s. Above zero; default 1 s.
    pub interval: Duration,
}

impl EngineMetrics {
    /// Read from `path` each second.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            interval: Duration::from_secs(1),
        }
    }

    /// How long from the start of a reading to that of the next, give or take a tenth.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// What is wrong with it, if anything is.
    pub(super) fn problem(&self) -> Option<&'static str> {
        if !self.path.starts_with('/') || self.path.parse::<PathAndQuery>().is_err() {
            Some("a path that does not begin with / or has characters in it that no path has")
        } else if self.interval.is_zero() {
            Some("an interval of 0: give it some time, or leave `load` out")
        } else {
            None
        }
    }
}

impl Default for EngineMetrics {
    /// `/metrics`, each second.
    fn default() -> Self {
        Self::new("/metrics")
    }
}

/// What an engine says of its load. `None` where it does not say.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EngineLoad {
    /// How many requests wait inside.
    pub waiting: Option<f64>,
    /// How full its cache of keys and values is, from 0 to 1.
    pub cache_usage: Option<f64>,
}

/// The last reading.
#[derive(Default)]
struct LastReading(Mutex<Option<EngineLoad>>);

impl EndpointRef {
    /// What its engine said last of its load. `None` if it is not [asked](super::Endpoint::load), did not answer, or said
    /// nothing of its load.
    #[must_use]
    pub fn engine(&self) -> Option<EngineLoad> {
        self.config().load.as_ref()?;
        let LastReading(last) = self.extension(|_| LastReading::default());
        *last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reading of its engine's load, `None` if it failed. Returns whether the limit is higher now, which it may be after
    /// [`set_limit`](Self::set_limit) had lowered it: waiters are to be looked at again.
    #[cfg(feature = "client")]
    pub(crate) fn engine_said(&self, load: Option<EngineLoad>, now: Instant) -> bool {
        let LastReading(last) = self.extension(|_| LastReading::default());
        *last.lock().unwrap_or_else(PoisonError::into_inner) = load;
        let waiting = load.and_then(|load| load.waiting);
        self.engine_waits(waiting.map(|waiting| waiting > 0.0));
        let waiting = waiting.unwrap_or_default();
        let in_flight = self.in_flight();
        // Above the limit, an earlier decrease has still to take effect.
        let counts = waiting > 0.0 && in_flight <= self.own_limit();
        counts && {
            let sample = LimitSample {
                latency: Duration::ZERO,
                in_flight: in_flight as usize,
                waiting: false,
                outcome: LimitOutcome::Overloaded,
            };
            self.observe(sample, now)
        }
    }
}

#[cfg(all(test, feature = "client", not(loom)))]
mod tests {
    use super::*;
    use crate::admit::{AdaptiveLimit, LimitAlgorithm, PoolId};
    use crate::endpoints::Endpoint;

    /// An engine that serves 8 requests of 50 ms at a time, queues the others inside, and is read each second.
    #[test]
    fn the_limit_stays_near_what_the_engine_serves_at_a_time() {
        const SERVED: u32 = 8;
        for initial in [1, 20, 100] {
            let aimd = AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd);
            let url = http::Uri::from_static("http://127.0.0.1:9");
            let endpoint = Endpoint::new("a", url)
                .limit(aimd.initial(initial))
                .load(EngineMetrics::default());
            let endpoint = EndpointRef::new(endpoint, PoolId(0), false, false);
            let mut now = Instant::now();
            let (mut highest, mut inside) = (0, 0);
            for second in 0..300 {
                for _ in 0..20 {
                    now += Duration::from_millis(50);
                    let in_flight = endpoint.limit();
                    for _ in 0..SERVED.min(in_flight) {
                        let sample = LimitSample {
                            latency: Duration::from_millis(50) * in_flight.div_ceil(SERVED),
                            in_flight: in_flight as usize,
                            waiting: true,
                            outcome: LimitOutcome::Ok,
                        };
                        endpoint.observe(sample, now);
                    }
                }
                let waiting = endpoint.limit().saturating_sub(SERVED);
                let load = EngineLoad {
                    waiting: Some(waiting.into()),
                    cache_usage: None,
                };
                endpoint.engine_said(Some(load), now);
                if second >= 60 {
                    highest = highest.max(endpoint.limit());
                    inside += waiting;
                }
            }
            assert!(highest <= SERVED + 2, "{initial}: {highest}");
            assert!(
                endpoint.limit() >= SERVED - 1,
                "{initial}: {}",
                endpoint.limit()
            );
            assert!(inside <= 240, "{initial}: {inside} in 240 readings");
        }
    }
}
