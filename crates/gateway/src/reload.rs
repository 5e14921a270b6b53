//! Reload of the configuration file on SIGHUP, on `POST /admin/reload`, or when the file has changed, so that adding a backend
//! needs no restart.
//!
//! The whole file is checked first. Then endpoints, `[queue]`, `[routing]`, `[[tenants]]` and certificates change while
//! requests wait and run, and the log lists what changed. An invalid file changes nothing.

mod certificate;
mod models;
mod requests;
mod watch;

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tower_triage::endpoints::Changes;
use tower_triage::swap::SwapConfig;

use crate::config::{Config, Environment, TenantConfig};
use crate::server::Tls;
use crate::service::Handle;
use crate::tenants::{self, Reread};
pub(crate) use requests::{Outcome, ReloadError, ReloadRequests, Reloaded, Reloads, channel};
pub(crate) use watch::FileWatch;

/// The reload task: a running gateway and the file it was configured from.
pub(crate) struct Reload {
    /// `None` if the gateway runs with its demo backends.
    pub(crate) path: Option<PathBuf>,
    /// Set if the file is read again when it has changed.
    pub(crate) watch: Option<FileWatch>,
    /// The address that the command line names, in place of that of the file.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) environment: Environment,
    /// The configuration in use.
    pub(crate) running: Config,
    pub(crate) handle: Handle,
    /// TLS of the addresses that were started with it.
    pub(crate) tls: Vec<Tls>,
    /// The problems of files of keys, as they were last logged.
    pub(crate) key_problems: Vec<String>,
    /// The problems of files of certificates, as they were last logged.
    pub(crate) certificate_problems: Vec<String>,
}

/// The time between two reads of the files of keys and of certificates.
const FILES_INTERVAL: Duration = Duration::from_secs(2);

impl Reload {
    /// Reloads at each signal, each request and each change of a watched file. Never returns.
    pub(crate) async fn run(
        mut self,
        mut signals: HangupSignals,
        mut requests: ReloadRequests,
    ) -> Infallible {
        let mut files = interval_at(Instant::now() + FILES_INTERVAL, FILES_INTERVAL);
        files.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let (has_tls, has_keys) = (!self.tls.is_empty(), self.has_files_of_keys());
            let answer = tokio::select! {
                () = signals.next() => None,
                answer = requests.next() => Some(answer),
                () = changed(&mut self.watch) => None,
                _ = files.tick(), if has_tls || has_keys => {
                    self.reread_certificates().await;
                    if has_keys && let Err(error) = self.reread_keys().await {
                        tracing::error!("{error}; all keys stay");
                    }
                    continue;
                }
            };
            let outcome = self.reload().await;
            self.log(&outcome);
            requests.record(&outcome);
            if let Some(answer) = answer {
                _ = answer.send(outcome); // fails if the operator is gone
            }
        }
    }

    fn has_files_of_keys(&self) -> bool {
        let mut tenants = self.running.tenants.iter();
        tenants.any(|tenant| tenant.keys.has_file())
    }

    /// Uses the keys that the files of `[[tenants]]` have now.
    async fn reread_keys(&mut self) -> Result<(), Box<dyn Error>> {
        let tenants = self.running.tenants.clone();
        let Reread { tenants, problems } = in_thread(move || tenants::reread(&tenants)).await?;
        if problems != self.key_problems {
            for problem in &problems {
                tracing::error!("[[tenants]]: {problem}; its keys stay as they were");
            }
            self.key_problems = problems;
        }
        if tenants == self.running.tenants {
            return Ok(());
        }
        let is_durable = self.running.durable.is_some();
        let queue = self.running.waiting_room(is_durable)?;
        self.handle.tenants().replace(&tenants, &queue)?;
        let changes = tenant_changes(&self.running.tenants, &tenants);
        for line in lines("tenants", changes.each_ref()) {
            tracing::info!("{line}");
        }
        self.running.tenants = tenants;
        Ok(())
    }

    async fn reload(&mut self) -> Outcome {
        let path = self.path.clone().ok_or(ReloadError::NoFile)?;
        let reloaded = self.reload_from(path).await;
        reloaded.map_err(|error| ReloadError::Invalid(error.to_string()))
    }

    async fn reload_from(&mut self, path: PathBuf) -> Result<Reloaded, Box<dyn Error>> {
        let (file, environment) = (path.clone(), self.environment);
        let running = self.running.tenants.clone();
        let read = in_thread(move || Config::reread(&file, environment, &running));
        let mut new = read.await??;
        new.listen = self.listen.unwrap_or(new.listen);
        let swap = reloaded_swap(&self.running, &new);
        if let Some(problem) = missing_part(&self.running, &new, swap) {
            return Err(format!("{}: {problem}", path.display()).into());
        }
        let models = swap.filter(|_| self.running.swap != new.swap);
        let changes = self.handle.apply(&self.running, &new, models).await?;
        let mut reloaded = Reloaded {
            changes: summary(&changes, &self.running, &new),
            warnings: warnings(&self.running, &new),
        };
        let swap = swap.cloned();
        reloaded.changes.extend(self.use_certificates(&new));
        // What needs a restart stays as it is, and is compared again at the next reload.
        self.running = Config {
            listen: self.running.listen,
            body_limit_bytes: self.running.body_limit_bytes,
            server: self.running.server.clone(),
            certificate: self.running.certificate.clone(),
            admin_certificate: self.running.admin_certificate.clone(),
            admin: self.running.admin.clone(),
            upstream: self.running.upstream.clone(),
            durable: self.running.durable.clone(),
            clients_may_unload: new.clients_may_unload && swap.is_some(),
            swap,
            ..new
        };
        Ok(reloaded)
    }

    fn log(&self, outcome: &Outcome) {
        match outcome {
            Ok(Reloaded { changes, warnings }) => {
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                for line in changes {
                    tracing::info!("{line}");
                }
                if let (true, Some(path)) = (changes.is_empty(), &self.path) {
                    tracing::info!("{}: nothing has changed", path.display());
                }
            }
            Err(ReloadError::Invalid(message)) => {
                tracing::error!("{message}; nothing has changed");
            }
            Err(ReloadError::NoFile | ReloadError::ShuttingDown) => {
                tracing::info!(
                    "reload ignored: started without --config, so there is no file to read"
                );
            }
        }
    }
}

