//! The tasks that start, check and stop models. Each reports its end to the driver.

use std::sync::Arc;
use std::time::Instant;

use http::Uri;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::swap::scheduler::Generation;
use crate::swap::swapper::InstanceId;
use crate::swap::{Cleanup, Launch, Launcher, ModelServer, StartError};

/// The report of a task to the driver.
#[derive(Debug)]
pub(super) enum Report {
    /// The target of a swap runs, or its start failed.
    SwapDone {
        generation: Generation,
        result: Result<Started, StartError>,
    },
    /// An instance that had to stop, alone or for a swap, runs no more.
    Stopped {
        generation: Generation,
        ended: Ended,
    },
    /// A server ended by itself.
    Exited {
        id: InstanceId,
        start: u64,
        reason: String,
    },
    /// Nothing is left of a server that ended by itself.
    Gone { id: InstanceId, start: u64 },
    /// An instance that was suspect until then serves requests.
    Serves { id: InstanceId, until: Instant },
    /// Nothing is left of a server that slept.
    SleepEnded,
}

/// A server that can serve requests.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) server: Arc<dyn ModelServer>,
    pub(super) url: Uri,
}

/// An instance that was stopped.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) id: InstanceId,
    /// The server, if it sleeps instead.
    pub(super) asleep: Option<Arc<dyn ModelServer>>,
}

/// The stop of an instance.
#[derive(Debug)]
pub(super) struct StopTask {
    pub(super) id: InstanceId,
    pub(super) server: Option<Arc<dyn ModelServer>>,
    /// Cancelled to end the server at once, even while it is being stopped.
    pub(super) killed: CancellationToken,
    /// `true` if the server may sleep instead.
    pub(super) may_sleep: bool,
}

impl StopTask {
    pub(super) async fn run(self) -> Ended {
        let id = self.id;
        // In a task of its own, because a launcher may panic. The server is dropped then.
        let asleep = tokio::spawn(self.end()).await.unwrap_or_default();
        Ended { id, asleep }
    }

    /// Stops the server. Returns it if it sleeps instead.
    async fn end(self) -> Option<Arc<dyn ModelServer>> {
        end(&self.server?, &self.killed, self.may_sleep).await
    }
}

/// Stops a server, or ends it at once when it is killed. Returns it if it sleeps instead.
async fn end(
    server: &Arc<dyn ModelServer>,
    killed: &CancellationToken,
    may_sleep: bool,
) -> Option<Arc<dyn ModelServer>> {
    tokio::select! {
        biased;
        () = killed.cancelled() => {}
        asleep = stop(server, may_sleep) => return asleep,
    }
    server.kill().await;
    None
}

async fn stop(server: &Arc<dyn ModelServer>, may_sleep: bool) -> Option<Arc<dyn ModelServer>> {
    if let Some(sleep) = server.sleep().filter(|_| may_sleep) {
        match sleep.await {
            Ok(()) => return Some(Arc::clone(server)),
            Err(error) => tracing::warn!(?server, error, "model could not be put to sleep"),
        }
    }
    server.stop().await;
    None
}

/// Returns a token that is cancelled from the beginning.
pub(super) fn cancelled() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

/// A swap: stops instances side by side, and then starts or wakes another one.
pub(super) struct SwapTask {
    pub(super) generation: Generation,
    pub(super) evict: Vec<StopTask>,
    /// The server to wake.
    pub(super) asleep: Option<Arc<dyn ModelServer>>,
    /// Cancelled to end the sleeping server at once, should its start be given up.
    pub(super) killed: CancellationToken,
    /// The end of a server that slept before and may not wake.
    pub(super) sleep_ends: Option<JoinHandle<()>>,
    pub(super) launch: Launch,
    pub(super) launcher: Arc<dyn Launcher>,
    /// Cancelled to give up the start.
    pub(super) abort: CancellationToken,
}

