//! The JSON of pages about models.

use serde::Serialize;
use serde_json::{Value, json};
use tower_triage::swap::{ModelState, ModelStatus};

use crate::service::NamedModel;

/// A list of models as OpenAI's API returns it.
pub(crate) fn list(names: impl IntoIterator<Item = impl Serialize>) -> Value {
    let entries = names.into_iter().map(entry);
    json!({ "object": "list", "data": entries.collect::<Vec<_>>() })
}

/// Returns the list of models, with the state of each as llama.cpp's router mode returns it, its context and its capabilities.
pub(super) fn list_with_states(names: Vec<NamedModel>) -> Value {
    let entries = names.into_iter().map(with_state);
    json!({ "object": "list", "data": entries.collect::<Vec<_>>() })
}

/// A model with its state, as in such a list. What is not known of it is left out.
pub(super) fn with_state(model: NamedModel) -> Value {
    let mut entry = entry(model.name);
    if let Some(tokens) = model.context_length {
        entry["context_length"] = tokens.into();
        entry["meta"] = json!({ "n_ctx": tokens });
    }
    let capabilities = [
        ("vision", model.vision),
        ("tools", model.tools),
        ("json_mode", model.json_mode),
    ];
    for (name, is_capable) in capabilities {
        if let Some(is_capable) = is_capable {
            entry["capabilities"][name] = is_capable.into();
        }
    }
    entry["status"] = match model.state {
        ModelState::Unloading => json!({ "value": "unloaded" }),
        // llama.cpp has no such value, and says so by this key.
        ModelState::Failed => json!({ "value": "failed", "failed": true }),
        state => json!({ "value": state.as_str() }),
    };
    entry
}

/// A list of models as Ollama returns it. The sizes and dates of files are not known here.
pub(super) fn ollama_tags(names: Vec<NamedModel>) -> Value {
    let models = names.into_iter().map(|NamedModel { name, .. }| {
        json!({
            "name": name, "model": name, "modified_at": OLLAMA_DATE, "size": 0, "digest": "",
            "details": ollama_details(),
        })
    });
    json!({ "models": models.collect::<Vec<_>>() })
}

/// A date in Ollama's format, for what has none here.
pub(crate) const OLLAMA_DATE: &str = "1970-01-01T00:00:00Z";

/// A model as Ollama's `/api/show` describes it. What is not known of it is left out.
pub(crate) fn ollama_show(model: &NamedModel) -> Value {
    let mut info = json!({ "general.architecture": "unknown" });
    if let Some(tokens) = model.context_length {
        info["unknown.context_length"] = tokens.into();
    }
    let capabilities = [
        ("completion", Some(true)),
        ("tools", model.tools),
        ("vision", model.vision),
    ];
    let capable = capabilities.iter().filter(|(_, is)| *is == Some(true));
    let capabilities: Vec<&str> = capable.map(|(name, _)| *name).collect();
    json!({
        "modelfile": "", "parameters": "", "template": "", "modified_at": OLLAMA_DATE,
        "details": ollama_details(), "model_info": info, "capabilities": capabilities,
    })
}

fn ollama_details() -> Value {
    json!({
        "parent_model": "", "format": "", "family": "", "families": [], "parameter_size": "",
        "quantization_level": "",
    })
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
