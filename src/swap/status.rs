//! The status of models, which the driver writes and handles read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::broadcast;

use super::{LoadProgress, ModelOutput, metrics};
use crate::admit::PoolId;
use crate::clock::now;
use crate::endpoints::EndpointRef;

/// The state of a model, or of one of its instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelState {
    /// The model does not run, and the next request starts it.
    Unloaded,
    /// The model is being started, and requests wait for it.
    Loading,
    /// The model serves requests, or is ready to serve them.
    Loaded,
    /// The model's process runs, and has freed its memory.
    Sleeping,
    /// The model is being stopped, and its memory is not free yet.
    Unloading,
    /// The model's last start failed, and the next try is still to come.
    Failed,
}

impl ModelState {
    /// All states.
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 6] = [
        Self::Unloaded,
        Self::Loading,
        Self::Loaded,
        Self::Sleeping,
        Self::Unloading,
        Self::Failed,
    ];

    /// Returns the name: `unloaded`, `loading`, `loaded`, `sleeping`, `unloading`, `failed`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading => "loading",
            Self::Loaded => "loaded",
            Self::Sleeping => "sleeping",
            Self::Unloading => "unloading",
            Self::Failed => "failed",
        }
    }

    /// Returns `true` if a process of the model runs.
    fn is_running(self) -> bool {
        matches!(self, Self::Loaded | Self::Sleeping | Self::Unloading)
    }

    /// Returns a rank of the states. The higher it is, the nearer the model is to serving.
    pub(super) fn nearness(self) -> u8 {
        match self {
            Self::Loaded => 5,
            Self::Loading => 4,
            Self::Sleeping => 3,
            Self::Unloading => 2,
            Self::Unloaded => 1,
            Self::Failed => 0,
        }
    }
}

/// The status of one model, over all its instances.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelStatus {
    /// The name of the model, as requests ask for it.
    pub name: String,
    /// The state of the instance that is nearest to serving.
    pub state: ModelState,
    /// The time since the last change of `state`.
    pub since: Duration,
    /// The number of instances that run or sleep.
    pub running: u32,
    /// The number of requests that the model serves.
    pub in_flight: u32,
    /// The number of requests that wait for the model.
    pub waiting: usize,
    /// The share of the load that is done, from 0 to 1, while the model is being loaded and the share is known.
    pub progress: Option<f32>,
    /// The mean time of the last 8 loads. `None` before the first one has succeeded.
    pub load_time: Option<Duration>,
    /// The reason of the last start that failed, or of the last crash.
    pub last_error: Option<String>,
    /// The URL of the model while it runs.
    pub url: Option<String>,
}

/// A change of a model's state, or an error without one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SwapEvent {
    /// The name of the model.
    pub model: Arc<str>,
    /// The new state of the model, or of one of its instances.
    pub state: ModelState,
    /// The reason of a start that failed, or of a crash.
    pub error: Option<String>,
}

/// The number of events that a reader may be behind.
const EVENTS: usize = 256;
/// The number of loads in the mean time, which is an estimate of the next one.
const LOADS: u32 = 8;

/// The status of all configured instances, with the events of their changes.
#[derive(Debug)]
pub(super) struct StatusTable {
    /// The instances in the order of the configuration.
    instances: ArcSwap<Vec<Arc<InstanceStatus>>>,
    events: broadcast::Sender<SwapEvent>,
    #[cfg(feature = "metrics")]
    pub(super) metrics: metrics::Metrics,
}

impl Default for StatusTable {
    fn default() -> Self {
        Self {
            instances: ArcSwap::default(),
            events: broadcast::Sender::new(EVENTS),
            #[cfg(feature = "metrics")]
            metrics: metrics::Metrics::default(),
        }
    }
}

impl StatusTable {
    /// Returns the configured instances, in the order of the configuration.
    pub(super) fn instances(&self) -> Arc<Vec<Arc<InstanceStatus>>> {
        self.instances.load_full()
    }

