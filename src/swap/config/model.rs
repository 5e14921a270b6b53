//! The configuration of one model.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Uri;

use crate::endpoints::Model;

/// A model that is started when requests wait for it.
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
    /// The name and the capabilities of the model. By default, its capabilities and its context are not known, so its process
    /// decides which requests it takes.
    pub model: Model,
    /// The command line that serves the model. `${PORT}` is replaced by a free port from 10000 to 32767, on which the process
    /// has to listen on loopback. The line is split into words as by a shell, and run without one.
    pub cmd: String,
    /// The base URL to which requests and health checks go, in place of `http://127.0.0.1:${PORT}`, such as that of a container.
    /// It begins with `http://`, and all instances of the model share it. A model with one instance is not started while another
    /// server passes its health check there. Default `None`. It can change while the model runs; a
    /// start that is in progress begins anew.
    pub proxy: Option<Uri>,
    /// Variables to add to the environment of this process. `${PORT}` is replaced as in `cmd`.
    pub env: BTreeMap<String, String>,
    /// The memory that each instance takes, in the unit of the budget. Required if there is a budget.
    pub memory: Option<f64>,
    /// The cost of stopping the model, at least 1, which is the default. With a [matrix](super::SwapPolicy::Matrix), the
    /// models with the least total cost stop. With [memory](super::SwapPolicy::Memory), the least recently used models stop,
    /// and the cost decides between pools, and which of the models may stay. [Groups](super::SwapPolicy::Groups) ignore it.
    pub evict_cost: u64,
    /// The number of requests that each instance serves at a time, at least 1. Default 4.
    pub concurrency: u32,
    /// The number of processes of the model that may run, from 1 to 1,000. A further one starts when requests wait and all
    /// that run are busy. Default 1.
    pub instances: u32,
    /// The path of the health check, which is a `GET` that is answered with 2xx once the model is ready. With `None`, the model
    /// is ready as soon as its process runs. Default `/health`.
    pub health_path: Option<String>,
    /// The interval of health checks while the model runs. After three failures in a row, it counts as crashed. With `None`,
    /// the checks end once it is ready. Default 10 s.
    pub health_interval: Option<Duration>,
    /// The time without a byte in either direction after which a busy model counts as crashed, if it has received at least
    /// one of its requests in full. By default, it
    /// never does.
    pub hang_timeout: Option<Duration>,
    /// The time after which an idle model is stopped, above 0, or `None` to let it run for ever. Default 5 min.
    pub ttl: Option<Duration>,
    /// `true` if the model starts with the layer, and stops neither for another model nor because it is idle. After a crash or
    /// a failed start, it starts again by itself: after 1 s, doubled each time in a row, up to 60 s. Default `false`.
    pub pinned: bool,
    /// `true` if the model starts with the layer. Default `false`.
    pub preload: bool,
    /// A command line that stops the model, in place of a signal. `${PORT}` and `${PID}` are replaced by those of the process.
    /// The command may take as long as `stop_grace`, and also runs for a process that could not become ready or counts as
    /// crashed though it runs. The memory is free after that.
    ///
    /// The command does not run for a process that has ended by itself, because `${PID}` may be another process then. So a
    /// container that goes on without its client is not stopped. It does not run either for a process that was ready and is
    /// [killed](crate::swap::Unload::Kill) or dropped.
    pub stop_cmd: Option<String>,
    /// The signal that asks the process to stop, also when its start is given up, takes too long or fails. Default
    /// [`StopSignal::Term`].
    pub stop_signal: StopSignal,
    /// The time after which the process group is killed if it has not stopped. Default 10 s. A process without a `stop_cmd` that
    /// is not ready yet or has failed has 5 s at most.
    pub stop_grace: Duration,
    /// The time from the end of the process until its memory counts as free. Default 0.
    pub settle: Duration,
    /// The time limit of a start. The default is the [`health_timeout`](super::SwapConfig::health_timeout) of all models.
    pub start_timeout: Option<Duration>,
    /// The report of the model's load to clients that wait for it. Default `None`, for the
    /// [`loading_state`](super::SwapConfig::loading_state) of all models.
    pub loading_state: Option<LoadingState>,
    /// The path of a stream of events about the progress of the load, like that of llama.cpp's `/models/sse`. By
    /// default, the progress is an estimate by the time of earlier loads.
    pub progress_path: Option<String>,
    /// The path of a `POST` that puts the model to sleep, in place of a stop. Its process stays, and its memory is free.
    pub sleep_path: Option<String>,
    /// The path of a `POST` that wakes the model.
    pub wake_path: Option<String>,
    /// The paths of the model's own pages that nobody asks for on purpose. A gateway that passes these pages on does not start the
    /// model for them; a [`SwapLayer`](crate::SwapLayer) does not look at paths. Default: `/favicon.ico`.
    pub ignore_paths: Vec<String>,
    /// `true` if an open websocket holds no slot, so that it does not keep the model from being stopped. Default `false`.
    pub ignore_websockets: bool,
}

/// The report of a load to a client that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum LoadingState {
    /// The client hears nothing before the answer, unless it [asks](crate::QueueLayer#status-while-waiting) for its status.
    #[default]
    None,
    /// The response to a streamed chat (`POST …/chat/completions`) begins with a 200 while the model is not loaded. Chunks with
    /// `delta.reasoning_content` say how far the load is, about once a second, and the answer follows. A failure then is an event of
    /// type `error`.
    Reasoning,
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

/// Returns a model of which nothing but the name is known, so the server decides what it takes.
fn unknown(name: impl Into<String>) -> Model {
    let mut model = Model::new(name);
    model.context_length = None;
    (model.vision, model.tools, model.json_mode) = (None, None, None);
    model
}

impl SwapModel {
    /// Returns a model with this name, served by this command line.
    #[must_use]
    pub fn new(name: impl Into<String>, cmd: impl Into<String>) -> Self {
        Self {
            model: unknown(name),
            cmd: cmd.into(),
            proxy: None,
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
            loading_state: None,
            progress_path: None,
            sleep_path: None,
            wake_path: None,
            ignore_paths: vec!["/favicon.ico".to_owned()],
            ignore_websockets: false,
        }
    }

    /// Returns `true` if a process of `old` may run on as one of this model.
    pub(crate) fn runs_as(&self, old: &Self) -> bool {
        // Leaves out the fields that matter only to the router and the scheduler.
        let free = |model: &Self| Self {
            model: Model::new(model.model.name.clone()),
            proxy: None,
            loading_state: None,
            evict_cost: 1,
            concurrency: 1,
            instances: 1,
            ttl: None,
            pinned: false,
            preload: false,
            start_timeout: None,
            progress_path: None,
            ignore_paths: Vec::new(),
            ignore_websockets: false,
            ..model.clone()
        };
        free(self) == free(old)
    }

    /// Sets the memory that each instance takes, in the unit of the budget.
    #[must_use]
    pub fn memory(mut self, memory: f64) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Sets the number of requests that each instance serves at a time.
    #[must_use]
    pub fn concurrency(mut self, requests: u32) -> Self {
        self.concurrency = requests;
        self
    }

    /// Sets the time after which an idle model is stopped, or `None` to let it run for ever.
    #[must_use]
    pub fn ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.ttl = ttl.into();
        self
    }

    /// Returns the names of all instances: the model's name, and then `#2` and so on after it.
    pub(crate) fn instance_names(&self) -> impl Iterator<Item = String> {
        (1..=self.instances).map(|nth| match nth {
            1 => self.model.name.clone(),
            _ => format!("{}#{nth}", self.model.name),
        })
    }
}
