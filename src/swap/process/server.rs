//! A process as a [`ModelServer`], which calls the other parts of this room.

use std::fmt;
use std::sync::Arc;

use http::Uri;

use super::engine::Engine;
use super::{health, ready, stop};
use crate::swap::{BoxFuture, LoadProgress, ModelServer, StartError};

/// A process that serves a model. Dropping it kills the process and all that it started.
pub(super) struct ProcessServer(pub(super) Arc<Engine>);

impl ModelServer for ProcessServer {
    fn url(&self) -> Uri {
        self.0.url.clone()
    }

    fn ended(&self) -> BoxFuture<String> {
        Box::pin(self.0.life.clone().ended())
    }

    fn stop(&self) -> BoxFuture<()> {
        let engine = self.0.clone();
        Box::pin(async move { stop::stop(&engine).await })
    }

    fn kill(&self) -> BoxFuture<()> {
        let engine = self.0.clone();
        Box::pin(async move { stop::kill(&engine).await })
    }

    fn sleep(&self) -> Option<BoxFuture<Result<(), String>>> {
        let model = &self.0.launch.model;
        let path = model.sleep_path.clone()?;
        model.wake_path.as_ref()?; // without it, the process would sleep for ever
        let engine = self.0.clone();
        Some(Box::pin(async move { ready::sleep(&engine, &path).await }))
    }

    fn wake(&self, progress: LoadProgress) -> BoxFuture<Result<(), StartError>> {
        let engine = self.0.clone();
        Box::pin(async move {
            let Some(path) = &engine.launch.model.wake_path else {
                return Ok(());
            };
            let woken = ready::wake(&engine, path, &progress).await;
            woken.map_err(|reason| engine.error(reason))
        })
    }

    fn check(&self) -> BoxFuture<bool> {
        let engine = self.0.clone();
        Box::pin(async move { health::check(&engine).await })
    }

    fn on_activity(&self, busy: u32) {
        self.0.activity.record(busy);
    }
}

impl Drop for ProcessServer {
    fn drop(&mut self) {
        self.0.group.kill();
    }
}

/// Leaves out the environment, which may have secrets.
impl fmt::Debug for ProcessServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessServer")
            .field("name", &self.0.launch.name)
            .field("url", &self.0.url)
            .finish_non_exhaustive()
    }
}
