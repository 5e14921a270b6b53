//! The launcher that starts models as processes.

use std::sync::Arc;

use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::daemons::Starts;
use super::engine::Engine;
use super::records::Records;
use super::server::{ProcessServer, until_ready};
use super::stop::free;
use super::{foreign, orphans, reaper};
use crate::swap::{BoxFuture, Launch, Launcher, ModelServer, StartError};
use crate::upstream::Prober;

/// Starts models as processes of this machine, by their command lines.
///
/// A process listens on `127.0.0.1`, on the port that replaces `${PORT}`. Its output goes to the log, line by line, as
/// events of the level `debug` and the target `tower_triage::swap`.
///
/// With several memory pools, the launcher sets `CUDA_VISIBLE_DEVICES` to the number at the end of the pool's name (1 for
/// `gpu1`), or else to the number of the pool, counted from 0. A value of the model's own goes before.
///
/// The launcher has to be called in a Tokio runtime with I/O and time.
///
/// # The end of a process
///
/// Each process and its children are a process group of their own. The launcher kills the whole group when the process
/// ends, whatever the reason. So a command that leaves its work to a child in the background and ends has failed.
///
/// A `SIGKILL` of this program leaves its processes running, with their memory and their ports. On Linux, the next program
/// of the same user that starts models ends them before its first start: by `SIGTERM`, and after 5 s by `SIGKILL`, without
/// their [`stop_cmd`](crate::swap::SwapModel::stop_cmd). It finds a process group whose leader still runs by its record, an
/// empty file in `$XDG_RUNTIME_DIR/tower-triage`, or else in `tower-triage-UID` in the directory for temporary files. If
/// other users control a directory, the launcher logs that and does not use it. The processes of a program that still runs,
/// or of another container, run on. On other systems, the parent of this program has to end its processes, as a container
/// does, or systemd with its default `KillMode`.
///
/// A process that has left its group (`setsid`, a daemon) survives an unload. On Linux, the launcher finds daemons by the
/// variable `TOWER_TRIAGE_START` in their environment, unless they write over it. It does not start a model again while
/// daemons of two of its starts run, and the next program ends the daemons of a program that has ended.
#[derive(Debug, Clone)]
pub struct ProcessLauncher {
    prober: Prober,
    starts: Arc<Starts>,
    prepared: Arc<OnceCell<Preparation>>,
    open_files: Option<u64>,
    reaps_orphans: bool,
}

/// The results of the preparation for the first start.
#[derive(Debug, Default)]
struct Preparation {
    /// The records of process groups, if they can be written.
    records: Option<Arc<Records>>,
    /// The end of the processes of killed programs, if there were any.
    orphans_ended: Option<Instant>,
}

impl Default for ProcessLauncher {
    fn default() -> Self {
        Self {
            prober: Prober::local(),
            starts: Arc::default(),
            prepared: Arc::default(),
            open_files: None,
            reaps_orphans: false,
        }
    }
}

impl Launcher for ProcessLauncher {
    fn start(&self, launch: Launch) -> BoxFuture<Result<Arc<dyn ModelServer>, StartError>> {
        Box::pin(start(self.clone(), launch))
    }

    fn prepare(&self) -> BoxFuture<()> {
        let launcher = self.clone();
        Box::pin(async move { _ = launcher.prepared().await })
    }
}

impl ProcessLauncher {
    /// Sets the soft limit of open files of the processes, on Linux. A program that has raised its own limit sets the one that it
    /// was started with, because many programs go through all numbers up to the limit, or use `select`. By default, processes
    /// inherit the limit of this program.
    #[must_use]
    pub fn open_files(mut self, limit: u64) -> Self {
        self.open_files = Some(limit);
        self
    }

    /// Lets the launcher reap the processes whose parent has ended, on Linux. The system gives these to the first process of a
    /// container (PID 1), where they would pile up. The launcher reaps every child of this program that no launcher has started,
    /// so the program must start no other ones.
    #[must_use]
    pub fn reap_orphans(mut self) -> Self {
        self.reaps_orphans = true;
        self
    }

    /// Ends the processes of killed programs, before the first start.
    async fn prepared(&self) -> &Preparation {
        let prepare = async {
            if self.reaps_orphans
                && let Err(error) = reaper::start()
            {
                tracing::warn!(%error, "processes whose parent has ended will not be reaped");
            }
            let Some(owner) = self.starts.owner.clone() else {
                return Preparation::default();
            };
            let user = owner.clone();
            let records = spawn_blocking(move || Records::open(&user)).await;
            let records = records.ok().flatten(); // an error: the runtime is shut down
            Preparation {
                orphans_ended: orphans::end(owner, records.clone()).await,
                records,
            }
        };
        self.prepared.get_or_init(|| prepare).await
    }
}

/// Starts a process. After a failed start, nothing is left of the process and its memory is free.
async fn start(
    launcher: ProcessLauncher,
    launch: Launch,
) -> Result<Arc<dyn ModelServer>, StartError> {
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
    if let Some(refusal) = foreign::refusal(&launch.model, &launcher.prober).await {
        return Err(StartError::new(refusal));
    }
    let records = prepared.records.as_ref();
    let (prober, open_files) = (launcher.prober.clone(), launcher.open_files);
    let engine = Engine::spawn(launch, prober, &starts, records, open_files)?;
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
    Ok(Arc::new(ProcessServer(engine)))
}
