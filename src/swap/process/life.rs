//! How far the life of a process has come, for all that wait for its end.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

#[derive(Debug, Clone)]
pub(super) enum Life {
    Runs,
    /// The process has ended or is taken for ended, for this reason, and the rest of its group is being ended.
    Failed(String),
    /// All of its group has ended, for this reason, at this time.
    Gone(String, Instant),
}

/// Tells of the life of a process. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct LifeReader(watch::Receiver<Life>);

/// A life that begins.
pub(super) fn life() -> (watch::Sender<Life>, LifeReader) {
    let (sender, receiver) = watch::channel(Life::Runs);
    (sender, LifeReader(receiver))
}

impl LifeReader {
    /// Resolves with the reason when it has ended, or is taken for ended.
    pub(super) async fn ended(mut self) -> String {
        match self
            .0
            .wait_for(|life| !matches!(life, Life::Runs))
            .await
            .as_deref()
        {
            Ok(Life::Failed(reason) | Life::Gone(reason, _)) => reason.clone(),
            // Its supervisor was dropped with the runtime, and has killed it.
            Ok(Life::Runs) | Err(_) => "its runtime was shut down".to_owned(),
        }
    }

    /// Resolves when it has ended.
    pub(super) async fn gone(mut self) {
        // An error: its supervisor was dropped, and has killed it.
        _ = self.0.wait_for(|life| matches!(life, Life::Gone(..))).await;
    }

    /// Resolves when it has been gone for so long.
    pub(super) async fn gone_for(self, settle: Duration) {
        self.clone().gone().await;
        let gone_at = match &*self.0.borrow() {
            Life::Gone(_, at) => Some(*at),
            Life::Runs | Life::Failed(_) => None,
        };
        if let Some(at) = gone_at {
            sleep(settle.saturating_sub(at.elapsed())).await;
        }
    }
}
