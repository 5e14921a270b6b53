//! A process that serves a model, from its start to its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed; // no other memory depends on these flags

use http::Uri;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::command::command;
use super::daemons::Starts;
use super::group::{ChildEnds, ProcessGroup};
use super::health::HealthClient;
use super::output::Output;
use super::port::Port;
use super::records::{GroupRecord, Records};
use super::supervise::{LifeReader, ProcessLife, Supervised, supervise};
use crate::swap::{Launch, StartError};
use crate::upstream::Prober;

/// A process that serves a model, with the means to watch it and to end it.
pub(super) struct Engine {
    pub(super) launch: Launch,
    pub(super) port: Port,
    pub(super) url: Uri,
    pub(super) client: HealthClient,
    pub(super) group: ProcessGroup,
    /// The soft limit of open files of the process and of its stop command.
    pub(super) open_files: Option<u64>,
    pub(super) output: Output,
    pub(super) activity: Activity,
    pub(super) life: LifeReader,
    /// Tells the supervisor that the process is ready.
    pub(super) ready: Notify,
    /// Tells the supervisor that the process refuses connections.
    pub(super) refuses: Notify,
    /// Tells the supervisor that the process was asked to stop.
    pub(super) stops: Notify,
    /// Cancelled once the process has failed, because its start or its wake failed or was given up, or because it has ceased
    /// to answer. The supervisor ends it then.
    pub(super) failed: CancellationToken,
    asleep: AtomicBool,
    asked_to_stop: AtomicBool,
}

impl Engine {
    /// Starts a process, and the task that supervises it until it has ended.
    pub(super) fn spawn(
        launch: Launch,
        prober: Prober,
        starts: &Starts,
        records: Option<&Arc<Records>>,
        open_files: Option<u64>,
    ) -> Result<Arc<Self>, StartError> {
        let no_port = |error| StartError::new(format!("there is no free port: {error}"));
        let port = Port::choose().map_err(no_port)?;
        let proxy = launch.model.proxy.clone();
        let client = HealthClient::new(prober, port.number(), proxy);
        let url = format!("http://127.0.0.1:{}/", port.number());
        let url = Uri::try_from(url).map_err(|error| StartError::new(error.to_string()))?;

        let command = command(&launch.model.cmd, &launch, port.number(), None);
        let mut command = command.map_err(StartError::new)?;
        starts.mark(&mut command, &launch.name);
        let program = command.as_std().get_program().to_owned();
        let no_process = |error| format!("cannot run `{}`: {error}", program.display());
        let spawned = spawn(command, records);
        let (group, child_ends, output, record) =
            spawned.map_err(|error| StartError::new(no_process(error)))?;
        // At once, so that the program finds the limit when it looks.
        if let Some(limit) = open_files {
            group.limit_files(limit);
        }

        let (life_sender, life) = watch::channel(ProcessLife::Runs);
        let engine = Arc::new(Self {
            output: Output::new(&launch),
            launch,
            port,
            url,
            client,
            group,
            open_files,
            activity: Activity::default(),
            life: LifeReader(life),
            ready: Notify::new(),
            refuses: Notify::new(),
            stops: Notify::new(),
            failed: CancellationToken::new(),
            asleep: AtomicBool::new(false),
            asked_to_stop: AtomicBool::new(false),
        });
        let supervised = Supervised {
            engine: engine.clone(),
            record,
        };
        tokio::spawn(supervise(supervised, child_ends, output, life_sender));
        Ok(engine)
    }

    /// Returns the error of a start that failed for this reason.
    pub(super) fn error(&self, reason: String) -> StartError {
        StartError {
            reason,
            output: self.output.tail(),
        }
    }

    /// Returns `true` while health checks pause, because the process sleeps, is about to sleep, or wakes.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Relaxed)
    }

    pub(super) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Relaxed);
    }

    /// Records that the process is asked to stop. Returns `true` the first time. On a second signal, many programs give up
    /// the work that they still have to finish.
    pub(super) fn begin_stop(&self) -> bool {
        self.stops.notify_one();
        !self.asked_to_stop.swap(true, Relaxed)
    }
}

/// Starts a process. Its record is written before, so that the next program finds it whenever this one is killed. The pipe
/// has the lines of both output streams, in the order in which the process wrote them.
fn spawn(
    mut command: Command,
    records: Option<&Arc<Records>>,
) -> io::Result<(ProcessGroup, ChildEnds, Receiver, Option<GroupRecord>)> {
    let (reader, writer) = io::pipe()?;
    let log = |error: &io::Error| {
        tracing::warn!(%error, "a model's process has no record, by which it would be ended after a SIGKILL");
    };
    let record = records.map(|records| records.add(&reader));
    let mut record = record.and_then(|record| record.inspect_err(log).ok());
    let output = Receiver::from_owned_fd(reader.into())?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let (group, child_ends) = ProcessGroup::spawn(&mut command)?;
    if let Some(record) = &mut record {
        _ = record.set_leader(group.pid()).inspect_err(log);
    }
    // The command closes its ends of the pipe.
    Ok((group, child_ends, output, record))
}
