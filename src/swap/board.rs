//! What is known of all instances, for reports: written by the driver, read by handles.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::broadcast;

use super::{ModelState, Progress, SwapEvent};
use crate::clock::now;
use crate::endpoints::EndpointRef;
use crate::endpoints::on_demand::{Loading, OnDemand};

/// How many events a reader may be behind.
const EVENTS: usize = 256;

/// What is known of all instances.
#[derive(Debug)]
pub(super) struct Board {
    /// By number of the instance.
    entries: Mutex<Vec<Entry>>,
    /// The numbers of those that are configured, in that order.
    listed: Mutex<Vec<usize>>,
    events: broadcast::Sender<SwapEvent>,
}

/// What is known of one instance.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) model: Arc<str>,
    pub(super) endpoint: EndpointRef,
    pub(super) state: ModelState,
    pub(super) since: Instant,
    on_demand: OnDemand,
    loading: Option<Loading>,
    /// How long its loads took, on average, and how many there were.
    pub(super) loads: (Duration, u32),
    pub(super) last_error: Option<String>,
    pub(super) url: Option<String>,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            listed: Mutex::default(),
            events: broadcast::Sender::new(EVENTS),
        }
    }
}

impl Board {
    pub(super) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are configured, in that order.
    pub(super) fn listed(&self) -> Vec<Entry> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = self.entries();
        listed
            .iter()
            .filter_map(|&nth| entries.get(nth).cloned())
            .collect()
    }

    pub(super) fn set_listed(&self, listed: Vec<usize>) {
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = listed;
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<SwapEvent> {
        self.events.subscribe()
    }

    /// An instance does something else from now on.
    pub(super) fn set_state(&self, nth: usize, state: ModelState, error: Option<String>) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(nth) else {
            return;
        };
        if entry.state == state && error.is_none() {
            return;
        }
        if (entry.state, state) == (ModelState::Loading, ModelState::Loaded) {
            entry.loaded();
        }
        (entry.state, entry.since) = (state, now());
        if let Some(error) = &error {
            entry.last_error = Some(error.clone());
        }
        entry.set_loading(state == ModelState::Loading);
        // No one may listen.
        _ = self.events.send(SwapEvent {
            model: Arc::clone(&entry.model),
            state,
            error,
        });
    }
}

impl Entry {
    pub(super) fn new(model: &str, endpoint: EndpointRef, on_demand: OnDemand) -> Self {
        Self {
            model: model.into(),
            endpoint,
            state: ModelState::Unloaded,
            since: now(),
            on_demand,
            loading: None,
            loads: (Duration::ZERO, 0),
            last_error: None,
            url: None,
        }
    }

    /// How far its load has come, if it is being loaded and that is known.
    pub(super) fn progress(&self) -> Option<f32> {
        self.loading.as_ref()?.progress()
    }

    /// Where its engine says how far its load has come.
    pub(super) fn told(&self) -> Progress {
        let loading = self.loading.as_ref();
        loading
            .map(|loading| loading.told.clone())
            .unwrap_or_default()
    }

    fn set_loading(&mut self, is_loading: bool) {
        let (mean, count) = self.loads;
        self.loading = is_loading.then(|| Loading {
            told: Progress::default(),
            began: now(),
            usual: (count > 0).then_some(mean),
        });
        self.on_demand.set_loading(self.loading.clone());
    }

    fn loaded(&mut self) {
        let (mean, count) = &mut self.loads;
        let took = now().saturating_duration_since(self.since);
        // Of the last few.
        *count = (*count + 1).min(8);
        *mean = *mean * (*count - 1) / *count + took / *count;
    }
}
