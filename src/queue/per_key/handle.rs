//! The handle of queues by key, which reports on them, changes them and closes them while they run.

use std::fmt;
use std::sync::Arc;

use super::rooms::Rooms;
use crate::gate::GateStatus;
use crate::queue::{InvalidQueueConfig, QueueConfig};

/// A handle that reports on the queues of a [`PerKeyLayer`](super::PerKeyLayer) and changes all of them. Created by
/// [`PerKeyLayer::handle`](super::PerKeyLayer::handle). Clones are handles to the same queues.
///
/// ```
/// use http::Request;
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # fn main() -> Result<(), tower_triage::queue::InvalidQueueConfig> {
/// let queue = QueueLayer::new(QueueConfig::new(8))
///     .per_key(|request: &Request<String>| request.method().as_str());
/// let handle = queue.handle();
/// handle.reconfigure(handle.config().max_size(20))?;
/// for (key, status) in handle.status() {
///     println!("{key:?}: {} run, {} wait", status.running, status.depth);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PerKeyHandle(pub(super) Arc<Rooms>);

impl PerKeyHandle {
    /// Returns the status of each queue, in the order of the keys. The first one has no key: it is the queue of requests
    /// whose keys found no queue of their own.
    #[must_use]
    pub fn status(&self) -> Vec<(Option<String>, GateStatus)> {
        self.0.status()
    }

    /// Returns a copy of the current configuration.
    #[must_use]
    pub fn config(&self) -> QueueConfig {
        self.0.config()
    }

    /// Changes the configuration of all queues, and of those to come, as
    /// [`QueueHandle::reconfigure`](crate::QueueHandle::reconfigure) does.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is invalid, or if `concurrency` would change between a number and
    /// `"inner"`. The old configuration then stays in force.
    pub fn reconfigure(&self, config: QueueConfig) -> Result<(), InvalidQueueConfig> {
        self.0.reconfigure(&config)
    }

    /// Rejects all waiting requests and all later ones with `shutting_down`, whatever their keys. Running requests
    /// finish.
    pub fn close(&self) {
        self.0.close();
    }

    /// Resolves when the queues are closed and the last slot is free.
    ///
    /// # Cancel safety
    ///
    /// This future may be dropped, and the method called again, at any time.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

impl fmt::Debug for PerKeyHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerKeyHandle").finish_non_exhaustive()
    }
}
