//! A gateway that just stops breaks every answer it is giving, and leaves its clients to find out.
//!
//! On SIGTERM or Ctrl-C the gate closes: who waits is answered at once. The listener stays open until the
//! last running request has ended, so that whoever still comes, on an old connection or a new one, hears
//! `shutting_down` and a load balancer sees `/healthz` fail, instead of a refused connection. A request has
//! ended before its client has received all of the answer: the connections are waited for, too.

use std::io;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::serve::Server;
use crate::service::Handle;

/// What answers that are complete may take to leave the sockets when the grace period is over.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// Returns after a signal, when the last answer is out, `grace` is over, or Ctrl-C is pressed once more.
pub(crate) async fn drained(
    mut signals: Signals,
    handle: &Handle,
    mut server: Server,
    grace: Duration,
) {
    signals.any().await;
    handle.close();
    tracing::info!(
        running = handle.snapshot().queue.running,
        ?grace,
        "shutting down"
    );
    let last_answers = async {
        handle.closed().await;
        server.stop();
        server.stopped().await;
    };
    let why = tokio::select! {
        () = last_answers => return,
        () = sleep(grace) => "the grace period is over",
        () = signals.interrupt() => "interrupted again",
    };
    server.stop();
    if timeout(LAST_BYTES, server.stopped()).await.is_ok() {
        return;
    }
    tracing::warn!(
        connections = server.open_connections(),
        running = handle.snapshot().queue.running,
        "answers are cut off: {why}"
    );
}

/// The signals that end the gateway well. They kill it until these are there to hear them.
#[cfg(unix)]
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn hear() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    async fn interrupt(&mut self) {
        self.interrupt.recv().await;
    }
}

#[cfg(windows)]
pub(crate) struct Signals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Signals {
    pub(crate) fn hear() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn any(&mut self) {
        self.0.recv().await;
    }

    async fn interrupt(&mut self) {
        self.0.recv().await;
    }
}
