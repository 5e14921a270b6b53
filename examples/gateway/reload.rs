//! Reload of the configuration file on SIGHUP, so that adding a backend needs no restart.
//!
//! The whole file is checked first. Then endpoints, `[queue]` and `[routing]` change while requests wait and run,
//! and the log lists what changed. An invalid file changes nothing.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::thread;

use tokio::sync::oneshot;
use tower_triage::endpoints::Changes;

use crate::config::{Config, Environment};
use crate::service::Handle;

/// The reload task: a running gateway and the file it was configured from.
pub(crate) struct Reload {
    /// `None` if the gateway runs with its demo backends.
    pub(crate) path: Option<PathBuf>,
    pub(crate) environment: Environment,
    /// The configuration in use.
    pub(crate) running: Config,
    pub(crate) handle: Handle,
}

impl Reload {
    /// Reloads at each signal. Never returns.
    pub(crate) async fn run(mut self, mut signals: HangupSignals) -> Infallible {
        loop {
            signals.next().await;
            if let Err(error) = self.reload().await {
                tracing::error!("{error}; nothing has changed");
            }
        }
    }

    async fn reload(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(path) = &self.path else {
            tracing::info!("SIGHUP ignored: started without --config, so there is no file to read");
            return Ok(());
        };
        let new = read(path.clone(), self.environment).await?;
        if new.registry.models().next().is_none() {
            // The file may be half written: an empty one, or one that ends within a backend, is valid TOML.
            let (path, problem) = (
                path.display(),
                match new.registry.endpoints() {
                    [] => "no [[backends]]: a reload must leave at least one",
                    _ => "no model in any of [[backends]]: a reload must leave at least one",
                },
            );
            return Err(format!("{path}: {problem}").into());
        }
        let changes = self.handle.apply(&self.running, &new)?;
        for warning in &new.warnings {
            tracing::warn!("{warning}");
        }
        for key in restart_only(&self.running, &new) {
            tracing::warn!("`{key}` has changed: it takes effect after a restart");
        }
        let lines = summary(&changes, &self.running, &new);
        for line in &lines {
            tracing::info!("{line}");
        }
        if lines.is_empty() {
            tracing::info!("{}: nothing has changed", path.display());
        }
        // What needs a restart stays as it is, and is compared again at the next reload.
        self.running = Config {
            listen: self.running.listen,
            body_limit_bytes: self.running.body_limit_bytes,
            admin: self.running.admin.clone(),
            upstream: self.running.upstream.clone(),
            ..new
        };
        Ok(())
    }
}

/// Reads the file in a separate thread: a disk that does not respond must not delay requests or the shutdown.
async fn read(path: PathBuf, environment: Environment) -> Result<Config, Box<dyn Error>> {
    let (done, read) = oneshot::channel();
    thread::Builder::new().spawn(move || {
        let _ = done.send(Config::read(&path, environment)); // fails if the gateway is shutting down
    })?;
    Ok(read.await??)
}

/// Keys that differ and only take effect after a restart.
fn restart_only(running: &Config, new: &Config) -> Vec<&'static str> {
    let differs = [
        ("listen", running.listen != new.listen),
        (
            "body_limit_bytes",
            running.body_limit_bytes != new.body_limit_bytes,
        ),
        ("[admin]", running.admin != new.admin),
        ("[upstream]", running.upstream != new.upstream),
    ];
    let differing = differs.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(key, _)| key).collect()
}

/// What a reload changed, one line for each kind of change.
fn summary(changes: &Changes, old: &Config, new: &Config) -> Vec<String> {
    let endpoints = [
        ("added", &changes.added),
        ("removed", &changes.removed),
        ("changed", &changes.changed),
    ];
    let endpoints = endpoints.into_iter().filter(|(_, names)| !names.is_empty());
    let sections = [
        ("[queue]", old.queue != new.queue),
        ("[routing]", old.routing != new.routing),
    ];
    let sections = sections.into_iter().filter(|(_, changed)| *changed);
    endpoints
        .map(|(what, names)| format!("endpoints {what}: {}", names.join(", ")))
        .chain(sections.map(|(section, _)| format!("{section} has changed")))
        .collect()
}

/// SIGHUP signals. Until this is registered, a SIGHUP kills the process.
#[cfg(unix)]
pub(crate) struct HangupSignals(tokio::signal::unix::Signal);

#[cfg(unix)]
impl HangupSignals {
    pub(crate) fn register() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup()).map(Self)
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}

#[cfg(windows)]
pub(crate) struct HangupSignals;

#[cfg(windows)]
impl HangupSignals {
    pub(crate) fn register() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}
