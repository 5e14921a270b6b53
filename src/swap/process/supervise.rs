//! The supervisor of a process: a task that notices its end or its failure, ends the rest of its group, and publishes its
//! life.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::engine::Engine;
use super::group::ChildEnds;
use super::life::ProcessLife;
use super::records::GroupRecord;
use super::stop::stop_failed;

/// The time for which the supervisor waits for the end of a killed group. Large processes take a while to free their
/// memory, and a process that waits for a device may never end.
const GROUP_ENDS: Duration = Duration::from_secs(10);

pub(super) async fn supervise(
    mut supervised: Supervised,
    mut child_ends: ChildEnds,
    output: Receiver,
    life: watch::Sender<ProcessLife>,
) {
    let engine = Arc::clone(&supervised.engine);
    let group_gone = CancellationToken::new();
    let reading = tokio::spawn(read(engine.clone(), output, group_gone.clone()));
    let failure = tokio::select! {
        biased;
        () = engine.failed.cancelled() => Some("it did not become ready".to_owned()),
        // Before the checks, because an end explains a check that failed.
        () = engine.group.ended(&mut child_ends) => None,
        reason = failure(&engine) => Some(reason),
    };
    if let Some(reason) = failure.clone() {
        engine.failed.cancel(); // before the failure is known, because `kill` has to leave the process to this task
        life.send_replace(ProcessLife::Failed(reason));
        stop_failed(&engine, &mut child_ends).await;
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

async fn read(engine: Arc<Engine>, output: Receiver, group_gone: CancellationToken) {
    engine.output.read(output, group_gone).await;
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
    let client = &engine.client;
    let error = client
        .until_unhealthy(path, interval, activity, asleep)
        .await;
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
