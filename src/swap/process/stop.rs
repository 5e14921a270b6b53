//! The stop of a process: it is asked to stop, and killed if that takes too long. A process that has failed is asked, too,
//! because it may be the client of a container, which a `SIGKILL` would leave behind with its memory.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::timeout;

use super::command::command;
use super::engine::Engine;
use super::group::{ChildEnds, ProcessGroup};
use crate::swap::StopSignal;

/// The time that a process without a stop command has to end after its start was given up or it has failed. It serves no
/// request that it would have to finish.
const FAILED_GRACE: Duration = Duration::from_secs(5);

/// Stops the process, and resolves when it has ended and its memory is free.
pub(super) async fn stop(engine: &Engine) {
    let gently = async {
        // Once the process was reaped, its number may be another process's.
        if engine.begin_stop() && !engine.group.is_reaped() {
            // By its stop command, or by its signal if the command is missing or fails.
            if !ask_by_command(engine).await {
                engine.group.signal(number(engine.launch.model.stop_signal));
            }
        }
        engine.life.clone().gone_for(Duration::ZERO).await;
    };
    // The supervisor stops a process that has failed.
    let grace = engine.launch.model.stop_grace;
    if !engine.failed.is_cancelled() && timeout(grace, gently).await.is_err() {
        engine.group.kill();
    }
    free(engine).await;
}

/// Kills the process, and resolves when it has ended and its memory is free.
pub(super) async fn kill(engine: &Engine) {
    // The supervisor ends a process that has failed, at once if its start or its wake was given up.
    engine.launch.killed.cancel();
    if !engine.failed.is_cancelled() {
        engine.group.kill();
    }
    free(engine).await;
}

/// Asks a process that has failed to stop, by its stop command or by its signal: it may have to end more than its process
/// group, such as a container. Resolves when the process has ended, or the grace is over. The process is not reaped
/// meanwhile, so `${PID}` is still its own.
///
/// If an operator kills a process whose start or wake `was_given_up`, only its stop command asks it.
pub(super) async fn stop_failed(engine: &Engine, child_ends: &mut ChildEnds, was_given_up: bool) {
    let model = &engine.launch.model;
    let has_command = model.stop_cmd.is_some();
    let killed = async {
        match was_given_up && !has_command {
            true => engine.launch.killed.cancelled().await,
            false => std::future::pending().await,
        }
    };
    let stopped = async {
        if engine.begin_stop() {
            if !ask_by_command(engine).await {
                engine.group.signal(number(model.stop_signal));
            }
            engine.group.ended(child_ends).await;
        }
    };
    let grace = match has_command {
        true => model.stop_grace,
        false => model.stop_grace.min(FAILED_GRACE),
    };
    tokio::select! {
        biased; // a process that is killed gets no signal before
        () = killed => {}
        _ = timeout(grace, stopped) => {}
    }
}

/// Resolves when the process has ended, and its memory is free.
pub(super) async fn free(engine: &Engine) {
    (engine.life.clone().gone_for(engine.launch.model.settle)).await;
}

/// Runs the stop command, and returns `true` if there is one and it succeeds.
async fn ask_by_command(engine: &Engine) -> bool {
    let Some(line) = &engine.launch.model.stop_cmd else {
        return false;
    };
    let (result, model) = (run(line, engine).await, &*engine.launch.name);
    let log =
        |error: &String| tracing::warn!(model, error, "the command that stops the model failed");
    result.inspect_err(log).is_ok()
}

/// Runs a command line to its end, and ends its children with it.
async fn run(line: &str, engine: &Engine) -> Result<(), String> {
    let (port, pid) = (engine.port.number(), engine.group.pid());
    let mut command = command(line, &engine.launch, port, Some(pid))?;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = ProcessGroup::spawn(&mut command);
    let (group, mut child_ends) = spawned.map_err(|error| error.to_string())?;
    if let Some(limit) = engine.open_files {
        group.limit_files(limit);
    }
    group.ended(&mut child_ends).await;
    match group.reap() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn number(signal: StopSignal) -> Signal {
    match signal {
        StopSignal::Term => Signal::TERM,
        StopSignal::Int => Signal::INT,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::Hup => Signal::HUP,
        StopSignal::Kill => Signal::KILL,
    }
}
