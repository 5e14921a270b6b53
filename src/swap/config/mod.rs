//! The configuration of a [`SwapLayer`](super::SwapLayer).

mod instances;
mod model;
#[cfg(feature = "serde")]
mod read;
#[cfg(test)]
mod tests;
mod validate;
mod warnings;

use std::time::Duration;

pub use self::model::{LoadingState, StopSignal, SwapModel};
#[cfg(feature = "serde")]
pub(super) use self::read::pairs;
pub use self::validate::InvalidSwap;
pub use super::scheduler::AbandonedLoad;
use super::swapper::{Group, MatrixConfig};

/// The models, and the policy that tells which of them may run together.
///
/// With feature `serde`, it is read from a file. Every key is optional, except for a model's `cmd`:
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
///     ttl_seconds = 0         # an idle model is never stopped
///     "#,
/// )?;
/// assert_eq!(config.models[0].ttl, None);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Of sets that cost the same, the one that is defined first is chosen. So the parser of the format has to keep the order of
/// tables, as `toml` does with its feature `preserve_order`.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "read::SwapFile"))]
#[non_exhaustive]
pub struct SwapConfig {
    /// The models, each with a name of its own, in the order in which handles report them.
    pub models: Vec<SwapModel>,
    /// The policy that tells which models may run together. By default, one model runs at a time.
    pub policy: SwapPolicy,
    /// The wait after which a request for another model makes a busy model yield. Default 10 s.
    pub swap_after: Duration,
    /// The time for which a busy model serves after its load, before it yields. An idle model yields at once. Default 5 s.
    /// If it is much shorter than a load, and requests for several models come, each load serves only a few requests.
    pub min_loaded: Duration,
    /// The fate of a load when the last request that waited for it is gone. Default: the load goes on, unless a request for
    /// another model needs its memory.
    pub abandoned_load: AbandonedLoad,
    /// The time limit of a start, for models without a [`start_timeout`](SwapModel::start_timeout). Default 120 s.
    pub health_timeout: Duration,
    /// The report of loads to the clients that wait for them, for models without a
    /// [`loading_state`](SwapModel::loading_state) of their own. Default: none.
    pub loading_state: LoadingState,
    /// The model that is loaded when all requests are served and none waits. By default, there is no such model.
    pub default: Option<String>,
}

/// The policy that tells which models may run together.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SwapPolicy {
    /// Models run together while they fit into memory. Has the name and the size of each pool, in the unit of
    /// [`SwapModel::memory`]. A model is in one pool.
    Memory(Vec<(String, f64)>),
    /// Models run together as these named groups allow. Models without a group form one of their own, of which one runs at
    /// a time.
    Groups(Vec<(String, Group)>),
    /// Models run together if a set of the matrix has them.
    Matrix(MatrixConfig),
}

impl SwapPolicy {
    /// Returns a policy with one pool for all models.
    fn one_pool(budget: f64) -> Self {
        Self::Memory(vec![("memory".to_owned(), budget)])
    }
}

impl Default for SwapConfig {
    fn default() -> Self {
        Self {
            models: Vec::new(),
            policy: SwapPolicy::Groups(Vec::new()),
            swap_after: Duration::from_secs(10),
            min_loaded: Duration::from_secs(5),
            abandoned_load: AbandonedLoad::Yield,
            health_timeout: Duration::from_secs(120),
            loading_state: LoadingState::None,
            default: None,
        }
    }
}

impl SwapConfig {
    /// Returns a configuration without models, which run together while they fit into this much memory.
    #[must_use]
    pub fn memory(budget: f64) -> Self {
        Self {
            policy: SwapPolicy::one_pool(budget),
            ..Self::default()
        }
    }

    /// Adds a model behind those that the configuration has.
    #[must_use]
    pub fn model(mut self, model: SwapModel) -> Self {
        self.models.push(model);
        self
    }
}
