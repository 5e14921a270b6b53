//! Graceful shutdown on SIGTERM or Ctrl-C.
//!
//! The gate closes, and every waiting request is rejected at once. The listener stays open until the last running
//! request has ended: until then new requests get `shutting_down`, and a load balancer sees `/healthz` fail, instead
//! of a refused connection. A request ends before its client has received the whole response, so the shutdown then
//! waits for the connections to close. Stored requests that wait stay in the store, which is closed. Then the models that the gateway has started are stopped.

use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_triage::swap::Unload;

use crate::durable::Workers;
use crate::server::Server;
use crate::service::Handle;
use crate::service_manager;

/// The time that models have to stop by themselves, even if the grace period is over. A model that is killed may leave a
/// container behind.
const MODELS_STOP: Duration = Duration::from_secs(5);

/// Time for complete responses to leave the sockets after the grace period, and for models to be killed.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for a signal, then for the last response to be sent and for models to stop, but at most `grace` or until a
/// second signal. The admin address is served until then.
pub(crate) async fn run(
    mut signals: Signals,
    handle: &Handle,
    mut workers: Option<Workers>,
    server: Server,
    admin: Option<Server>,
    grace: Duration,
) {
    signals.any().await;
    service_manager::stopping();
    if let Some(workers) = &workers {
        workers.stop();
    }
    handle.close();
    tracing::info!(
        running = handle.snapshot().queue.running,
        ?grace,
        "shutting down"
    );
    let mut over = pin!(async {
        tokio::select! {
            () = sleep(grace) => "the grace period is over",
            () = signals.any() => "a second signal came",
        }
    });
    let is_over = drain(handle, workers.as_mut(), &server, over.as_mut()).await;
    if let Some(workers) = workers {
        workers.close_store(FLUSH_TIMEOUT).await;
    }
    stop_models(handle, is_over, over).await;
    if let Some(admin) = admin {
        admin.stop();
        _ = timeout(FLUSH_TIMEOUT, admin.stopped()).await;
    }
    _ = timeout(FLUSH_TIMEOUT, server.end()).await;
}

/// Waits for the last response. Returns whether `over` has come first; it must not be polled again then.
async fn drain(
    handle: &Handle,
    workers: Option<&mut Workers>,
    server: &Server,
    over: Pin<&mut impl Future<Output = &'static str>>,
) -> bool {
    let last_responses = async {
        handle.closed().await;
        if let Some(workers) = workers {
            workers.finished().await;
        }
        server.stop();
        server.stopped().await;
    };
    let reason = tokio::select! {
        () = last_responses => return false,
        reason = over => reason,
    };
    server.stop();
    if timeout(FLUSH_TIMEOUT, server.stopped()).await.is_err() {
        tracing::warn!(
            connections = server.open_connections(),
            running = handle.snapshot().queue.running,
            "responses are cut off: {reason}"
        );
    }
    true
}

/// Stops the models of `[swap]`: those that have not stopped when the grace period is over, and after [`MODELS_STOP`], are
/// killed.
async fn stop_models(handle: &Handle, is_over: bool, over: Pin<&mut impl Future>) {
    let mut stopped = pin!(handle.shutdown_models());
    let limit = async {
        sleep(MODELS_STOP).await;
        if !is_over {
            over.await;
        }
    };
    tokio::select! {
        () = stopped.as_mut() => return,
        () = limit => {}
    }
    handle.unload_all(Unload::Kill);
    if timeout(FLUSH_TIMEOUT, handle.shutdown_models())
        .await
        .is_err()
    {
        tracing::warn!("models still run: they are killed with the gateway");
    }
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
}
