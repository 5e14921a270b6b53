//! The life of a process, and its supervisor: a task that notices the end or the failure of the process, ends the rest of its
//! group, and publishes its life.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::engine::Engine;
use super::group::ChildEnds;
use super::records::GroupRecord;
use super::stop::stop_failed;

/// The time for which the supervisor waits for the end of a killed group. Large processes take a while to free their
/// memory, and a process that waits for a device may never end.
const GROUP_ENDS: Duration = Duration::from_secs(10);

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
pub(super) struct LifeReader(pub(super) watch::Receiver<ProcessLife>);

impl LifeReader {
    /// Resolves with the reason when the process has ended, or counts as ended.
    pub(super) async fn ended(mut self) -> String {
        let ended = |life: &ProcessLife| !matches!(life, ProcessLife::Runs);
        match self.0.wait_for(ended).await.as_deref() {
            Ok(ProcessLife::Failed(reason) | ProcessLife::Gone(reason, _)) => reason.clone(),
            // The supervisor was dropped with the runtime, and has killed the process.
            Ok(ProcessLife::Runs) | Err(_) => "its runtime was shut down".to_owned(),
        }
    }

    /// Resolves when `settle` has passed since the end of the whole group.
    pub(super) async fn gone_for(mut self, settle: Duration) {
        let is_gone = |life: &ProcessLife| matches!(life, ProcessLife::Gone(..));
        let left = match self.0.wait_for(is_gone).await.as_deref() {
            Ok(ProcessLife::Gone(_, at)) => settle.saturating_sub(at.elapsed()),
            // The supervisor was dropped, and has killed the process.
            _ => Duration::ZERO,
        };
        sleep(left).await;
    }
}

pub(super) async fn supervise(
    mut supervised: Supervised,
    mut child_ends: ChildEnds,
    output: Receiver,
    life: watch::Sender<ProcessLife>,
) {
    let engine = Arc::clone(&supervised.engine);
    let group_gone = CancellationToken::new();
    let (reader, until) = (Arc::clone(&engine), group_gone.clone());
    let reading = tokio::spawn(async move { reader.output.read(output, until).await });
    let mut was_given_up = false;
    let failure = tokio::select! {
        biased;
        () = engine.failed.cancelled() => {
            was_given_up = true;
            Some("it did not become ready".to_owned())
        }
        // Before the checks, because an end explains a check that failed.
        () = engine.group.ended(&mut child_ends) => None,
        reason = failure(&engine) => Some(reason),
    };
    if let Some(reason) = failure.clone() {
        engine.failed.cancel(); // before the failure is known, because `kill` has to leave the process to this task
        life.send_replace(ProcessLife::Failed(reason));
        stop_failed(&engine, &mut child_ends, was_given_up).await;
        engine.group.kill();
        engine.group.ended(&mut child_ends).await;
    }
    let end = match engine.group.reap() {
        Ok(status) => format!("its process ended with {status}"),
        Err(error) => format!("its process ended: {error}"),
    };
    let reason = failure.unwrap_or(end);
    // Requests need not wait until the rest of the group has ended.
    life.send_replace(ProcessLife::Failed(reason.clone()));
    _ = timeout(GROUP_ENDS, engine.group.gone()).await;
    group_gone.cancel();
    _ = reading.await; // ends soon, even if a process that has left the group holds the pipe
    drop(supervised.record.take()); // before the end is known, because the program may end then
    life.send_replace(ProcessLife::Gone(reason, Instant::now()));
}

/// A guard that kills the group if the supervisor is dropped with the runtime, even before its first poll.
pub(super) struct Supervised {
    pub(super) engine: Arc<Engine>,
    /// The record of the group, until that has ended.
    pub(super) record: Option<GroupRecord>,
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.engine.group.kill();
    }
}

/// Resolves with the reason when a process that was ready counts as ended.
async fn failure(engine: &Engine) -> String {
    engine.ready.notified().await;
    tokio::select! {
        reason = unhealthy(engine) => reason,
        reason = hangs(engine) => reason,
        () = engine.refuses.notified() => "it refuses connections".to_owned(),
        // While the process stops, it need not answer.
        () = engine.stops.notified() => pending().await,
    }
}

async fn unhealthy(engine: &Engine) -> String {
    let model = &engine.launch.model;
    let (Some(path), Some(interval)) = (&model.health_path, model.health_interval) else {
        return pending().await;
    };
    let (activity, asleep) = (|| engine.activity.moved(), || engine.is_asleep());
    let failed = (engine.client).until_unhealthy(path, interval, activity, asleep);
    let error = failed.await;
    format!("it failed its health checks: {error}")
}

async fn hangs(engine: &Engine) -> String {
    let Some(limit) = engine.launch.model.hang_timeout else {
        return pending().await;
    };
    engine.activity.hangs(limit).await;
    format!(
        "it had requests, and sent nothing for {} s",
        limit.as_secs_f64()
    )
}
