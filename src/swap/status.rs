//! The states of models, as handles report them.

use std::sync::Arc;
use std::time::Duration;

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
    pub(super) fn is_running(self) -> bool {
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
