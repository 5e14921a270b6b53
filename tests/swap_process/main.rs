//! Models that are real processes: a small server that this binary runs as, or a shell.

#![cfg(target_os = "linux")] // reads /proc

mod chaos;
mod crash;
mod end;
mod engines;
mod failed;
mod layer;
mod leaks;
#[path = "../support/log.rs"]
mod log;
mod reaped;
mod server;
mod sleep;
mod start;
mod stop;
mod system;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tower_triage::swap::{
    Launch, Launcher, LoadProgress, ModelServer, ProcessLauncher, StartError, SwapModel,
};

use log::Log;
use server::{asks, get, server};
use system::{Group, Mark, children, is_free, kill, open_files, until};

/// Long enough for what has to happen.
const SOON: Duration = Duration::from_secs(180);
const HOUR: Duration = Duration::from_secs(3_600);

/// A model that a shell script serves, ready as soon as it runs.
fn script(script: &str) -> SwapModel {
    let mut model = SwapModel::new("m", format!("/bin/sh -c '{script}'"));
    model.health_path = None;
    model
}

/// A start of `model` that may take as long as it likes.
fn launch(model: SwapModel) -> Launch {
    Launch::new(Arc::new(model), HOUR)
}

async fn start(launch: Launch) -> Result<Arc<dyn ModelServer>, StartError> {
    soon(ProcessLauncher::default().start(launch)).await
}

async fn started(model: SwapModel) -> Arc<dyn ModelServer> {
    start(launch(model)).await.unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("it takes too long")
}
