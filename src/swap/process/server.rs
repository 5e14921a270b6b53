//! A process as a [`ModelServer`], and its way to readiness, after its start and out of its sleep.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Uri};
use tokio::time::{Instant, timeout};

use super::engine::Engine;
use super::progress::follow;
use super::{health, stop};
use crate::swap::{BoxFuture, LoadProgress, ModelServer, StartError, SwapModel};
use crate::upstream::CheckError;

/// A process that serves a model. Dropping it kills the process and all that it started.
pub(super) struct ProcessServer(pub(super) Arc<Engine>);

impl ModelServer for ProcessServer {
    fn url(&self) -> Uri {
        self.0.url.clone()
    }

    fn ended(&self) -> BoxFuture<String> {
        Box::pin(self.0.life.clone().ended())
    }

    fn stop(&self) -> BoxFuture<()> {
        let engine = self.0.clone();
        Box::pin(async move { stop::stop(&engine).await })
    }

    fn kill(&self) -> BoxFuture<()> {
        let engine = self.0.clone();
        Box::pin(async move { stop::kill(&engine).await })
    }

    fn on_reconfigure(&self, model: &Arc<SwapModel>) {
        self.0.client.set_proxy(model.proxy.clone());
    }

    fn sleep(&self) -> Option<BoxFuture<Result<(), String>>> {
        let model = &self.0.launch.model;
        let path = model.sleep_path.clone()?;
        model.wake_path.as_ref()?; // without it, the process would sleep for ever
        let engine = self.0.clone();
        Some(Box::pin(async move { sleep(&engine, &path).await }))
    }

    fn wake(&self, progress: LoadProgress) -> BoxFuture<Result<(), StartError>> {
        let engine = self.0.clone();
        Box::pin(async move {
            let Some(path) = &engine.launch.model.wake_path else {
                return Ok(());
            };
            let woken = wake(&engine, path, &progress).await;
            woken.map_err(|reason| engine.error(reason))
        })
    }

    fn check(&self) -> BoxFuture<bool> {
        let engine = self.0.clone();
        Box::pin(async move { health::check(&engine).await })
    }

    fn on_activity(&self, busy: u32) {
        self.0.activity.record(busy);
    }
}

impl Drop for ProcessServer {
    fn drop(&mut self) {
        self.0.group.kill();
    }
}

/// Leaves out the environment, which may have secrets.
impl fmt::Debug for ProcessServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessServer")
            .field("name", &self.0.launch.name)
            .field("url", &self.0.url)
            .finish_non_exhaustive()
    }
}

/// Resolves when the process can serve requests. Fails if the process ends before, or takes longer than `limit`.
pub(super) async fn until_ready(
    engine: &Engine,
    limit: Duration,
    progress: &LoadProgress,
) -> Result<(), String> {
    let mut last_error = None;
    let followed = async {
        match &engine.launch.model.progress_path {
            Some(path) => follow(&engine.client, path, progress).await,
            None => std::future::pending().await,
        }
    };
    let healthy = async {
        if let Some(path) = &engine.launch.model.health_path {
            engine.client.until_healthy(path, &mut last_error).await;
        }
    };
    tokio::select! {
        biased; // an end explains a missing answer
        reason = engine.life.clone().ended() => Err(format!("{reason}, before it was ready")),
        () = followed => Ok(()), // never
        result = timeout(limit, healthy) => result.map_err(|_| late(limit, last_error)),
    }
}

fn late(limit: Duration, last_error: Option<CheckError>) -> String {
    let late = format!("it was not ready within {} s", limit.as_secs_f64());
    match last_error {
        Some(error) => format!("{late}; its last health check: {error}"),
        None => late,
    }
}

/// Puts the process to sleep, so that its memory is free.
async fn sleep(engine: &Engine, path: &str) -> Result<(), String> {
    engine.set_asleep(true); // before the call, because the process may not answer checks from then on
    let slept = post(engine, path, engine.launch.timeout).await;
    engine.set_asleep(slept.is_ok());
    slept
}

/// Wakes the process, and waits until it can serve requests. If it does not wake, or this is dropped, the process has
/// failed.
async fn wake(engine: &Engine, path: &str, progress: &LoadProgress) -> Result<(), String> {
    let unready = engine.failed.clone().drop_guard();
    let (limit, began) = (engine.launch.timeout, Instant::now());
    post(engine, path, limit).await?;
    let left = limit.saturating_sub(began.elapsed());
    until_ready(engine, left, progress).await?;
    engine.set_asleep(false);
    unready.disarm();
    Ok(())
}

async fn post(engine: &Engine, path: &str, limit: Duration) -> Result<(), String> {
    let answer = engine.client.ask(Method::POST, path, limit).await;
    answer.map_err(|error| format!("its call `{path}` failed: {error}"))
}
