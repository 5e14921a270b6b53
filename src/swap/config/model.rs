//! The configuration of one model.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::endpoints::Model;

/// A model that is started when it is asked for.
///
/// ```
/// use std::time::Duration;
/// use tower_triage::swap::SwapModel;
///
/// let model = SwapModel::new("qwen:7b", "llama-server --port ${PORT} -m qwen.gguf")
///     .memory(8.0)
///     .concurrency(4)
///     .ttl(Duration::from_secs(300));
/// assert_eq!(model.health_path.as_deref(), Some("/health"));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SwapModel {
    /// Its name, and what it can do.
    pub model: Model,
    /// The command line that serves it. `${PORT}` stands for a free port from 10000 to 32767, on which it has to listen on
    /// loopback. Split into words as a shell does, and run without one.
    pub cmd: String,
    /// Variables of its environment, besides those of this process. `${PORT}` stands for the port, as in `cmd`.
    pub env: BTreeMap<String, String>,
    /// How much memory each of its instances takes, in the unit of the budget. Needed where there is one.
    pub memory: Option<f64>,
    /// What it costs to stop it, at least 1. By a [matrix](super::SwapPolicy::Matrix) the models stop that cost the least
    /// together. By [memory](super::SwapPolicy::Memory) those stop that were not used for the longest time; the cost says
    /// in which pool, and which of them stay if not all have to go. [Groups](super::SwapPolicy::Groups) know no cost.
    /// Default 1.
    pub evict_cost: u64,
    /// How many requests each of its instances serves at a time, at least 1. Default 4.
    pub concurrency: u32,
    /// How many processes of it may run: 1 to 1,000. A further one is started when those that run are busy and requests
    /// wait. Default 1.
    pub instances: u32,
    /// A `GET` of this path with a 2xx answer says that it is ready. `None`: ready as soon as it runs. Default `/health`.
    pub health_path: Option<String>,
    /// How often its health is asked while it runs; after three failures in a row it is taken to have crashed.
    /// `None`: only until it is ready. Default 10 s.
    pub health_interval: Option<Duration>,
    /// It is taken to have crashed if it serves requests, has been sent all there is of one at least, and neither takes nor
    /// sends a byte for so long. `None` (default): never.
    pub hang_timeout: Option<Duration>,
    /// How long it may be idle before it is stopped, above 0. `None`: for ever. Default 5 min.
    pub ttl: Option<Duration>,
    /// Never stopped for another model or for being idle, and started with the layer. It comes back by itself after a crash
    /// or a start that failed: after 1 s, doubled each time in a row, up to 60 s. Default `false`.
    pub pinned: bool,
    /// Started with the layer. Default `false`.
    pub preload: bool,
    /// A command line that stops it, in place of a signal. `${PORT}` and `${PID}` stand for those of the process. It may
    /// end more than the process group, as a container. So it is run, for [`stop_grace`](Self::stop_grace) at most, also
    /// where a process without one is killed at once: if its start or its wake fails or is given up, and if it is taken to
    /// have crashed though it runs. Memory counts as free after that.
    ///
    /// It is not run once the process has ended by itself (`${PID}` may be another one then: a container that goes on
    /// without its client is not stopped), nor for a process that was ready and is [killed](crate::swap::Unload::Kill) or
    /// dropped.
    pub stop_cmd: Option<String>,
    /// The signal that asks it to stop. Default [`StopSignal::Term`].
    pub stop_signal: StopSignal,
    /// How long it may take to stop. Then its process group is killed. Default 10 s.
    pub stop_grace: Duration,
    /// How long to wait after its process has ended until its memory counts as free. Default 0.
    pub settle: Duration,
    /// How long it may take until it is ready. `None`: the default of the [`SwapConfig`](super::SwapConfig).
    pub start_timeout: Option<Duration>,
    /// A `GET` of this path tells how far its load has come, as a stream of events like that of llama.cpp's `/models/sse`.
    /// `None` (default): that is estimated from how long its loads took before.
    pub progress_path: Option<String>,
    /// `POST` to this path puts it to sleep instead of stopping it: its process stays, and its memory counts as free.
    pub sleep_path: Option<String>,
    /// `POST` to this path wakes it.
    pub wake_path: Option<String>,
}

/// The signal that asks a process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StopSignal {
    /// `SIGTERM`.
    #[default]
    Term,
    /// `SIGINT`.
    Int,
    /// `SIGQUIT`.
    Quit,
    /// `SIGHUP`.
    Hup,
    /// `SIGKILL`.
    Kill,
}

impl SwapModel {
    /// A model with this name that is served by this command line.
    #[must_use]
    pub fn new(name: impl Into<String>, cmd: impl Into<String>) -> Self {
        Self {
            model: Model::new(name),
            cmd: cmd.into(),
            env: BTreeMap::new(),
            memory: None,
            evict_cost: 1,
            concurrency: 4,
            instances: 1,
            health_path: Some("/health".to_owned()),
            health_interval: Some(Duration::from_secs(10)),
            hang_timeout: None,
            ttl: Some(Duration::from_secs(300)),
            pinned: false,
            preload: false,
            stop_cmd: None,
            stop_signal: StopSignal::Term,
            stop_grace: Duration::from_secs(10),
            settle: Duration::ZERO,
            start_timeout: None,
            progress_path: None,
            sleep_path: None,
            wake_path: None,
        }
    }

    /// Whether a process of `old` may go on as one of this.
    pub(crate) fn runs_as(&self, old: &Self) -> bool {
        // What matters to the router and the scheduler alone.
        let free = |model: &Self| Self {
            model: Model::new(model.model.name.clone()),
            evict_cost: 1,
            concurrency: 1,
            instances: 1,
            ttl: None,
            pinned: false,
            preload: false,
            start_timeout: None,
            progress_path: None,
            ..model.clone()
        };
        free(self) == free(old)
    }

    /// How much memory it takes.
    #[must_use]
    pub fn memory(mut self, memory: f64) -> Self {
        self.memory = Some(memory);
        self
    }

    /// How many requests each of its instances serves at a time.
    #[must_use]
    pub fn concurrency(mut self, requests: u32) -> Self {
        self.concurrency = requests;
        self
    }

    /// How long it may be idle before it is stopped.
    #[must_use]
    pub fn ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.ttl = ttl.into();
        self
    }

    /// The names of its instances.
    pub(crate) fn instance_names(&self) -> impl Iterator<Item = String> {
        (1..=self.instances).map(|nth| match nth {
            1 => self.model.name.clone(),
            _ => format!("{}#{nth}", self.model.name),
        })
    }
}
