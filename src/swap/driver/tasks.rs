//! The tasks that start, check and stop models, and that report their end to the driver.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::endpoints::on_demand::Suspicion;
use crate::swap::swapper::InstanceId;
use crate::swap::{Launch, Launcher, ModelServer, StartError};

/// The report of a task to the driver.
#[derive(Debug)]
pub(super) enum Report {
    /// The target of a swap runs, or its start failed.
    SwapDone {
        id: InstanceId,
        result: Result<Started, StartError>,
    },
    /// An instance that had to stop, alone or for a swap, has stopped.
    Stopped {
        id: InstanceId,
        /// The server, if it sleeps instead.
        asleep: Option<Arc<dyn ModelServer>>,
    },
    /// A server ended by itself, and its memory may not be free yet.
    Exited {
        id: InstanceId,
        start: u64,
        reason: String,
    },
    /// The rest of a server that ended by itself has ended, and its memory is free.
    Gone { id: InstanceId, start: u64 },
    /// A server that slept has ended.
    SleepEnded,
}

/// A server that can serve requests, and its URL.
pub(super) type Started = (Arc<dyn ModelServer>, Uri);

/// A task that stops the server of an instance.
#[derive(Debug)]
pub(super) struct StopTask {
    pub(super) id: InstanceId,
    pub(super) server: Option<Arc<dyn ModelServer>>,
    /// Cancelled to end the server at once, even while it is being stopped.
    pub(super) killed: CancellationToken,
    /// `true` if the server may sleep instead.
    pub(super) may_sleep: bool,
    /// `true` if the kept connections to the server are being closed. It listens at the same port when it is started again,
    /// where a connection that it closes itself would be in its way.
    pub(super) closes_first: bool,
}

/// The time that the threads which serve requests have to close kept connections.
const CLOSES_WITHIN: Duration = Duration::from_millis(20);

impl StopTask {
    /// Stops the server, and returns it if it sleeps instead.
    pub(super) async fn run(self) -> Option<Arc<dyn ModelServer>> {
        let stop = async move {
            let server = self.server?;
            if self.closes_first {
                sleep(CLOSES_WITHIN).await;
            }
            end(&server, &self.killed, self.may_sleep).await
        };
        // In a task of its own, because a launcher may panic. The server is dropped then.
        tokio::spawn(stop).await.unwrap_or_default()
    }

    /// Stops the server, and reports its end.
    pub(super) async fn report(self, reports: UnboundedSender<Report>) {
        let id = self.id;
        let asleep = self.run().await;
        _ = reports.send(Report::Stopped { id, asleep });
    }
}

/// Stops a server, or ends it at once when it is killed, and returns it if it sleeps instead.
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

/// A task that stops instances side by side, and then starts or wakes another one.
pub(super) struct SwapTask {
    pub(super) target: InstanceId,
    pub(super) evict: Vec<StopTask>,
    /// The server to wake, if the target sleeps.
    pub(super) asleep: Option<Arc<dyn ModelServer>>,
    /// Cancelled to end the sleeping server at once, should its start be given up.
    pub(super) killed: CancellationToken,
    /// The end of a server that slept before and may not wake.
    pub(super) sleep_ends: Option<JoinHandle<()>>,
    pub(super) launch: Launch,
    pub(super) launcher: Arc<dyn Launcher>,
    /// Cancelled to give up the start before it has ended.
    pub(super) abort: CancellationToken,
}

impl SwapTask {
    /// Runs the swap. If the driver is gone, `reports` fails, and the new server is dropped.
    pub(super) async fn run(self, reports: UnboundedSender<Report>) {
        let id = self.target;
        let stops = self.evict.into_iter();
        let tasks = stops.map(|stop| tokio::spawn(stop.report(reports.clone())));
        for task in tasks.collect::<Vec<_>>().into_iter().chain(self.sleep_ends) {
            _ = task.await;
        }
        let (asleep, cleanup) = (self.asleep.clone(), self.launch.cleanup.clone());
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
                // The remains: the server that was to wake, and the new one, which was dropped with its start.
                let remains = async move {
                    if let Some(asleep) = asleep {
                        end(&asleep, &self.killed, false).await;
                    }
                    cleanup.wait().await;
                };
                _ = tokio::spawn(remains).await; // they may panic, too
                let reason = match error.is_panic() {
                    true => "its launcher panicked",
                    false => "the start was given up",
                };
                Err(StartError::new(reason))
            }
        };
        _ = reports.send(Report::SwapDone { id, result });
    }
}

/// Wakes the sleeping server, or starts a new one if there is none or it does not wake.
async fn start(
    asleep: Option<Arc<dyn ModelServer>>,
    launch: Launch,
    launcher: Arc<dyn Launcher>,
) -> Result<Started, StartError> {
    let started = |server: Arc<dyn ModelServer>| (Arc::clone(&server), server.url());
    if let Some(server) = asleep {
        match server.wake(launch.progress.clone()).await {
            Ok(()) => return Ok(started(server)),
            Err(error) => {
                let model = &*launch.name;
                tracing::warn!(model, %error, "model did not wake up and is started anew");
                server.stop().await;
            }
        }
    }
    let settle = launch.model.settle;
    // The launcher may set a cleanup that knows better.
    launch.cleanup.set(async move { sleep(settle).await });
    launcher.start(launch).await.map(started)
}

/// The time for which a suspect instance is closed, unless a check finds sooner that it serves, or its end is reported.
const SUSPICION: Duration = Duration::from_millis(100);

/// Holds a suspicion until a check finds that the server serves, or until its end would have been reported.
pub(super) async fn check(suspicion: Suspicion, server: Option<Arc<dyn ModelServer>>) {
    let serves = async {
        let Some(server) = server else {
            return pending().await;
        };
        // In a task of its own, because a launcher may panic.
        let checked = tokio::spawn(async move { server.check().await });
        if !checked.await.unwrap_or(false) {
            pending::<()>().await;
        }
    };
    _ = timeout(SUSPICION, serves).await;
    drop(suspicion);
}
