//! The life of a process, for all tasks that wait for its end.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// The stages of a process's life, of which it passes each once.
#[derive(Debug, Clone)]
pub(super) enum ProcessLife {
    Runs,
    /// The process has ended, or counts as ended, for this reason. The rest of its group is being ended.
    Failed(String),
    /// The whole group has ended, for this reason, at this time.
    Gone(String, Instant),
}

/// A reader of the life of a process, which all clones share.
#[derive(Debug, Clone)]
pub(super) struct LifeReader(watch::Receiver<ProcessLife>);

/// Returns the two ends of a new life.
pub(super) fn life() -> (watch::Sender<ProcessLife>, LifeReader) {
    let (sender, receiver) = watch::channel(ProcessLife::Runs);
    (sender, LifeReader(receiver))
}

impl LifeReader {
    /// Resolves with the reason when the process has ended, or counts as ended.
    pub(super) async fn ended(mut self) -> String {
        match self
            .0
            .wait_for(|life| !matches!(life, ProcessLife::Runs))
            .await
            .as_deref()
        {
            Ok(ProcessLife::Failed(reason) | ProcessLife::Gone(reason, _)) => reason.clone(),
            // The supervisor was dropped with the runtime, and has killed the process.
            Ok(ProcessLife::Runs) | Err(_) => "its runtime was shut down".to_owned(),
        }
    }

    /// Resolves when the whole group of the process has ended.
    pub(super) async fn gone(mut self) {
        // Fails only if the supervisor was dropped, and has killed the process.
        _ = self
            .0
            .wait_for(|life| matches!(life, ProcessLife::Gone(..)))
            .await;
    }

    /// Resolves when `settle` has passed since the end of the whole group.
    pub(super) async fn gone_for(self, settle: Duration) {
        self.clone().gone().await;
        let gone_at = match &*self.0.borrow() {
            ProcessLife::Gone(_, at) => Some(*at),
            ProcessLife::Runs | ProcessLife::Failed(_) => None,
        };
        if let Some(at) = gone_at {
            sleep(settle.saturating_sub(at.elapsed())).await;
        }
    }
}
