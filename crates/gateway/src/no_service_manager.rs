//! No service manager: systemd's protocol is that of Unix.

use std::convert::Infallible;
use std::future::pending;

use tokio::runtime::Handle;

pub(crate) fn ready() {}

pub(crate) fn stopping() {}

pub(crate) async fn keep_alive(_: Vec<Handle>) -> Infallible {
    pending().await
}
