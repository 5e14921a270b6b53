//! The tasks that read the load of engines. Each endpoint with such metrics has one task, which starts and stops as the
//! endpoints change.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::metrics_text;
use crate::admit::PoolId;
use crate::endpoints::{EndpointRef, EngineLoad, HealthReporter};
use crate::upstream::health::{CheckError, Prober, jittered};

/// The largest part of an engine's metrics that is read, in bytes.
const READ_LIMIT: usize = 4 << 20;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the load of the engines of a router's endpoints until the router is gone.
pub(in crate::upstream) async fn read_engines(
    prober: Prober,
    reporter: HealthReporter,
    mut changed: watch::Receiver<()>,
) {
    let mut running: HashMap<PoolId, (EndpointRef, JoinSet<()>)> = HashMap::new();
    loop {
        let endpoints = reporter.sink().endpoints();
        // A changed endpoint gets a new task, because its limit may be different.
        running.retain(|_, (endpoint, _)| {
            let is_it = |now: &EndpointRef| is_unchanged(endpoint, now);
            endpoints.iter().any(is_it)
        });
        for endpoint in endpoints.iter().filter(|it| it.config().load.is_some()) {
            running.entry(endpoint.pool()).or_insert_with(|| {
                let task = read(prober.clone(), reporter.clone(), endpoint.clone());
                let task = JoinSet::from_iter([task]);
                (endpoint.clone(), task)
            });
        }
        if changed.changed().await.is_err() {
            return; // the router is gone
        }
    }
}

fn is_unchanged(one: &EndpointRef, other: &EndpointRef) -> bool {
    one.is_same(other) && one.config() == other.config()
}

/// Reads the load of one engine repeatedly, until this future is dropped.
async fn read(prober: Prober, reporter: HealthReporter, endpoint: EndpointRef) {
    let Some(metrics) = &endpoint.config().load else {
        return;
    };
    let mut fails = false;
    loop {
        let pause = sleep(jittered(metrics.interval, fastrand::f64())); // runs from here on
        let reading = reading(&prober, &endpoint, &metrics.path).await;
        let failed = reading.as_ref().err();
        // Only the first failure in a row is logged, and the next one after a success.
        if let Some(error) = failed.filter(|_| !fails) {
            let name = endpoint.name();
            tracing::warn!(endpoint = name, %error, "the load of the endpoint's engine is not known");
        }
        fails = failed.is_some();
        reporter.sink().engine_said(&endpoint, reading.ok());
        pause.await;
    }
}

async fn reading(
    prober: &Prober,
    endpoint: &EndpointRef,
    path: &str,
) -> Result<EngineLoad, ReadingError> {
    let text = timeout(TIMEOUT, prober.read(endpoint, path, READ_LIMIT));
    let text = text.await.unwrap_or(Err(CheckError::Late(TIMEOUT)))?;
    metrics_text::load(&String::from_utf8_lossy(&text)).ok_or(ReadingError::NoMetrics)
}

/// The reason why the load of an engine is not known.
#[derive(Debug, thiserror::Error)]
enum ReadingError {
    #[error(transparent)]
    NoAnswer(#[from] CheckError),
    #[error("the answer has no metrics of the load of vLLM, SGLang or TGI: is the path right?")]
    NoMetrics,
}
