//! The launcher of processes.

use crate::swap::{BoxFuture, Instance, Launch, Launcher, StartError};
use std::sync::Arc;

/// Starts models as processes.
#[derive(Debug, Default)]
pub struct ProcessLauncher(());

impl Launcher for ProcessLauncher {
    fn start(&self, _: Launch) -> BoxFuture<Result<Arc<dyn Instance>, StartError>> {
        Box::pin(std::future::ready(Err(StartError::new(
            "there is no launcher of processes yet",
        ))))
    }
}
