//! Graceful shutdown on SIGTERM or Ctrl-C.
//!
//! The gate closes, and every waiting request is rejected at once. The listener stays open until the last running
//! request has ended: until then new requests get `shutting_down`, and a load balancer sees `/healthz` fail, instead
//! of a refused connection. A request ends before its client has received the whole response, so the shutdown then
//! waits for the connections to close.

use std::io;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::serve::Server;
use crate::service::Handle;

/// Time for complete responses to leave the sockets after the grace period.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for a signal, then for the last response to be sent, but at most `grace` or until a second Ctrl-C. The
/// admin address is served until then.
pub(crate) async fn run(
    mut signals: Signals,
    handle: &Handle,
    server: Server,
    admin: Option<Server>,
    grace: Duration,
) {
    signals.any().await;
    drain(signals, handle, server, grace).await;
    if let Some(mut admin) = admin {
        admin.stop();
        _ = timeout(FLUSH_TIMEOUT, admin.stopped()).await;
    }
}

async fn drain(mut signals: Signals, handle: &Handle, mut server: Server, grace: Duration) {
    handle.close();
    tracing::info!(
        running = handle.snapshot().queue.running,
        ?grace,
        "shutting down"
    );
    let last_responses = async {
        handle.closed().await;
        server.stop();
        server.stopped().await;
    };
    let reason = tokio::select! {
        () = last_responses => return,
        () = sleep(grace) => "the grace period is over",
        () = signals.interrupt() => "interrupted again",
    };
    server.stop();
    if timeout(FLUSH_TIMEOUT, server.stopped()).await.is_ok() {
        return;
    }
    tracing::warn!(
        connections = server.open_connections(),
        running = handle.snapshot().queue.running,
        "responses are cut off: {reason}"
    );
}

/// SIGTERM and Ctrl-C. Until this is registered, either kills the process.
#[cfg(unix)]
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn register() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn any(&mut self) {
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
    pub(crate) fn register() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    pub(crate) async fn any(&mut self) {
        self.0.recv().await;
    }

    async fn interrupt(&mut self) {
        self.0.recv().await;
    }
}
