//! Looking at a queue, and changing it, while it runs.

use std::sync::Arc;

use super::{Concurrency, InvalidQueueConfig, QueueConfig};
use crate::admit::SlotPool;
use crate::gate::GateStatus;
use crate::service::LayerState;

/// Reports on a queue and changes it while requests wait. Made by
/// [`QueueLayer::handle`](super::QueueLayer::handle); clones are the same handle.
#[derive(Debug, Clone)]
pub struct QueueHandle(pub(super) Arc<LayerState<SlotPool>>);

impl QueueHandle {
    /// How many wait and run, what became of the others, and how long the next would wait.
    #[must_use]
    pub fn status(&self) -> GateStatus {
        self.0.gate.status()
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> QueueConfig {
        self.0.settings().config.clone()
    }

    /// Changes everything that can be changed while requests wait. Everyone moves over in order; those who
    /// no longer fit are rejected, the latest of the lowest level first.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, or goes from a number to `inner` concurrency or back. Nothing has
    /// changed then.
    pub fn reconfigure(&self, config: QueueConfig) -> Result<(), InvalidQueueConfig> {
        let gate = &self.0.gate;
        self.0.reconfigure(config, |old, new| {
            match (old.concurrency, new.concurrency) {
                (Concurrency::Limit(_), Concurrency::Limit(limit)) => {
                    gate.set_limit(limit);
                    Ok(())
                }
                (Concurrency::Inner, Concurrency::Inner) => Ok(()),
                _ => Err(InvalidQueueConfig::ConcurrencyIsFixed),
            }
        })
    }

    /// Answers everyone who waits and everyone who comes with `shutting_down`. Running requests finish.
    pub fn close(&self) {
        self.0.gate.close();
    }

    /// Resolves when the queue is closed and the last running request has finished, its body included.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped and called again at any time.
    pub async fn closed(&self) {
        self.0.gate.closed().await;
    }
}
