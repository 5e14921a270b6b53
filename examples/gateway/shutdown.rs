//! A gateway that just stops breaks every answer it is giving, and leaves its clients to find out.
//!
//! On SIGTERM or Ctrl-C the gate closes: who waits is answered at once. The listener stays open until the
//! last running request has ended, so that whoever still comes, on an old connection or a new one, hears
//! `shutting_down` and a load balancer sees `/healthz` fail, instead of a refused connection.

use std::time::Duration;

use crate::service::Handle;

/// What the last answers may take to leave the sockets.
pub(crate) const LAST_BYTES: Duration = Duration::from_secs(1);

/// Returns after a signal, when nothing runs any more or `grace` is over.
pub(crate) async fn drained(handle: &Handle, grace: Duration) {
    signal().await;
    handle.close();
    tracing::info!(
        running = handle.snapshot().queue.running,
        ?grace,
        "shutting down"
    );
    if tokio::time::timeout(grace, handle.closed()).await.is_err() {
        tracing::warn!(
            running = handle.snapshot().queue.running,
            "the grace period is over"
        );
    }
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            () = interrupt() => {}
        },
        Err(error) => {
            tracing::warn!(%error, "SIGTERM cannot be heard");
            interrupt().await;
        }
    }
}

#[cfg(not(unix))]
async fn signal() {
    interrupt().await;
}

async fn interrupt() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::warn!(%error, "Ctrl-C cannot be heard");
        std::future::pending::<()>().await;
    }
}
