//! The JSON of pages about models.

use serde::Serialize;
use serde_json::{Value, json};
use tower_triage::swap::{ModelState, ModelStatus};

/// A list of models as OpenAI's API returns it.
pub(crate) fn list(names: impl IntoIterator<Item = impl Serialize>) -> Value {
    let entries = names.into_iter().map(entry);
    json!({ "object": "list", "data": entries.collect::<Vec<_>>() })
}

/// The same, with the state of each model as llama.cpp's router mode returns it.
pub(super) fn list_with_states(names: Vec<(String, ModelState)>) -> Value {
    let entries = names.into_iter().map(|(id, state)| with_state(id, state));
    json!({ "object": "list", "data": entries.collect::<Vec<_>>() })
}

/// A model with its state, as in such a list.
pub(super) fn with_state(id: String, state: ModelState) -> Value {
    let mut entry = entry(id);
    entry["status"] = match state {
        ModelState::Unloading => json!({ "value": "unloaded" }),
        // llama.cpp has no such value, and says so by this key.
        ModelState::Failed => json!({ "value": "failed", "failed": true }),
        state => json!({ "value": state.as_str() }),
    };
    entry
}

/// A list of models as Ollama returns it. The sizes and dates of files are not known here.
pub(super) fn ollama_tags(names: Vec<(String, ModelState)>) -> Value {
    let models = names.into_iter().map(|(name, _)| {
        json!({
            "name": name, "model": name, "modified_at": "1970-01-01T00:00:00Z", "size": 0, "digest": "",
            "details": {
                "parent_model": "", "format": "", "family": "", "families": [], "parameter_size": "",
                "quantization_level": "",
            },
        })
    });
    json!({ "models": models.collect::<Vec<_>>() })
}

/// The version as Ollama returns it, which is that of the gateway.
pub(super) fn ollama_version() -> Value {
    json!({ "version": env!("CARGO_PKG_VERSION") })
}

fn entry(id: impl Serialize) -> Value {
    json!({ "id": id, "object": "model", "created": 0, "owned_by": "tower-triage" })
}

/// The models with a process, as llama-swap returns them.
pub(super) fn running(models: &[ModelStatus]) -> Value {
    let running = models.iter().filter_map(|model| {
        let state = match model.state {
            ModelState::Loaded => "ready",
            ModelState::Loading => "starting",
            ModelState::Unloading => "stopping",
            ModelState::Sleeping => "sleeping",
            _ => return None,
        };
        Some(json!({ "model": model.name, "state": state }))
    });
    json!({ "running": running.collect::<Vec<_>>() })
}

/// The JSON of `/admin/models`.
#[derive(Serialize)]
pub(super) struct Models {
    models: Vec<Model>,
}

/// A model of `[swap]`.
#[derive(Serialize)]
struct Model {
    name: String,
    state: &'static str,
    /// For how long it has been in this state.
    since_seconds: f64,
    /// Processes of it that run.
    running: u32,
    in_flight: u32,
    waiting: usize,
    /// How far its load has come, from 0 to 1; null if it is not being loaded, or that is not known.
    progress: Option<f32>,
    /// Why it last failed to start, or ended by itself; null if it has not.
    last_error: Option<String>,
    /// Null while it does not run.
    url: Option<String>,
}

impl Models {
    pub(super) fn new(models: Vec<ModelStatus>) -> Self {
        let models = models.into_iter().map(|model| Model {
            name: model.name,
            state: model.state.as_str(),
            since_seconds: model.since.as_secs_f64(),
            running: model.running,
            in_flight: model.in_flight,
            waiting: model.waiting,
            progress: model.progress,
            last_error: model.last_error,
            url: model.url,
        });
        Self {
            models: models.collect(),
        }
    }
}