    pub(super) fn set_instances(&self, instances: Vec<Arc<InstanceStatus>>) {
        self.instances.store(instances.into());
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<SwapEvent> {
        self.events.subscribe()
    }

    /// Returns the status of a new instance of `model`, which does not run. `output` is shared by all its instances.
    pub(super) fn new_instance(
        &self,
        model: &str,
        endpoint: EndpointRef,
        output: ModelOutput,
    ) -> Arc<InstanceStatus> {
        Arc::new(InstanceStatus {
            model: model.into(),
            output,
            events: self.events.clone(),
            fields: Mutex::new(StatusFields {
                endpoint,
                state: ModelState::Unloaded,
                since: now(),
                loads: (Duration::ZERO, 0),
                last_error: None,
                url: None,
            }),
        })
    }
}

/// The status of one instance, which outlives its place in the configuration.
#[derive(Debug)]
pub(super) struct InstanceStatus {
    /// The name of the instance's model.
    pub(super) model: Arc<str>,
    /// The output of the model.
    pub(super) output: ModelOutput,
    events: broadcast::Sender<SwapEvent>,
    fields: Mutex<StatusFields>,
}

#[derive(Debug)]
struct StatusFields {
    endpoint: EndpointRef,
    state: ModelState,
    /// The time of the last change of `state`.
    since: Instant,
    /// The mean time of the last loads, and their number.
    loads: (Duration, u32),
    last_error: Option<String>,
    url: Option<String>,
}

impl InstanceStatus {
    /// Sets the state, and sends an event if the state changes or `error` is set.
    pub(super) fn set_state(&self, state: ModelState, error: Option<String>) {
        let mut fields = self.lock();
        if fields.state == state && error.is_none() {
            return;
        }
        if (fields.state, state) == (ModelState::Loading, ModelState::Loaded) {
            fields.count_load();
        }
        let now = now();
        let took = now.saturating_duration_since(fields.since);
        metrics::changed(&self.model, fields.state, state, took);
        (fields.state, fields.since) = (state, now);
        if let Some(error) = &error {
            fields.last_error = Some(error.clone());
        }
        // Under the lock, so that events are in order. Fails if there are no listeners.
        _ = self.events.send(SwapEvent {
            model: Arc::clone(&self.model),
            state,
            error,
        });
    }

    pub(super) fn set_endpoint(&self, endpoint: EndpointRef) {
        self.lock().endpoint = endpoint;
    }

    pub(super) fn set_url(&self, url: String) {
        self.lock().url = Some(url);
    }

    /// Returns the pool of the instance's slots.
    pub(super) fn pool(&self) -> PoolId {
        self.lock().endpoint.pool()
    }

    /// Returns the mean time of the last loads, if there were any.
    pub(super) fn usual_load(&self) -> Option<Duration> {
        self.lock().mean_load()
    }

    /// Returns the progress of the current load, which the engine sets.
    pub(super) fn reported_progress(&self) -> LoadProgress {
        let fields = self.lock();
        let loading = fields.endpoint.on_demand().and_then(|it| it.loading());
        loading.map(|it| it.reported.clone()).unwrap_or_default()
    }

    /// Returns the status of a model with this instance alone, and without the requests that wait.
    pub(super) fn report(&self) -> ModelStatus {
        let fields = self.lock();
        let is_running = fields.state.is_running();
        ModelStatus {
            name: self.model.to_string(),
            state: fields.state,
            since: now().saturating_duration_since(fields.since),
            running: is_running.into(),
            in_flight: fields.endpoint.in_flight(),
            waiting: 0,
            progress: fields.endpoint.start_progress(),
            load_time: fields.mean_load(),
            last_error: fields.last_error.clone(),
            url: fields.url.clone().filter(|_| is_running),
        }
    }

    fn lock(&self) -> MutexGuard<'_, StatusFields> {
        self.fields.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StatusFields {
    /// Returns the mean time of the last loads, if there were any.
    fn mean_load(&self) -> Option<Duration> {
        let (mean, count) = self.loads;
        (count > 0).then_some(mean)
    }

    /// Adds the load that has just ended to the mean time.
    fn count_load(&mut self) {
        let (mean, count) = &mut self.loads;
        let took = now().saturating_duration_since(self.since);
        *count = (*count + 1).min(LOADS);
        *mean = *mean * (*count - 1) / *count + took / *count;
    }
}
