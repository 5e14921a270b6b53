//! Operations of a store that are repeated until they succeed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::{StoreError, StoreFuture};

/// The health of a store, as one of its users sees it.
///
/// It keeps an outage down to two log lines, one when the outage begins and one when it is over.
#[derive(Debug, Default)]
pub(super) struct StoreHealth {
    /// `true` from the first failure of an outage until the next operation that succeeds.
    is_failing: AtomicBool,
}

impl StoreHealth {
    /// Repeats an operation until it succeeds.
    ///
    /// The pause between two tries begins at 25 to 50 ms and doubles up to 1 to 2 s.
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
            // Random pauses spread the workers, so that they do not all come back at the same instant.
            tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            wait = (2 * wait).min(LONGEST_WAIT);
        }
    }

    /// Records that an operation succeeded, and logs the end of an outage.
    pub(super) fn on_success(&self) {
        // Relaxed is enough because the flag guards only the log. The load first keeps the usual path free of writes.
        if self.is_failing.load(Relaxed) && self.is_failing.swap(false, Relaxed) {
            tracing::info!("the store of requests works again");
        }
    }

    /// Records that an operation failed. An exceeded bound or a mistake of a caller does not count as an outage.
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
