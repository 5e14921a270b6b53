//! The load that the engine behind an endpoint reports, and its effect on a limit that adapts.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
#[cfg(feature = "client")]
use std::time::Instant;

use http::uri::PathAndQuery;

use super::EndpointRef;
#[cfg(feature = "client")]
use crate::admit::{LimitOutcome, LimitSample};
use crate::setters::setters;

/// The place where an engine of language models reports its load, in the text format of Prometheus.
///
/// It is for an endpoint with a [limit](super::Endpoint::limit) that adapts by
/// [`LimitAlgorithm::Aimd`](crate::admit::LimitAlgorithm::Aimd). A queue inside the engine shows that its batch is full. So
/// the limit falls by a tenth for each reading in which requests wait inside, and grows by at most one after each reading
/// with an empty queue. A reading is ignored while more requests are in flight than the limit allows, because a lower limit
/// has yet to take effect.
///
/// The following metrics are understood:
///
/// - the number of requests that wait, summed over the labels: `vllm:num_requests_waiting`, `sglang:num_queue_reqs` or
///   `tgi_queue_size`
/// - the share of the cache of keys and values that is full, as the maximum over the labels:
///   `vllm:kv_cache_usage_perc`, `vllm:gpu_cache_usage_perc` of older versions, or `sglang:token_usage`
///
/// `Forward::checks` reads the metrics, with the headers of the endpoint. [`EndpointRef::engine`] has the last reading.
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
    /// The path after the endpoint's base path. It begins with `/` and may have a query. Default `/metrics`.
    pub path: String,
    /// The time from the start of a reading to the start of the next one, which varies by a tenth at random. It must be
    /// above zero. Default 1 s. A reading that takes longer delays the next one, and is given up after 5 s.
    pub interval: Duration,
}

impl EngineMetrics {
    /// Makes a reading of `path` each second.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            interval: Duration::from_secs(1),
        }
    }

    setters! {
        interval: Duration,
    }

    /// Returns the part of the settings that is invalid, if there is one.
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
    /// Reads `/metrics` each second.
    fn default() -> Self {
        Self::new("/metrics")
    }
}

/// The load that an engine reports, with `None` for a number that it leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EngineLoad {
    /// The number of requests that wait inside the engine.
    pub waiting: Option<f64>,
    /// The share of the cache of keys and values that is full, from 0 to 1.
    pub cache_usage: Option<f64>,
}

/// The cell for the last reading of an engine's load.
#[derive(Default)]
struct LastReading(Mutex<Option<EngineLoad>>);

impl EndpointRef {
    /// Returns the last load that the endpoint's engine reported. Returns `None` if the engine is not
    /// [asked](super::Endpoint::load), did not answer, or left its load out of the answer.
    #[must_use]
    pub fn engine(&self) -> Option<EngineLoad> {
        self.config().load.as_ref()?;
        let LastReading(last) = self.extension(|_| LastReading::default());
        *last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a reading of the engine's load, or `None` if the reading failed. Returns `true` if the limit is higher now,
    /// which may happen after [`set_limit`](Self::set_limit) had lowered it.
    #[cfg(feature = "client")]
    pub(crate) fn engine_said(&self, load: Option<EngineLoad>, now: Instant) -> bool {
        let LastReading(last) = self.extension(|_| LastReading::default());
        *last.lock().unwrap_or_else(PoisonError::into_inner) = load;
        let waiting = load.and_then(|load| load.waiting);
        self.engine_waits(waiting.map(|waiting| waiting > 0.0));
        let waiting = waiting.unwrap_or_default();
        let in_flight = self.in_flight();
        // While more requests are in flight than the limit allows, an earlier decrease has yet to take effect.
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

    /// Runs an engine that serves 8 requests of 50 ms at a time, queues the others inside and is read each second.
    #[test]
    fn the_limit_stays_near_what_the_engine_serves_at_a_time() {
        const SERVED: u32 = 8;
        for initial in [1, 20, 100] {
            let aimd = AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd);
            let url = http::Uri::from_static("http://127.0.0.1:9");
            let endpoint = Endpoint::new("a", url)
                .limit(aimd.initial(initial))
                .load(EngineMetrics::default());
            let endpoint = EndpointRef::new(endpoint, PoolId(0), Default::default());
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
