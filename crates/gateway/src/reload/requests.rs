//! Reloads that operators ask for, and the outcome of the last one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

/// The result of a reload: its changes, one line for each kind, and warnings about what it could not change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reloaded {
    pub(crate) changes: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

/// The reason why a reload has changed nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ReloadError {
    /// The gateway was started without a file.
    NoFile,
    /// The message names the file, and the line and the key where they are known.
    Invalid(String),
    ShuttingDown,
}

pub(crate) type Outcome = Result<Reloaded, ReloadError>;

/// Asks the reload task for reloads. Clones ask the same task.
#[derive(Clone)]
pub(crate) struct Reloads {
    requests: mpsc::Sender<oneshot::Sender<Outcome>>,
    last: Arc<Mutex<Option<LastReload>>>,
    has_file: bool,
}

/// The outcome of the last reload, by a signal or by a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LastReload {
    at_ms: u128,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The requests that the reload task answers.
pub(crate) struct ReloadRequests {
    requests: mpsc::Receiver<oneshot::Sender<Outcome>>,
    last: Arc<Mutex<Option<LastReload>>>,
}

/// Returns the two ends between operators and the reload task.
pub(crate) fn channel(has_file: bool) -> (Reloads, ReloadRequests) {
    let (sender, requests) = mpsc::channel(1);
    let last = Arc::new(Mutex::new(None));
    let reloads = Reloads {
        requests: sender,
        last: Arc::clone(&last),
        has_file,
    };
    (reloads, ReloadRequests { requests, last })
}

impl Reloads {
    /// Reads the configuration again, and returns what has changed.
    pub(crate) async fn reload(&self) -> Outcome {
        let (answer, outcome) = oneshot::channel();
        // Both fail once the gateway shuts down, because the task has ended.
        let asked = self.requests.send(answer).await;
        asked.map_err(|_| ReloadError::ShuttingDown)?;
        outcome.await.unwrap_or(Err(ReloadError::ShuttingDown))
    }

    /// Returns `true` if there is a file to read.
    pub(crate) fn has_file(&self) -> bool {
        self.has_file
    }

    /// Returns the outcome of the last reload. `None` before the first one.
    pub(crate) fn last(&self) -> Option<LastReload> {
        let last = self.last.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ReloadRequests {
    /// Waits for a request, and returns the sender of its answer.
    pub(super) async fn next(&mut self) -> oneshot::Sender<Outcome> {
        match self.requests.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    /// Keeps the outcome as that of the last reload.
    pub(super) fn record(&self, outcome: &Outcome) {
        let (changes, warnings, error) = match outcome {
            Ok(done) => (
                Some(done.changes.clone()),
                Some(done.warnings.clone()),
                None,
            ),
            Err(ReloadError::Invalid(message)) => (None, None, Some(message.clone())),
            Err(ReloadError::NoFile | ReloadError::ShuttingDown) => return,
        };
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        let last = LastReload {
            at_ms: at.unwrap_or_default().as_millis(),
            changes,
            warnings,
            error,
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reload_without_its_task_is_refused() {
        let (reloads, requests) = channel(true);
        let asked = tokio::spawn({
            let reloads = reloads.clone();
            async move { reloads.reload().await }
        });
        tokio::task::yield_now().await;
        drop(requests);
        assert_eq!(asked.await.unwrap(), Err(ReloadError::ShuttingDown));
        assert_eq!(reloads.reload().await, Err(ReloadError::ShuttingDown));
    }

    #[tokio::test]
    async fn the_last_outcome_is_kept() {
        let (reloads, mut requests) = channel(true);
        let asked = tokio::spawn({
            let reloads = reloads.clone();
            async move { reloads.reload().await }
        });
        let answer = requests.next().await;
        assert_eq!(reloads.last(), None);
        let outcome = Err(ReloadError::Invalid("gateway.toml:3: bad".to_owned()));
        requests.record(&outcome);
        answer.send(outcome.clone()).unwrap();
        assert_eq!(asked.await.unwrap(), outcome);
        let last = reloads.last().unwrap();
        assert_eq!(last.error.as_deref(), Some("gateway.toml:3: bad"));
        assert_eq!(last.changes, None);
    }
}
