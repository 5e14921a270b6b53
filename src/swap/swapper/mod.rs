//! Which running models have to stop so that another one can run.

mod groups;
mod matrix;
mod memory;

use std::fmt;

pub use groups::{Group, Groups, InvalidGroups};
pub use matrix::{ExpressionError, InvalidMatrix, Matrix, MatrixConfig};
pub use memory::{InvalidMemory, MemoryBudget, MemoryConfig};

/// A model, by its number in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(pub u32);

/// A model that runs, or is about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// The model.
    pub model: ModelId,
    /// The number of the memory pool that it is in. 0 where there is one, or none.
    pub pool: u32,
    /// What it takes, as the [`Plan`] said that started it.
    pub memory: u64,
    /// When it was last used, in any unit that grows with time.
    pub last_used: u64,
    /// Whether it serves a request or is being loaded: it has to be waited for.
    pub is_busy: bool,
    /// Whether it is being stopped, so that to stop it costs nothing more.
    pub is_stopping: bool,
    /// Whether it is never stopped. A plan that stops it says that the target can't run.
    pub is_pinned: bool,
}

impl Running {
    /// A model that is idle, was never used, and takes no memory.
    #[must_use]
    pub fn new(model: ModelId) -> Self {
        Self {
            model,
            pool: 0,
            memory: 0,
            last_used: 0,
            is_busy: false,
            is_stopping: false,
            is_pinned: false,
        }
    }
}

/// What has to be done so that a model can run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The models that have to stop, in the order of the running ones that were passed.
    pub evict: Vec<ModelId>,
    /// The number of the memory pool that it will be in.
    pub pool: u32,
    /// What it will take, in a unit of the swapper's own: it comes back in [`Running::memory`].
    pub memory: u64,
}

/// A policy: which running models have to stop so that another one can run.
///
/// It decides from what it is given, knows no requests and starts nothing.
pub trait Swapper: fmt::Debug + Send + Sync {
    /// What has to stop so that `target` can run beside what is left of `running`. Asked far more often than models are
    /// swapped, so it must be quick, change nothing and log nothing. If `target` runs already, nothing has to stop.
    fn plan(&self, target: ModelId, running: &[Running]) -> Plan;

    /// Returns the running models that have to stop because all of them together exceed what there is, as after a change of
    /// the configuration. Default: none.
    fn excess(&self, running: &[Running]) -> Vec<ModelId> {
        _ = running;
        Vec::new()
    }

    /// Models of the same kind have the same plan while they don't run: it is asked for once. Default: each is of its own.
    fn kind(&self, target: ModelId) -> u32 {
        target.0
    }

    /// Whether a plan depends on when models were used, and on whether they are busy. If not, it is asked for once for each
    /// set of models that runs.
    fn regards_use(&self) -> bool {
        true
    }
}

/// The number of the model with this name.
fn model_named(models: &[String], name: &str) -> Option<ModelId> {
    let nth = models.iter().position(|model| model == name)?;
    Some(ModelId(nth as u32))
}

/// Whether the target is among those that run.
fn runs(target: ModelId, running: &[Running]) -> Option<&Running> {
    running.iter().find(|running| running.model == target)
}
