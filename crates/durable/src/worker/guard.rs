//! A guard that settles the lease of an attempt even if the attempt is dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Shared;
use crate::{Lease, OnCrash, Outcome, reason};

/// A guard that ends a request if its attempt is dropped before the outcome is stored. Without it, the request would
/// seem to run forever.
pub(super) struct LeaseGuard {
    shared: Arc<Shared>,
    /// The lease to settle, or `None` once its outcome is stored or left to the store.
    lease: Option<Lease>,
}

impl LeaseGuard {
    pub(super) fn new(shared: &Arc<Shared>, lease: Lease) -> Self {
        Self {
            shared: Arc::clone(shared),
            lease: Some(lease),
        }
    }

    /// Stores the outcome, and repeats that until the store is available.
    pub(super) async fn finish(mut self, outcome: Outcome) {
        let Some(lease) = self.lease.clone() else {
            return;
        };
        finish(&self.shared, &lease, &outcome).await;
        self.lease = None;
    }

    /// Leaves the request to the store, which has ended it or given it to another worker.
    pub(super) fn leave(mut self) {
        self.lease = None;
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        // Outside of a Tokio runtime the process ends, and the store finds the lease when it is opened again.
        if let Ok(runtime) = Handle::try_current() {
            let shared = Arc::clone(&self.shared);
            let outcome = outcome_of_drop(shared.settings.on_crash, lease.attempt());
            runtime.spawn(async move { finish(&shared, &lease, &outcome).await });
        }
    }
}

/// Returns the outcome of an attempt that was dropped, as the crash policy requires it.
fn outcome_of_drop(on_crash: OnCrash, attempt: u32) -> Outcome {
    match on_crash {
        OnCrash::Retry { max_attempts } if attempt < max_attempts => Outcome::Retry {
            after: Duration::ZERO,
            counts: true,
        },
        _ => Outcome::Failed {
            reason: reason::WORKER_LOST.to_owned(),
        },
    }
}

async fn finish(shared: &Shared, lease: &Lease, outcome: &Outcome) {
    let finish = || shared.store.finish(lease.clone(), outcome.clone());
    shared.health.until_done(finish).await;
}
