//! How a process is stopped: it is asked to, and killed if it takes too long.

use std::process::Stdio;

use rustix::process::Signal;
use tokio::time::timeout;

use super::command::{Placeholders, command};
use super::engine::Engine;
use super::group::Group;
use crate::swap::StopSignal;

/// Stops the process. Resolves when it has ended, and its memory is free.
pub(super) async fn stop(engine: &Engine) {
    let gently = async {
        // Once it was reaped, its number may be another process's.
        if engine.begin_stop() && !engine.group.is_reaped() {
            ask(engine).await;
        }
        engine.life.clone().gone().await;
    };
    if timeout(engine.launch.model.stop_grace, gently)
        .await
        .is_err()
    {
        engine.group.kill();
    }
    free(engine).await;
}

/// Kills the process. Resolves when it has ended, and its memory is free.
pub(super) async fn kill(engine: &Engine) {
    engine.group.kill();
    free(engine).await;
}

async fn free(engine: &Engine) {
    let settle = engine.launch.model.settle;
    engine.life.clone().gone_for(settle).await;
}

/// Asks the process to stop: by its command, or by its signal if it has none, or its command fails.
async fn ask(engine: &Engine) {
    let model = &engine.launch.model;
    if let Some(line) = &model.stop_cmd {
        match run(line, engine).await {
            Ok(()) => return,
            Err(error) => {
                let name = &*engine.launch.name;
                tracing::warn!(
                    model = name,
                    error,
                    "the command that stops the model failed"
                );
            }
        }
    }
    engine.group.signal(number(model.stop_signal));
}

/// Runs a command line to its end. All that it started ends with it.
async fn run(line: &str, engine: &Engine) -> Result<(), String> {
    let placeholders = Placeholders {
        port: engine.port.number(),
        pid: Some(engine.group.pid()),
    };
    let command = command(line, &engine.launch, placeholders);
    let mut command = command.map_err(|error| error.to_string())?;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = Group::spawn(&mut command);
    let (group, mut child_ends) = spawned.map_err(|error| error.to_string())?;
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
