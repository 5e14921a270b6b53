//! Starts models as processes.

use std::fmt;
use std::sync::Arc;

use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::daemons::Starts;
use super::engine::Engine;
use super::instance::ProcessInstance;
use super::orphans;
use super::ready::until_ready;
use super::records::Records;
use super::stop::free;
use crate::swap::{BoxFuture, Instance, Launch, Launcher, StartError};
use crate::upstream::Prober;

/// Starts models as processes of this machine, by their command lines.
///
/// Each process has a process group of its own, in which its children are, too. The whole group is killed when the
/// process ends, whatever the reason: a command that leaves its work to a child in the background and ends has failed.
///
/// Killing this program by `SIGKILL` leaves its processes running, with their memory and their ports. On Linux, the next
/// program of the same user that starts models ends them before its first start: by `SIGTERM`, and after 5 s by `SIGKILL`,
/// without their [`stop_cmd`](crate::swap::SwapModel::stop_cmd). It finds a process group whose leader still runs by its
/// record, which is an empty file in `$XDG_RUNTIME_DIR/tower-triage`, or else in `tower-triage-UID` in the directory for
/// temporary files. A directory that other users control is not used, and the log says so. Processes that were started by
/// a program that still runs, or in another container, are left alone. Elsewhere, what starts this program has to end its
/// processes then, as a container does, or systemd with its default `KillMode`.
///
/// A process that has left its group (`setsid`, a daemon) is stopped by no unload. On Linux, the launcher finds daemons by
/// the variable `TOWER_TRIAGE_START` in their environment, unless they write over it. A model is not started again while
/// daemons of two of its starts run, and the next program ends the daemons of one that has ended.
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
    prepared: Arc<OnceCell<Prepared>>,
}

/// What is known before the first start.
#[derive(Debug, Default)]
struct Prepared {
    /// Where process groups are recorded, if that is possible.
    records: Option<Arc<Records>>,
    /// The time at which processes had ended that were left by a program that was killed.
    orphans_ended: Option<Instant>,
}

impl Default for ProcessLauncher {
    fn default() -> Self {
        Self {
            prober: Prober::local(),
            starts: Arc::default(),
            prepared: Arc::default(),
        }
    }
}

impl Launcher for ProcessLauncher {
    fn start(&self, launch: Launch) -> BoxFuture<Result<Arc<dyn Instance>, StartError>> {
        Box::pin(start(self.clone(), launch))
    }

    fn prepare(&self) -> BoxFuture<()> {
        let launcher = self.clone();
        Box::pin(async move { _ = launcher.prepared().await })
    }
}

impl ProcessLauncher {
    /// Ends what programs have left that were killed, once.
    async fn prepared(&self) -> &Prepared {
        let prepare = async {
            let Some(owner) = self.starts.owner.clone() else {
                return Prepared::default();
            };
            let user = owner.clone();
            let records = spawn_blocking(move || Records::open(&user)).await;
            let records = records.ok().flatten(); // an error: the runtime is shut down
            Prepared {
                orphans_ended: orphans::end(owner, records.clone()).await,
                records,
            }
        };
        self.prepared.get_or_init(|| prepare).await
    }
}

/// Starts a process. A failed start leaves nothing of it, and its memory is free.
async fn start(launcher: ProcessLauncher, launch: Launch) -> Result<Arc<dyn Instance>, StartError> {
    let limit = launch.timeout;
    let prepared = launcher.prepared().await;
    if let Some(ended) = prepared.orphans_ended {
        sleep(launch.model.settle.saturating_sub(ended.elapsed())).await;
    }
    let starts = launcher.starts.clone();
    let (known, name) = (starts.clone(), Arc::clone(&launch.name));
    let refusal = spawn_blocking(move || known.refusal(&name)).await;
    if let Ok(Some(refusal)) = refusal {
        return Err(StartError::new(refusal));
    }
    let records = prepared.records.as_ref();
    let engine = Engine::spawn(launch, launcher.prober.clone(), &starts, records)?;
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
