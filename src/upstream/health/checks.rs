//! Health checks of a router. Each endpoint with a check has one task, which starts and stops as the endpoints change.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed; // the counter is only compared with an earlier count
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::probe::{CheckError, Prober};
use super::schedule::run_checks;
use crate::admit::PoolId;
use crate::endpoints::EndpointRef;
use crate::route::RouteHandle;
use crate::upstream::connect::Connector;
use crate::upstream::engine::read_engines;

/// A guard that checks the health of a router's endpoints until it is dropped.
/// [`Forward::checks`](crate::upstream::Forward::checks) creates it, and [`Forward`](crate::upstream::Forward) has an
/// example.
///
/// Only endpoints that have a [`HealthCheck`](crate::endpoints::HealthCheck) are checked. The first eight are checked
/// at once, in the registry's order, while the first checks of the others are spread over their interval. When the
/// endpoints change, checks of new endpoints begin and checks of removed endpoints end. If an endpoint keeps the same
/// check, that check goes on. An endpoint that loses its check counts as healthy.
///
/// The guard also reads the load of endpoints if their engines [report](crate::endpoints::EngineMetrics) it.
///
/// Dropping the guard stops all checks, and the last result of each endpoint stays in effect.
#[must_use = "dropping it stops the checks"]
pub struct HealthChecks {
    checker: Checker,
    /// Two tasks, for health checks and for engine metrics, which end when this is dropped.
    _supervisors: JoinSet<()>,
}

/// The endpoints that have had a result, with their configuration at that time.
type Decided = watch::Sender<HashMap<PoolId, EndpointRef>>;

impl HealthChecks {
    pub(crate) fn start(connector: Connector, router: RouteHandle) -> Self {
        let checker = Checker {
            prober: Prober::new(connector),
            router,
            decided: Decided::default(),
        };
        // The receiver is created before the endpoints are read, so that every later change is noticed.
        let changed = checker.router.changes();
        let mut supervisors = JoinSet::new();
        let (prober, router) = (checker.prober.clone(), checker.router.clone());
        supervisors.spawn(read_engines(prober, router, changed.clone()));
        supervisors.spawn(supervise(checker.clone(), changed));
        Self {
            checker,
            _supervisors: supervisors,
        }
    }

    /// Waits until each endpoint that has a check now has had its first result, or has lost its check. With more than
    /// eight such endpoints, that takes about one interval.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped and created again at any time.
    pub async fn first_results(&self) {
        let Checker {
            router, decided, ..
        } = &self.checker;
        let endpoints = router.endpoints();
        let mut awaited: Vec<_> = endpoints.iter().filter(is_checked).cloned().collect();
        // Endpoints that have had their result, have lost their check or have left are not awaited any more.
        let has_come = |decided: &HashMap<PoolId, EndpointRef>| {
            let endpoints = router.endpoints();
            awaited.retain(|awaited| {
                let is_it = |other: &EndpointRef| is_same_check(awaited, other);
                !decided.get(&awaited.pool()).is_some_and(is_it) && endpoints.iter().any(is_it)
            });
            awaited.is_empty()
        };
        _ = decided.subscribe().wait_for(has_come).await;
    }
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthChecks").finish_non_exhaustive()
    }
}

/// Starts and stops checks when the endpoints change, until the router is gone.
async fn supervise(checker: Checker, mut changed: watch::Receiver<()>) {
    let mut running = HashMap::new();
    loop {
        checker.update(&mut running).await;
        if changed.changed().await.is_err() {
            return; // the router is gone
        }
    }
}

/// The running checks of one endpoint.
struct Running {
    endpoint: EndpointRef,
    /// One task, which ends when this is dropped.
    task: JoinSet<()>,
}

/// The number of endpoints that are checked at once when their checks begin.
const AT_ONCE: usize = 8;

/// Returns the pause before the first check of the `nth` of `count` endpoints that start together, counted from 0. The
/// pause is zero for the first [`AT_ONCE`] endpoints, and the others are spread over the interval.
fn first_pause(nth: usize, count: usize, interval: Duration) -> Duration {
    let others = count.saturating_sub(AT_ONCE);
    match nth.checked_sub(AT_ONCE) {
        None => Duration::ZERO,
        Some(nth) => interval.mul_f64((nth + 1) as f64 / (others + 1) as f64),
    }
}

/// A checker of endpoints that reports the results to the router.
#[derive(Clone)]
struct Checker {
    prober: Prober,
    router: RouteHandle,
    decided: Decided,
}

