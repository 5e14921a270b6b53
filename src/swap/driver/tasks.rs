//! The tasks that start and stop models. Each reports its end to the driver.

use std::sync::Arc;
use std::time::Instant;

use http::Uri;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::swap::scheduler::Generation;
use crate::swap::{Cleanup, Instance, Launch, Launcher, Progress, StartError};

/// What tasks and handles tell the driver.
#[derive(Debug)]
pub(super) enum Report {
    /// An instance that had to stop for another one does not run any more.
    Evicted {
        generation: Generation,
        ended: Ended,
    },
    /// The target of a swap runs, or does not.
    SwapDone {
        generation: Generation,
        result: Result<Started, StartError>,
    },
    /// An instance that had to stop does not run any more.
    Stopped {
        generation: Generation,
        ended: Ended,
    },
    /// Nothing is left of an instance that ended by itself.
    Gone { unit: usize, start: u64 },
    /// An instance that was doubted until then serves requests.
    Serves { unit: usize, until: Instant },
    /// Nothing is left of an instance that slept.
    SleepEnded,
    /// An instance ended by itself.
    Exited {
        unit: usize,
        start: u64,
        reason: String,
    },
}

/// An instance that can serve requests.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) instance: Arc<dyn Instance>,
    pub(super) url: Uri,
}

/// An instance that was stopped.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) unit: usize,
    /// If it only sleeps.
    pub(super) asleep: Option<Arc<dyn Instance>>,
}

/// An instance that has to stop.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) unit: usize,
    pub(super) instance: Option<Arc<dyn Instance>>,
    /// Cancelled to end it at once, even while it is being stopped.
    pub(super) killed: CancellationToken,
    /// Whether it may sleep instead.
    pub(super) may_sleep: bool,
}

impl Stop {
    pub(super) async fn run(self) -> Ended {
        let unit = self.unit;
        // In a task of its own: a launcher may panic. What it was to stop is dropped then.
        let asleep = tokio::spawn(self.end()).await.unwrap_or_default();
        Ended { unit, asleep }
    }

    /// Returns the instance if it only sleeps.
    async fn end(self) -> Option<Arc<dyn Instance>> {
        end(&self.instance?, &self.killed, self.may_sleep).await
    }
}

/// Stops an instance, or ends it at once when it is killed. Returns it if it only sleeps.
async fn end(
    instance: &Arc<dyn Instance>,
    killed: &CancellationToken,
    may_sleep: bool,
) -> Option<Arc<dyn Instance>> {
    tokio::select! {
        biased;
        () = killed.cancelled() => {}
        asleep = stop(instance, may_sleep) => return asleep,
    }
    instance.kill().await;
    None
}

async fn stop(instance: &Arc<dyn Instance>, may_sleep: bool) -> Option<Arc<dyn Instance>> {
    if let Some(sleep) = instance.sleep().filter(|_| may_sleep) {
        match sleep.await {
            Ok(()) => return Some(Arc::clone(instance)),
            Err(error) => tracing::warn!(?instance, error, "model could not be put to sleep"),
        }
    }
    instance.stop().await;
    None
}

/// What is cancelled from the beginning.
pub(super) fn at_once() -> CancellationToken {
    let killed = CancellationToken::new();
    killed.cancel();
    killed
}

/// Stops instances side by side, and then starts or wakes another one.
pub(super) struct Swap {
    pub(super) generation: Generation,
    pub(super) evict: Vec<Stop>,
    pub(super) asleep: Option<Arc<dyn Instance>>,
    /// Cancelled to end what sleeps at once, should its start be given up.
    pub(super) killed: CancellationToken,
    /// The end of what slept before and may not wake.
    pub(super) sleep_ends: Option<JoinHandle<()>>,
    pub(super) launch: Launch,
    pub(super) launcher: Arc<dyn Launcher>,
    /// Gives up the start.
    pub(super) abort: CancellationToken,
}

impl Swap {
    pub(super) async fn run(self, reports: UnboundedSender<Report>) {
        // Without a receiver the driver is gone, and what ran for it is dropped.
        let generation = self.generation;
        let tasks = self.evict.into_iter().map(|stop| {
            let reports = reports.clone();
            tokio::spawn(async move {
                let ended = stop.run().await;
                _ = reports.send(Report::Evicted { generation, ended });
            })
        });
        for task in tasks.collect::<Vec<_>>().into_iter().chain(self.sleep_ends) {
            _ = task.await;
        }
        let left = Left {
            asleep: self.asleep.clone(),
            killed: self.killed,
            cleanup: self.launch.cleanup.clone(),
        };
        let start = start(self.asleep, self.launch, self.launcher);
        // In a task of its own: a launcher may panic.
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
                left.end().await;
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

/// What is left of a start that did not come to its end.
struct Left {
    /// What was to be woken.
    asleep: Option<Arc<dyn Instance>>,
    killed: CancellationToken,
    /// Of what was started. That is ended as the start is dropped.
    cleanup: Cleanup,
}

impl Left {
    /// Ends it. Resolves when its memory is free.
    async fn end(self) {
        // In a task of its own: they may panic, too.
        let ended = tokio::spawn(async move {
            if let Some(asleep) = self.asleep {
                end(&asleep, &self.killed, false).await;
            }
            self.cleanup.wait().await;
        });
        _ = ended.await;
    }
}

async fn start(
    asleep: Option<Arc<dyn Instance>>,
    launch: Launch,
    launcher: Arc<dyn Launcher>,
) -> Result<Started, StartError> {
    let instance = start_or_wake(asleep, launch, launcher).await?;
    let url = instance.url();
    Ok(Started { instance, url })
}

async fn start_or_wake(
    asleep: Option<Arc<dyn Instance>>,
    launch: Launch,
    launcher: Arc<dyn Launcher>,
) -> Result<Arc<dyn Instance>, StartError> {
    if let Some(instance) = asleep {
        match instance.wake(Progress::clone(&launch.progress)).await {
            Ok(()) => return Ok(instance),
            Err(error) => {
                let model = &*launch.name;
                tracing::warn!(model, %error, "model did not wake up and is started anew");
                instance.kill().await;
            }
        }
    }
    let settle = launch.model.settle;
    // Unless the launcher knows better.
    launch.cleanup.set(async move { sleep(settle).await });
    launcher.start(launch).await
}

/// Checks an instance that is doubted `until` then, because a request got no answer. Reports if it serves.
pub(super) async fn check(
    unit: usize,
    until: Instant,
    instance: Arc<dyn Instance>,
    reports: UnboundedSender<Report>,
) {
    // In a task of its own: a launcher may panic.
    let checked = tokio::spawn(async move { instance.check().await });
    if checked.await.unwrap_or(false) {
        _ = reports.send(Report::Serves { unit, until });
    }
}

/// Reports when an instance ends by itself.
pub(super) async fn watch(
    unit: usize,
    start: u64,
    instance: Arc<dyn Instance>,
    reports: UnboundedSender<Report>,
) {
    // In a task of its own: a launcher may panic.
    let ended = tokio::spawn(async move {
        let ended = instance.ended();
        drop(instance); // or it would never be dropped
        ended.await
    });
    let ended = ended.await;
    let reason = ended.unwrap_or_else(|_| "its launcher panicked".to_owned());
    _ = reports.send(Report::Exited {
        unit,
        start,
        reason,
    });
}
