//! The way of a process to readiness, after its start and out of its sleep.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::engine::Engine;
use super::progress::follow;
use crate::swap::LoadProgress;
use crate::upstream::CheckError;

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
pub(super) async fn sleep(engine: &Engine, path: &str) -> Result<(), String> {
    engine.set_asleep(true); // before the call, because the process may not answer checks from then on
    let slept = post(engine, path, engine.launch.timeout).await;
    engine.set_asleep(slept.is_ok());
    slept
}

/// Wakes the process, and waits until it can serve requests. If it does not wake, or this is dropped, the process has
/// failed.
pub(super) async fn wake(
    engine: &Engine,
    path: &str,
    progress: &LoadProgress,
) -> Result<(), String> {
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
    let answer = match timeout(limit, engine.client.post(path)).await {
        Ok(answer) => answer,
        Err(_) => Err(CheckError::Late(limit)),
    };
    answer.map_err(|error| format!("its call `{path}` failed: {error}"))
}
