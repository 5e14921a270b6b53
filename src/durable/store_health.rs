//! Operations that are repeated until the store does them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::{StoreError, StoreFuture};

/// The state of a store, as its user sees it: an outage is logged once when it begins, and once when it is over.
#[derive(Debug, Default)]
pub(super) struct StoreHealth {
    is_failing: AtomicBool,
}

impl StoreHealth {
    /// Repeats an operation until it succeeds, after 50 ms to 2 s.
    pub(super) async fn until_done<'a, T>(
        &self,
        mut operation: impl FnMut() -> StoreFuture<'a, T>,
    ) -> T {
        let mut wait = FIRST_WAIT;
        loop {
            match operation().await {
                Ok(done) => {
                    self.on_success();
                    return done;
                }
                Err(error) => self.on_error(&error),
            }
            // Spread, so that workers do not all come back at the same instant.
            tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            wait = (2 * wait).min(LONGEST_WAIT);
        }
    }

    /// Notes that an operation succeeded.
    pub(super) fn on_success(&self) {
        // Relaxed: it guards nothing but the log.
        if self.is_failing.load(Relaxed) && self.is_failing.swap(false, Relaxed) {
            tracing::info!("the store of requests works again");
        }
    }

    /// Notes that an operation failed. A bound that holds, or a mistake of a caller, is no outage.
    pub(super) fn on_error(&self, error: &StoreError) {
        let is_outage = matches!(
            error,
            StoreError::Unavailable(_) | StoreError::StorageFull(_)
        );
        if is_outage && !self.is_failing.swap(true, Relaxed) {
            tracing::warn!(%error, "the store of requests fails");
        }
    }
}

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