impl Checker {
    /// Stops outdated checks and starts new ones, so that they match the current endpoints.
    async fn update(&self, running: &mut HashMap<PoolId, Running>) {
        let endpoints = self.router.endpoints();
        let is_outdated = |running: &Running| {
            let is_it = |now: &EndpointRef| is_same_check(&running.endpoint, now);
            !endpoints.iter().any(is_it)
        };
        let outdated = running.extract_if(|_, running| is_outdated(running));
        for (pool, Running { endpoint, mut task }) in outdated.collect::<Vec<_>>() {
            task.shutdown().await; // the task reports nothing afterwards
            self.decided
                .send_modify(|decided| _ = decided.remove(&pool));
            let mut checked = endpoints.iter().filter(is_checked);
            if !checked.any(|now| *now == endpoint) {
                self.router.forget_checks(&endpoint);
            } // otherwise the next check decides
        }
        // Checks start in the registry's order, as documented.
        let is_new = |endpoint: &&EndpointRef| !running.contains_key(&endpoint.pool());
        let new: Vec<_> = endpoints.iter().filter(is_checked).filter(is_new).collect();
        let count = new.len();
        for (nth, endpoint) in new.into_iter().cloned().enumerate() {
            let check = self.clone().run(endpoint.clone(), nth, count);
            let task = JoinSet::from_iter([check]);
            running.insert(endpoint.pool(), Running { endpoint, task });
        }
    }

    /// Checks `endpoint`, the `nth` of `count` endpoints that start together, until this future is dropped.
    async fn run(self, endpoint: EndpointRef, nth: usize, count: usize) {
        let Some(check) = &endpoint.config().health else {
            return;
        };
        sleep(first_pause(nth, count, check.interval)).await;
        let mut first = true;
        let probe = || self.prober.probe(&endpoint, &check.path);
        let report = |up: Option<bool>, result: Result<(), CheckError>| {
            let name = endpoint.name();
            match (&result, up) {
                (Err(error), _) if error.is_our_own() => {
                    tracing::warn!(endpoint = name, %error, "no check of the endpoint could be made");
                }
                (Err(error), Some(_)) => {
                    tracing::warn!(endpoint = name, %error, "endpoint fails its checks");
                }
                (Err(error), None) => tracing::debug!(endpoint = name, %error, "check failed"),
                (Ok(()), _) => {
                    self.router.check_passed(&endpoint);
                }
            }
            if let Some(up) = up {
                if let Err(error) = &result {
                    let health = &endpoint.state().cold.health;
                    health.set_reason(format!("the check fails: {error}"));
                }
                self.router.set_healthy(&endpoint, up);
            }
            if std::mem::take(&mut first) {
                self.decided.send_modify(|decided| {
                    decided.insert(endpoint.pool(), endpoint.clone());
                });
            }
        };
        let activity = || endpoint.state().cold.activity.load(Relaxed);
        // Long answers that are not streamed may keep a model's only engine from its checks.
        let is_needed = || endpoint.in_flight() > 0 && self.router.is_last(&endpoint);
        run_checks(check, probe, activity, is_needed, report).await;
    }
}

fn is_checked(endpoint: &&EndpointRef) -> bool {
    endpoint.config().health.is_some()
}

/// Returns `true` if both are the same endpoint with the same check, headers and protocol.
fn is_same_check(one: &EndpointRef, other: &EndpointRef) -> bool {
    one == other
        && one.config().health == other.config().health
        && one.config().headers == other.config().headers
        && one.config().http2 == other.config().http2
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[test]
    fn few_endpoints_are_asked_at_once() {
        for count in 0..=AT_ONCE {
            assert!((0..count).all(|nth| first_pause(nth, count, INTERVAL).is_zero()));
        }
    }

    #[test]
    fn the_others_are_asked_evenly_over_the_interval() {
        for count in [AT_ONCE + 1, 20, 1_000] {
            let pauses: Vec<_> = (AT_ONCE - 1..count)
                .map(|nth| first_pause(nth, count, INTERVAL))
                .collect();
            let apart = INTERVAL.div_f64((count - AT_ONCE + 1) as f64);
            let rounding = Duration::from_micros(1);
            for pair in pauses.windows(2) {
                assert!((pair[1] - pair[0]).abs_diff(apart) < rounding, "{count}");
            }
            assert!((pauses[pauses.len() - 1] + apart).abs_diff(INTERVAL) < rounding);
        }
        assert!(first_pause(999, 1_000, Duration::MAX) < Duration::MAX);
    }
}
