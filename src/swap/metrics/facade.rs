//! Metrics of models that are published through the `metrics` facade.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::swap::{ModelState, ModelStatus};

const LOADS: &str = "triage_model_loads_total";
const LOAD_TIME: &str = "triage_model_load_seconds";
const UNLOADS: &str = "triage_model_unloads_total";
const STATE: &str = "triage_model_state";

/// The gauges of the models' states.
#[derive(Debug, Default)]
pub(in crate::swap) struct Metrics {
    described: OnceLock<()>,
    /// The names that the gauges have values for, so that the gauges of names that have left can be reset.
    shown: Mutex<BTreeSet<String>>,
}

impl Metrics {
    /// Sets the gauges to the current states.
    pub(in crate::swap) fn record_gauges(&self, models: &[ModelStatus]) {
        self.described.get_or_init(describe);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let now = models.iter().map(|model| model.name.clone()).collect();
        let before = std::mem::replace(&mut *shown, now);
        for gone in before.difference(&shown) {
            set_state(gone, None);
        }
        for model in models {
            set_state(&model.name, Some(model.state));
        }
    }
}

fn describe() {
    let loads = "Loads of models that ended, by outcome: ok, failed or cancelled.";
    let unloads = "Times that a model was stopped or put to sleep.";
    describe_counter!(LOADS, Unit::Count, loads);
    describe_counter!(UNLOADS, Unit::Count, unloads);
    let load_time = "Time from the start of a model until it can serve, of loads that succeeded.";
    describe_histogram!(LOAD_TIME, Unit::Seconds, load_time);
    describe_gauge!(
        STATE,
        "1 for the present state of a model, 0 for all others."
    );
}

/// Sets the gauges of all states of a model. A model that has left the configuration has no state.
fn set_state(model: &str, present: Option<ModelState>) {
    for state in ModelState::ALL {
        let value = if present == Some(state) { 1.0 } else { 0.0 };
        gauge!(STATE, "model" => model.to_owned(), "state" => state.as_str()).set(value);
    }
}

/// Counts a load that took this long.
pub(super) fn load_ended(model: &str, outcome: &'static str, took: Duration) {
    counter!(LOADS, "model" => model.to_owned(), "outcome" => outcome).increment(1);
    if outcome == "ok" {
        histogram!(LOAD_TIME, "model" => model.to_owned()).record(took);
    }
}

/// Counts a model that was stopped or put to sleep.
pub(super) fn unloaded(model: &str) {
    counter!(UNLOADS, "model" => model.to_owned()).increment(1);
}
