//! What is reported of models.

use std::sync::Arc;
use std::time::Duration;

/// What a model does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelState {
    /// It does not run, and is started when it is asked for.
    Unloaded,
    /// It is being started.
    Loading,
    /// It serves requests.
    Loaded,
    /// Its process runs and has freed its memory.
    Sleeping,
    /// It is being stopped.
    Unloading,
    /// Its last start failed, and it is not tried again yet.
    Failed,
}

impl ModelState {
    /// Its name: `unloaded`, `loading`, `loaded`, `sleeping`, `unloading`, `failed`.
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
}

/// The status of one model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelStatus {
    /// Its name.
    pub name: String,
    /// What it does; of several instances, the one that is nearest to serving.
    pub state: ModelState,
    /// For how long it has done that.
    pub since: Duration,
    /// How many of its instances run.
    pub running: u32,
    /// How many requests it serves.
    pub in_flight: u32,
    /// How many requests wait for it.
    pub waiting: usize,
    /// How far its load has come, from 0 to 1, while it is being loaded and that is known.
    pub progress: Option<f32>,
    /// Why it last failed to start, or ended by itself.
    pub last_error: Option<String>,
    /// Where it can be reached while it runs.
    pub url: Option<String>,
}

/// Something that happened to a model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SwapEvent {
    /// The model.
    pub model: Arc<str>,
    /// What it does from now on; of several instances, what one of them does.
    pub state: ModelState,
    /// Why it failed to start or ended.
    pub error: Option<String>,
}