/// Waits until a watched file has changed.
async fn changed(watch: &mut Option<FileWatch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Returns the warnings about the new file, and about what only takes effect after a restart.
fn warnings(running: &Config, new: &Config) -> Vec<String> {
    let mut warnings: Vec<String> = new.warnings.iter().map(ToString::to_string).collect();
    let after_restart = restart_only(running, new).into_iter();
    warnings.extend(
        after_restart.map(|key| format!("`{key}` has changed: it takes effect after a restart")),
    );
    if running.durable.is_some() && running.queue.room.levels != new.queue.room.levels {
        warnings.push(
            "`priorities` of [queue] has changed: stored requests keep the positions of their levels until a restart"
                .to_owned(),
        );
    }
    warnings
}

/// Reads a file in a separate thread: a disk that does not respond must not delay requests or the shutdown.
async fn in_thread<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Box<dyn Error>> {
    let (done, result) = oneshot::channel();
    thread::Builder::new().spawn(move || {
        let _ = done.send(read()); // fails if the gateway is shutting down
    })?;
    Ok(result.await?)
}

/// The models to be started from now on. A gateway that was started without `[swap]` starts none.
fn reloaded_swap<'a>(running: &Config, new: &'a Config) -> Option<&'a SwapConfig> {
    running.swap.as_ref().and(new.swap.as_ref())
}

/// What a reload must leave. The file may be half written: an empty one, or one that ends within a section, is valid
/// TOML.
fn missing_part(running: &Config, new: &Config, swap: Option<&SwapConfig>) -> Option<&'static str> {
    if running.swap.is_some() && swap.is_none() {
        return Some("no [swap]: a reload must leave the section, though it may be without models");
    }
    if !running.tenants.is_empty() && new.tenants.is_empty() {
        return Some(
            "no [[tenants]]: a reload must leave at least one, because without any no key is asked for",
        );
    }
    let has_swapped = swap.is_some_and(|swap| !swap.models.is_empty());
    if has_swapped || new.registry.models().next().is_some() {
        return None;
    }
    Some(match new.registry.endpoints() {
        [] => "no [[backends]]: a reload must leave at least one",
        _ => "no model in any of [[backends]]: a reload must leave at least one",
    })
}

/// Keys that differ and only take effect after a restart.
fn restart_only(running: &Config, new: &Config) -> Vec<&'static str> {
    let differs = [
        ("listen", running.listen != new.listen),
        (
            "body_limit_bytes",
            running.body_limit_bytes != new.body_limit_bytes,
        ),
        ("[server]", running.server != new.server),
        (
            "[server] tls",
            running.certificate.is_some() != new.certificate.is_some(),
        ),
        (
            "[admin] tls",
            running.admin_certificate.is_some() != new.admin_certificate.is_some(),
        ),
        ("[admin]", running.admin != new.admin),
        ("[swap]", running.swap.is_none() && new.swap.is_some()),
        ("[upstream]", running.upstream != new.upstream),
        ("[durable]", running.durable != new.durable),
    ];
    let differing = differs.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(key, _)| key).collect()
}

/// What a reload changed, one line for each kind of change.
fn summary(changes: &Changes, old: &Config, new: &Config) -> Vec<String> {
    let swap = match (&old.swap, reloaded_swap(old, new)) {
        (Some(old), Some(new)) => models::summary(old, new),
        _ => Vec::new(),
    };
    let sections = [
        ("[queue]", old.queue != new.queue),
        ("[routing]", old.routing != new.routing),
        (
            "`clients_may_unload` of [swap]",
            old.clients_may_unload != new.clients_may_unload,
        ),
    ];
    let sections = sections.into_iter().filter(|(_, changed)| *changed);
    lines(
        "endpoints",
        [&changes.added, &changes.removed, &changes.changed],
    )
    .chain(swap)
    .chain(lines(
        "tenants",
        tenant_changes(&old.tenants, &new.tenants).each_ref(),
    ))
    .chain(sections.map(|(section, _)| format!("{section} has changed")))
    .collect()
}

/// The names of tenants that were added, removed and changed.
fn tenant_changes(old: &[TenantConfig], new: &[TenantConfig]) -> [Vec<String>; 3] {
    let find = |all: &[TenantConfig], name: &str| all.iter().find(|it| it.name == name).cloned();
    let names = |all: &[TenantConfig], is: &dyn Fn(&TenantConfig) -> bool| {
        let named = all.iter().filter(|tenant| is(tenant));
        named.map(|tenant| tenant.name.clone()).collect()
    };
    [
        names(new, &|tenant| find(old, &tenant.name).is_none()),
        names(old, &|tenant| find(new, &tenant.name).is_none()),
        names(new, &|tenant| {
            find(old, &tenant.name).is_some_and(|old| old != *tenant)
        }),
    ]
}

/// A line each for the names that were added, removed and changed, if there are any.
fn lines(what: &str, names: [&Vec<String>; 3]) -> impl Iterator<Item = String> {
    let changes = ["added", "removed", "changed"].into_iter().zip(names);
    let changes = changes.filter(|(_, names)| !names.is_empty());
    changes.map(move |(how, names)| format!("{what} {how}: {}", names.join(", ")))
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