impl SwapTask {
    /// Runs the swap. If `reports` has no receiver, the driver is gone, and the new server is dropped.
    pub(super) async fn run(self, reports: UnboundedSender<Report>) {
        let generation = self.generation;
        let tasks = self.evict.into_iter().map(|stop| {
            let reports = reports.clone();
            tokio::spawn(async move {
                let ended = stop.run().await;
                _ = reports.send(Report::Stopped { generation, ended });
            })
        });
        for task in tasks.collect::<Vec<_>>().into_iter().chain(self.sleep_ends) {
            _ = task.await;
        }
        let unfinished = UnfinishedStart {
            asleep: self.asleep.clone(),
            killed: self.killed,
            cleanup: self.launch.cleanup.clone(),
        };
        let start = start(self.asleep, self.launch, self.launcher);
        // In a task of its own, because a launcher may panic.
        let mut start = tokio::spawn(start);
        let result = tokio::select! {
            result = &mut start => result,
            () = self.abort.cancelled() => {
                start.abort();
                start.await
            }
        };
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                unfinished.end().await;
                let reason = match error.is_panic() {
                    true => "its launcher panicked",
                    false => "the start was given up",
                };
                Err(StartError::new(reason))
            }
        };
        _ = reports.send(Report::SwapDone { generation, result });
    }
}

/// The remains of a start that was given up or panicked.
struct UnfinishedStart {
    /// The server that was to wake.
    asleep: Option<Arc<dyn ModelServer>>,
    killed: CancellationToken,
    /// The end of the new server, which was dropped with its start.
    cleanup: Cleanup,
}

impl UnfinishedStart {
    /// Ends the remains. Resolves when their memory is free.
    async fn end(self) {
        // In a task of its own, because they may panic, too.
        let ended = tokio::spawn(async move {
            if let Some(asleep) = self.asleep {
                end(&asleep, &self.killed, false).await;
            }
            self.cleanup.wait().await;
        });
        _ = ended.await;
    }
}

/// Wakes the sleeping server, or starts a new one if there is none or it does not wake.
async fn start(
    asleep: Option<Arc<dyn ModelServer>>,
    launch: Launch,
    launcher: Arc<dyn Launcher>,
) -> Result<Started, StartError> {
    let started = |server: Arc<dyn ModelServer>| {
        let url = server.url();
        Started { server, url }
    };
    if let Some(server) = asleep {
        match server.wake(launch.progress.clone()).await {
            Ok(()) => return Ok(started(server)),
            Err(error) => {
                let model = &*launch.name;
                tracing::warn!(model, %error, "model did not wake up and is started anew");
                server.kill().await;
            }
        }
    }
    let settle = launch.model.settle;
    // The launcher may set a cleanup that knows better.
    launch.cleanup.set(async move { sleep(settle).await });
    launcher.start(launch).await.map(started)
}

/// Checks an instance that is suspect until then, because a request got no answer. Reports if it serves.
pub(super) async fn check(
    id: InstanceId,
    until: Instant,
    server: Arc<dyn ModelServer>,
    reports: UnboundedSender<Report>,
) {
    // In a task of its own, because a launcher may panic.
    let checked = tokio::spawn(async move { server.check().await });
    if checked.await.unwrap_or(false) {
        _ = reports.send(Report::Serves { id, until });
    }
}

/// Reports when a server ends by itself.
pub(super) async fn watch(
    id: InstanceId,
    start: u64,
    server: Arc<dyn ModelServer>,
    reports: UnboundedSender<Report>,
) {
    // In a task of its own, because a launcher may panic.
    let ended = tokio::spawn(async move {
        let ended = server.ended();
        drop(server); // the watch must not keep the server alive
        ended.await
    });
    let ended = ended.await;
    let reason = ended.unwrap_or_else(|_| "its launcher panicked".to_owned());
    _ = reports.send(Report::Exited { id, start, reason });
}
