//! The configuration of a [`SwapLayer`](super::SwapLayer).

mod error;
mod instances;
mod model;
#[cfg(feature = "serde")]
mod read;
#[cfg(test)]
mod tests;
mod validate;

use std::time::Duration;

pub use self::error::InvalidSwap;
pub use self::model::{StopSignal, SwapModel};
#[cfg(feature = "serde")]
pub(super) use self::read::pairs;
use super::swapper::{Group, MatrixConfig};

/// Which models there are, and which of them may run together.
///
/// With feature `serde` it is read from a file, in which every key but a model's `cmd` is optional:
///
/// ```
/// # #[cfg(feature = "serde")] {
/// # use tower_triage::swap::SwapConfig;
/// let config: SwapConfig = toml::from_str(
///     r#"
///     memory = 24.0           # or pools = { gpu0 = 24.0, gpu1 = 24.0 }, or [groups.NAME], or [matrix]
///     swap_after_seconds = 5
///
///     [models."qwen:7b"]
///     cmd = "llama-server --port ${PORT} -m qwen.gguf"
///     memory = 8.0
///     ttl_seconds = 0         # never stopped for being idle
///     "#,
/// )?;
/// assert_eq!(config.models[0].ttl, None);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Of sets that cost the same, the one that is defined first is chosen; so the reader of the format has to keep the order
/// of tables (`toml` does with its feature `preserve_order`).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "read::SwapFile"))]
#[non_exhaustive]
pub struct SwapConfig {
    /// The models, each with a name of its own.
    pub models: Vec<SwapModel>,
    /// Which of them may run together. Default: one at a time.
    pub policy: SwapPolicy,
    /// A loaded model yields to a request for another one that has waited for so long. Default 10 s.
    pub swap_after: Duration,
    /// A model that was loaded serves for so long before its traffic yields; one that is idle yields at once. Default 5 s.
    /// With much less than a load takes, models are loaded for a few requests each while several are asked for.
    pub min_loaded: Duration,
    /// What becomes of a load when the last request that waited for it is gone. Default: it is given up if no model was
    /// stopped for it.
    pub abandoned_load: AbandonedLoad,
    /// How long a model may take until it is ready, unless it says otherwise. Default 120 s.
    pub health_timeout: Duration,
    /// The model that is loaded again when no request waits or runs. Default: none.
    pub default: Option<String>,
}

/// Which models may run together.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SwapPolicy {
    /// Those that fit into memory: pools and what they have, in the unit of [`SwapModel::memory`]. A model is in one pool.
    Memory(Vec<(String, f64)>),
    /// Those that the groups allow, by name. Models without a group form one of their own, of which one runs at a time.
    Groups(Vec<(String, Group)>),
    /// Those that a set lists.
    Matrix(MatrixConfig),
}

impl SwapPolicy {
    /// One budget for all.
    fn one_pool(budget: f64) -> Self {
        Self::Memory(vec![("memory".to_owned(), budget)])
    }
}

/// What becomes of a load when the last request that waited for it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum AbandonedLoad {
    /// It is given up, unless a model was stopped for it.
    #[default]
    Abort,
    /// It goes on.
    Finish,
}

impl Default for SwapConfig {
    fn default() -> Self {
        Self {
            models: Vec::new(),
            policy: SwapPolicy::Groups(Vec::new()),
            swap_after: Duration::from_secs(10),
            min_loaded: Duration::from_secs(5),
            abandoned_load: AbandonedLoad::Abort,
            health_timeout: Duration::from_secs(120),
            default: None,
        }
    }
}

impl SwapConfig {
    /// Models that run together while they fit into this much memory.
    #[must_use]
    pub fn memory(budget: f64) -> Self {
        Self {
            policy: SwapPolicy::one_pool(budget),
            ..Self::default()
        }
    }

    /// Adds a model.
    #[must_use]
    pub fn model(mut self, model: SwapModel) -> Self {
        self.models.push(model);
        self
    }
}
