//! The tasks behind a store: those that run requests, and those that send webhooks and follow batches.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_triage::RouteHandle;
use tower_triage_durable::{Store, Worker};
use tower_triage_redis::shared_limits::SharedLimits;

use super::counters;
use super::runs::Runs;
use crate::config::{DurableConfig, Role};

/// The tasks of one gateway's store.
pub(crate) struct Workers {
    store: Arc<dyn Store>,
    stop: CancellationToken,
    /// `None` if it runs no stored requests, or they have ended.
    running: Option<JoinHandle<()>>,
    /// Cancelled when no stored request runs here any more, so that no client waits for one.
    served: CancellationToken,
    /// Tasks without an end.
    others: JoinSet<()>,
    shared_limits: Option<SharedLimits>,
}

impl Workers {
    pub(super) fn start(
        durable: &DurableConfig,
        store: Arc<dyn Store>,
        router: &RouteHandle,
        runs: Runs,
        served: CancellationToken,
        others: JoinSet<()>,
        shared_limits: Option<SharedLimits>,
    ) -> Self {
        counters::describe();
        let stop = CancellationToken::new();
        let running = (durable.role != Role::Front).then(|| {
            let worker = Worker::new(Arc::clone(&store), runs)
                .slots(router.gate().clone())
                .attempt_timeout(durable.attempt_timeout)
                .on_crash(durable.on_crash)
                .retry(durable.retry)
                .shutdown(stop.clone());
            tokio::spawn(worker.run())
        });
        Self {
            store,
            stop,
            running,
            served,
            others,
            shared_limits,
        }
    }

    /// Takes no further request from the store.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until it is stopped, and the outcome of the last request that ran is stored. Clients that wait for others get
    /// receipts then.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped and called again at any time.
    pub(crate) async fn finished(&mut self) {
        if let Some(running) = &mut self.running {
            _ = running.await;
            self.running = None;
        }
        self.served.cancel();
    }

    /// Ends all tasks, and closes the store within `limit`.
    pub(crate) async fn close_store(mut self, limit: Duration) {
        self.others.shutdown().await;
        if let Some(running) = &self.running {
            running.abort();
        }
        if let Some(shared) = self.shared_limits {
            // No request runs any more, or those that do are about to be cut off.
            shared.close().await;
        }
        match timeout(limit, self.store.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the store of requests was not closed"),
            Err(_) => tracing::warn!("the store of requests was not closed in time"),
        }
    }
}
