//! A lease that is given up when its attempt is dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Shared;
use crate::durable::{Lease, OnCrash, Outcome, reason};

/// Ends a request whose attempt is dropped before its outcome is stored, as it would seem to run for ever otherwise.
pub(super) struct LeaseGuard {
    shared: Arc<Shared>,
    /// `None` once there is an outcome.
    lease: Option<Lease>,
}

impl LeaseGuard {
    pub(super) fn new(shared: &Arc<Shared>, lease: Lease) -> Self {
        Self {
            shared: Arc::clone(shared),
            lease: Some(lease),
        }
    }

    /// Stores the outcome, as often as it takes.
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
        // Outside a runtime the process ends, and the store finds the lease when it is opened again.
        if let Ok(runtime) = Handle::try_current() {
            let shared = Arc::clone(&self.shared);
            let outcome = outcome_of_drop(shared.settings.on_crash, lease.attempt());
            runtime.spawn(async move { finish(&shared, &lease, &outcome).await });
        }
    }
}

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
