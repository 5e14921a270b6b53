//! Health checks of a router: one task per endpoint, started and stopped as the endpoints change.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed; // only compared with an earlier count
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::probe::{CheckError, Prober};
use super::schedule::run_checks;
use crate::admit::PoolId;
use crate::endpoints::{EndpointRef, HealthReporter};
use crate::upstream::connect::Connector;

/// Checks the health of a router's endpoints for as long as it lives. Made by
/// [`Forward::checks`](crate::upstream::Forward::checks), where there is an example.
///
/// It checks the endpoints that have a [`HealthCheck`](crate::endpoints::HealthCheck). The first eight are checked at
/// once, in the registry's order; the first checks of the others are spread over their interval. When the endpoints
/// change, checks of new ones begin and those of old ones end; where the check is the same, it goes on. An endpoint that
/// loses its check counts as healthy.
///
/// Dropping it stops all checks. The last result of each endpoint stays.
#[must_use = "dropping it stops the checks"]
pub struct HealthChecks {
    reporter: HealthReporter,
    decided: Decided,
    supervisor: JoinHandle<()>,
}

/// The endpoints that have had a result, as they were configured then.
type Decided = Arc<watch::Sender<HashMap<PoolId, EndpointRef>>>;

impl HealthChecks {
    pub(crate) fn start(connector: Connector, reporter: HealthReporter) -> Self {
        let decided = Decided::default();
        let supervisor = Supervisor {
            prober: Prober::new(connector),
            reporter: reporter.clone(),
            decided: Arc::clone(&decided),
            running: HashMap::new(),
        };
        // Before the endpoints are read: no change is missed.
        let changed = reporter.sink().changes();
        Self {
            reporter,
            decided,
            supervisor: tokio::spawn(supervisor.run(changed)),
        }
    }

    /// Resolves when each endpoint that has a check now has had its first result, or has lost its check. With more than
    /// eight of them, that takes about an interval.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped and called again at any time.
    pub async fn first_results(&self) {
        let endpoints = self.reporter.sink().endpoints();
        let mut awaited: Vec<_> = endpoints.iter().filter(is_checked).cloned().collect();
        // Those that have had their result, lost their check or left are not awaited any more.
        let has_come = |decided: &HashMap<PoolId, EndpointRef>| {
            let endpoints = self.reporter.sink().endpoints();
            awaited.retain(|awaited| {
                let is_it = |other: &EndpointRef| is_same_check(awaited, other);
                !decided.get(&awaited.pool()).is_some_and(is_it) && endpoints.iter().any(is_it)
            });
            awaited.is_empty()
        };
        _ = self.decided.subscribe().wait_for(has_come).await;
    }
}

impl Drop for HealthChecks {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthChecks").finish_non_exhaustive()
    }
}

/// Starts and stops checks when the endpoints change.
struct Supervisor {
    prober: Prober,
    reporter: HealthReporter,
    decided: Decided,
    running: HashMap<PoolId, Running>,
}

impl Supervisor {
    async fn run(mut self, mut changed: watch::Receiver<()>) {
        loop {
            self.update().await;
            if changed.changed().await.is_err() {
                return; // the router is gone
            }
        }
    }

    /// Stops and starts checks until they are those of the present endpoints.
    async fn update(&mut self) {
        let endpoints = self.reporter.sink().endpoints();
        let checked = endpoints.iter().filter(is_checked);
        let checked: HashMap<PoolId, &EndpointRef> = checked
            .map(|endpoint| (endpoint.pool(), endpoint))
            .collect();
        let outdated: Vec<Running> = self
            .running
            .extract_if(|pool, running| {
                let now = checked.get(pool);
                !now.is_some_and(|now| is_same_check(&running.endpoint, now))
            })
            .map(|(_, running)| running)
            .collect();
        for running in outdated {
            let endpoint = running.stop().await;
            self.decided
                .send_modify(|decided| _ = decided.remove(&endpoint.pool()));
            let is_checked_anew = checked.values().any(|now| now.is_same(&endpoint));
            if !is_checked_anew {
                self.reporter.sink().forget_checks(&endpoint);
            } // otherwise the next check decides
        }
        // In the registry's order, as documented.
        let is_new = |endpoint: &&EndpointRef| !self.running.contains_key(&endpoint.pool());
        let new: Vec<&EndpointRef> = endpoints.iter().filter(is_checked).filter(is_new).collect();
        for (nth, endpoint) in new.iter().enumerate() {
            let check = endpoint.config().health.as_ref();
            let pause = check.map(|check| first_pause(nth, new.len(), check.interval));
            let task = tokio::spawn(run(
                pause.unwrap_or_default(),
                self.prober.clone(),
                self.reporter.clone(),
                Arc::clone(&self.decided),
                (*endpoint).clone(),
            ));
            let endpoint = (*endpoint).clone();
            let running = Running { endpoint, task };
            self.running.insert(running.endpoint.pool(), running);
        }
    }
}

/// The checks of one endpoint.
struct Running {
    endpoint: EndpointRef,
    task: JoinHandle<()>,
}

impl Running {
    /// Ends the checks. They report nothing afterwards.
    async fn stop(mut self) -> EndpointRef {
        self.task.abort();
        _ = (&mut self.task).await; // until it has really ended
        self.endpoint.clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How many endpoints are checked at once when their checks begin.
const AT_ONCE: usize = 8;

/// How long to wait before the first check of the `nth` of `count` endpoints that start together, counted from 0: the
/// first [`AT_ONCE`] not at all, the others spread over the interval.
fn first_pause(nth: usize, count: usize, interval: Duration) -> Duration {
    let others = count.saturating_sub(AT_ONCE);
    match nth.checked_sub(AT_ONCE) {
        None => Duration::ZERO,
        Some(nth) => interval.mul_f64((nth + 1) as f64 / (others + 1) as f64),
    }
}

async fn run(
    pause: Duration,
    prober: Prober,
    reporter: HealthReporter,
    decided: Decided,
    endpoint: EndpointRef,
) {
    let Some(check) = &endpoint.config().health else {
        return;
    };
    sleep(pause).await;
    let mut first = true;
    let probe = || prober.probe(&endpoint, &check.path);
    let report = |up: Option<bool>, result: Result<(), CheckError>| {
        let name = endpoint.name();
        match (result, up) {
            (Err(error), _) if error.is_our_own() => {
                tracing::warn!(endpoint = name, %error, "no check of the endpoint could be made");
            }
            (Err(error), Some(_)) => {
                tracing::warn!(endpoint = name, %error, "endpoint fails its checks");
            }
            (Err(error), None) => tracing::debug!(endpoint = name, %error, "check failed"),
            (Ok(()), _) => {}
        }
        if let Some(up) = up {
            reporter.sink().set_healthy(&endpoint, up);
        }
        if std::mem::take(&mut first) {
            decided.send_modify(|decided| {
                decided.insert(endpoint.pool(), endpoint.clone());
            });
        }
    };
    let activity = || endpoint.state().activity.load(Relaxed);
    run_checks(check, probe, activity, report).await;
}

fn is_checked(endpoint: &&EndpointRef) -> bool {
    endpoint.config().health.is_some()
}

/// Whether both are the same endpoint with the same check.
fn is_same_check(one: &EndpointRef, other: &EndpointRef) -> bool {
    one.is_same(other)
        && one.config().health == other.config().health
        && one.config().headers == other.config().headers
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
