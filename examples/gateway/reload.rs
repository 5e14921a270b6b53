//! Who must restart the gateway to add a backend breaks off every answer that it is giving.
//!
//! On SIGHUP it reads its file again. All of it is checked before anything is changed; then endpoints,
//! `[queue]` and `[routing]` are changed while requests wait and run, and the log says what was.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::thread;

use tokio::sync::oneshot;
use tower_triage::endpoints::Changes;

use crate::config::{Config, Environment};
use crate::service::Handle;

/// Changes the gateway when it is told to.
pub(crate) struct Reload {
    /// There is none if the backends are the demo's.
    pub(crate) path: Option<PathBuf>,
    pub(crate) environment: Environment,
    /// What is served.
    pub(crate) running: Config,
    pub(crate) handle: Handle,
}

impl Reload {
    pub(crate) async fn whenever(mut self, mut told: Hangups) -> Infallible {
        loop {
            told.next().await;
            if let Err(error) = self.once().await {
                tracing::error!("{error}; nothing has changed");
            }
        }
    }

    async fn once(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(path) = &self.path else {
            tracing::info!("SIGHUP: there is no file to read again, the backends are the demo's");
            return Ok(());
        };
        let new = read(path.clone(), self.environment).await?;
        if new.registry.models().next().is_none() {
            // The file may still be being written: one that is empty, or ends within a backend, is valid.
            let (place, what) = (
                path.display(),
                match new.registry.endpoints() {
                    [] => "no [[backends]]: a reload must leave at least one",
                    _ => "no model in any of [[backends]]: a reload must leave at least one",
                },
            );
            return Err(format!("{place}: {what}").into());
        }
        let changes = self.handle.change(&self.running, &new)?;
        for warning in &new.warnings {
            tracing::warn!("{warning}");
        }
        for key in fixed(&self.running, &new) {
            tracing::warn!("`{key}` has changed: restart the gateway for it to count");
        }
        let news = news(&changes, &self.running, &new);
        for line in &news {
            tracing::info!("{line}");
        }
        if news.is_empty() {
            tracing::info!("{}: nothing has changed", path.display());
        }
        self.running = Config {
            listen: self.running.listen,
            body_limit_bytes: self.running.body_limit_bytes,
            upstream: self.running.upstream.clone(),
            ..new
        };
        Ok(())
    }
}

/// Reads the file in a thread of its own: it may be on a disk that does not answer, and requests and the shutdown do not
/// wait for it.
async fn read(path: PathBuf, environment: Environment) -> Result<Config, Box<dyn Error>> {
    let (told, read) = oneshot::channel();
    thread::Builder::new().spawn(move || {
        let _ = told.send(Config::read(&path, environment)); // the gateway may be shutting down
    })?;
    Ok(read.await??)
}

/// What differs and cannot be changed while the gateway runs.
fn fixed(running: &Config, new: &Config) -> Vec<&'static str> {
    let differs = [
        ("listen", running.listen != new.listen),
        (
            "body_limit_bytes",
            running.body_limit_bytes != new.body_limit_bytes,
        ),
        ("[upstream]", running.upstream != new.upstream),
    ];
    let differing = differs.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(key, _)| key).collect()
}

/// What was changed, a line for each kind.
fn news(changes: &Changes, old: &Config, new: &Config) -> Vec<String> {
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

/// The signals that tell it. They kill the gateway until this is there to hear them.
#[cfg(unix)]
pub(crate) struct Hangups(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Hangups {
    pub(crate) fn hear() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup()).map(Self)
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}

#[cfg(windows)]
pub(crate) struct Hangups;

#[cfg(windows)]
impl Hangups {
    pub(crate) fn hear() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}
