//! The handle of a queue, which reports on it, changes it and closes it while it runs.

use std::sync::Arc;

use super::{Concurrency, InvalidQueueConfig, QueueConfig};
use crate::admit::SlotPool;
use crate::gate::{Gate, GateStatus};
use crate::service::LayerState;

/// A handle that reports on a queue and changes it while requests wait. Created by
/// [`QueueLayer::handle`](super::QueueLayer::handle). Clones are handles to the same queue.
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
    /// Returns the numbers of waiting and running requests, the totals so far, and the estimated wait of the next
    /// request.
    #[must_use]
    pub fn status(&self) -> GateStatus {
        self.0.gate.status()
    }

    /// Returns the gate that requests pass, in which a slot can be acquired
    /// [ahead of a request](crate::gate::PermitExtension).
    ///
    /// Change its configuration with [`reconfigure`](Self::reconfigure). Returns `None` if slots come from the inner
    /// service's readiness ([`Concurrency::Inner`]), because only requests of the layer can ask for such slots.
    #[must_use]
    pub fn gate(&self) -> Option<&Gate<SlotPool>> {
        let gate = &self.0.gate;
        (!gate.is_from_inner()).then_some(gate)
    }

    /// Returns a copy of the current configuration.
    #[must_use]
    pub fn config(&self) -> QueueConfig {
        self.0.settings().config.clone()
    }

    /// Changes the configuration while requests wait.
    ///
    /// Waiting requests stay in the room and keep their order. If the new room is too small, the latest of the lowest
    /// level are rejected first. A limit that adapts keeps its measurements. A fixed limit that begins to adapt starts
    /// from its current number.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is invalid, or if `concurrency` would change between a number and
    /// `"inner"`. The old configuration then stays in force.
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

    /// Resolves when the queue is closed and the last slot is free. With [`Hold::Body`](super::Hold::Body), that is the
    /// end of the last response's body.
    ///
    /// # Cancel safety
    ///
    /// This future may be dropped, and the method called again, at any time.
    pub async fn closed(&self) {
        self.0.gate.closed().await;
    }
}
