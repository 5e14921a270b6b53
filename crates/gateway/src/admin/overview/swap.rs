//! The models of `[swap]`, and the memory that they use.

use serde_json::{Value, json};
use tower_triage::swap::{ModelState, ModelStatus, SwapConfig, SwapPolicy};

use super::{rounded, rows, seconds};
use crate::service::Handle;

/// Returns the models. `None` without `[swap]`.
pub(super) fn models(handle: &Handle) -> Option<Value> {
    let config = handle.swap_config()?;
    let models = handle.models();
    let total = match &config.policy {
        SwapPolicy::Memory(pools) => Some(pools.iter().map(|(_, size)| size).sum::<f64>()),
        _ => None,
    };
    let used: f64 = models.iter().map(|model| used(model, &config)).sum();
    let shown = models.into_iter().map(|model| {
        let row = json!({
            "state": model.state.as_str(),
            "since_seconds": model.since.as_secs(),
            "in_flight": model.in_flight,
            "waiting": model.waiting,
            "progress": model.progress.map(|share| rounded(share.into())),
            "load_seconds": seconds(model.load_time),
            "memory": memory(&model.name, &config),
            "last_error": model.last_error,
            "has_logs": true,
        });
        (model.name, row)
    });
    Some(json!({
        "memory_used": total.map(|_| rounded(used)),
        "memory_total": total,
        "models": rows(shown),
    }))
}

fn memory(model: &str, config: &SwapConfig) -> Option<f64> {
    let model = config.models.iter().find(|it| it.model.name == model)?;
    model.memory
}

/// Returns the memory that the instances of a model use. A model that sleeps uses none.
fn used(model: &ModelStatus, config: &SwapConfig) -> f64 {
    let instances = match model.state {
        ModelState::Sleeping => 0,
        ModelState::Loading => model.running.max(1),
        _ => model.running,
    };
    f64::from(instances) * memory(&model.name, config).unwrap_or(0.0)
}
