//! The handle of a queue: reports on it, changes it and closes it while it runs.

use std::sync::Arc;

use super::{Concurrency, InvalidQueueConfig, QueueConfig};
use crate::admit::SlotPool;
use crate::gate::{Gate, GateStatus};
use crate::service::LayerState;

/// Reports on a queue and changes it while requests wait. Made by
/// [`QueueLayer::handle`](super::QueueLayer::handle); clones are handles to the same queue.
///
/// ```
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_triage::queue::InvalidQueueConfig> {
/// let queue = QueueLayer::new(QueueConfig::new(8));
/// let handle = queue.handle();
/// assert_eq!(handle.status().limit, 8);
///
/// handle.reconfigure(handle.config().max_size(20))?;
/// assert_eq!(handle.status().max_size, 20);
///
/// handle.close();
/// handle.closed().await; // at once: no request runs
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct QueueHandle(pub(super) Arc<LayerState<SlotPool>>);

impl QueueHandle {
    /// How many requests wait and run, what happened to the others, and for how long the next one would wait.
    #[must_use]
    pub fn status(&self) -> GateStatus {
        self.0.gate.status()
    }

    /// The gate that requests pass, to acquire a slot [ahead of a request](crate::gate::PermitExtension). Change its
    /// configuration with [`reconfigure`](Self::reconfigure). `None` where slots come from the inner service's readiness
    /// ([`Concurrency::Inner`]), for which only requests of the layer can ask.
    #[must_use]
    pub fn gate(&self) -> Option<&Gate<SlotPool>> {
        let gate = &self.0.gate;
        (!gate.is_from_inner()).then_some(gate)
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> QueueConfig {
        self.0.settings().config.clone()
    }

    /// Changes the configuration while requests wait. All of them are kept, in order; those that no longer fit are
    /// rejected, the latest of the lowest level first. A limit that adapts keeps what it has measured; a fixed one that
    /// begins to adapt goes on from what it is.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, or if `concurrency` would change between a number and `"inner"`. Nothing has
    /// changed then.
    pub fn reconfigure(&self, config: QueueConfig) -> Result<(), InvalidQueueConfig> {
        self.0.reconfigure(config, |old, new| {
            match (old.concurrency, new.concurrency) {
                (Concurrency::Inner, Concurrency::Inner) => Ok(()),
                (Concurrency::Inner, _) | (_, Concurrency::Inner) => {
                    Err(InvalidQueueConfig::ConcurrencyIsFixed)
                }
                (_, Concurrency::Limit(limit)) => {
                    self.0.fix_limit(limit);
                    Ok(())
                }
                (_, Concurrency::Adaptive(limit)) => {
                    self.0.adapt_limit(&limit)?;
                    Ok(())
                }
            }
        })
    }

    /// Rejects all waiting requests and all later ones with `shutting_down`. Running requests finish.
    pub fn close(&self) {
        self.0.gate.close();
    }

    /// Resolves when the queue is closed and the last slot is free: with [`Hold::Body`](super::Hold::Body), when the body
    /// of the last response has ended.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped and called again at any time.
    pub async fn closed(&self) {
        self.0.gate.closed().await;
    }
}
