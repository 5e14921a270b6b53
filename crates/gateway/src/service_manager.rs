//! Messages to the service manager: systemd, or another one that has its protocol. They say that the gateway serves, that it
//! stops, and that it is alive.

use std::convert::Infallible;
use std::future::pending;

use sd_notify::NotifyState;
use tokio::runtime::Handle;
use tokio::time::sleep;

/// Says that requests are served from now on.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// Says that the gateway shuts down.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Says that the gateway is alive, at half of the watchdog's interval, as long as each of `workers` runs its tasks. A worker
/// that is stuck silences the gateway, so the service manager starts it again. Never returns.
pub(crate) async fn keep_alive(workers: Vec<Handle>) -> Infallible {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        return pending().await;
    };
    loop {
        for worker in &workers {
            _ = worker.spawn(async {}).await; // fails if the worker has ended, which a shutdown does last
        }
        tell(NotifyState::Watchdog);
        sleep(interval / 2).await;
    }
}

/// Sends a message, if the gateway was started by a service manager.
fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}
