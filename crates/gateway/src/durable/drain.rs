//! The progress of a store that is emptied.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Unit, describe_gauge, gauge};
use tokio::time::sleep;
use tower_triage_durable::DrainStore;

const REMAINING: &str = "triage_durable_drain_remaining";

/// The interval at which the old store is asked.
const INTERVAL: Duration = Duration::from_secs(2);

/// Reports the requests that the old store still has, and when it has none any more.
pub(super) async fn report(store: Arc<DrainStore>) {
    describe_gauge!(
        REMAINING,
        Unit::Count,
        "Requests in the Redis of drain_url that have not ended."
    );
    let mut was_drained = false;
    loop {
        // While it is unavailable, its store logs that.
        if let Ok(remaining) = store.remaining().await {
            gauge!(REMAINING).set(remaining as f64);
            if remaining == 0 && !was_drained {
                tracing::info!(
                    "the Redis of `drain_url` is drained: all its requests have ended; its responses, files and batches \
                     can be read until `drain_url` is removed"
                );
            }
            was_drained = remaining == 0;
        }
        sleep(INTERVAL).await;
    }
}
