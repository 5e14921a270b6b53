//! Starts models as processes.

use std::fmt;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::daemons::Starts;
use super::engine::Engine;
use super::instance::ProcessInstance;
use super::ready::until_ready;
use super::stop::free;
use crate::swap::{BoxFuture, Instance, Launch, Launcher, StartError};
use crate::upstream::Prober;

/// Starts models as processes of this machine, by their command lines.
///
/// Each process has a process group of its own, in which its children are, too. The whole group is killed when the
/// process ends, whatever the reason: a command that leaves its work to a child in the background and ends has failed.
///
/// Killing this program by `SIGKILL` leaves them running, with their memory and their ports. What starts this program has
/// to end them then, as a container does, or systemd with its default `KillMode`. A process that has left its group
/// (`setsid`, a daemon) is never stopped. On Linux, a model is not started again while daemons of two of its starts run; the
/// launcher finds them by the variable `TOWER_TRIAGE_START` in their environment.
///
/// A process listens on `127.0.0.1`, on the port that stands for `${PORT}`. What it writes goes to the log, line by line,
/// as events of the level `debug` and the target `tower_triage::swap`.
///
/// With several memory pools, `CUDA_VISIBLE_DEVICES` in the environment is the number that the name of the pool ends with
/// (1 for `gpu1`), or else the number of the pool, counted from 0. A value of the model's own goes before it.
///
/// Starting has to happen in a Tokio runtime with I/O and time.
#[derive(Clone)]
pub struct ProcessLauncher {
    prober: Prober,
    starts: Arc<Starts>,
}

impl Default for ProcessLauncher {
    fn default() -> Self {
        Self {
            prober: Prober::local(),
            starts: Arc::default(),
        }
    }
}

impl Launcher for ProcessLauncher {
    fn start(&self, launch: Launch) -> BoxFuture<Result<Arc<dyn Instance>, StartError>> {
        Box::pin(start(self.prober.clone(), Arc::clone(&self.starts), launch))
    }
}

/// Starts a process. A failed start leaves nothing of it, and its memory is free.
async fn start(
    prober: Prober,
    starts: Arc<Starts>,
    launch: Launch,
) -> Result<Arc<dyn Instance>, StartError> {
    let limit = launch.timeout;
    let (known, name) = (Arc::clone(&starts), Arc::clone(&launch.name));
    let refusal = spawn_blocking(move || known.refusal(&name)).await;
    if let Ok(Some(refusal)) = refusal {
        return Err(StartError::new(refusal));
    }
    let engine = Engine::spawn(launch, prober, &starts)?;
    // Ends the process if this future is dropped.
    let unready = engine.failed.clone().drop_guard();
    let gone = engine.life.clone().gone_for(engine.launch.model.settle);
    engine.launch.cleanup.set(gone);
    if let Err(reason) = until_ready(&engine, limit, &engine.launch.progress).await {
        drop(unready);
        free(&engine).await; // before its last lines are read
        return Err(engine.error(reason));
    }
    unready.disarm();
    engine.ready.notify_one();
    Ok(Arc::new(ProcessInstance(engine)))
}

impl fmt::Debug for ProcessLauncher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessLauncher").finish_non_exhaustive()
    }
}
