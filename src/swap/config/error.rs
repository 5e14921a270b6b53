//! Errors in the configuration of models that swap.

use super::validate::MOST_INSTANCES;
use crate::swap::swapper::{InvalidGroups, InvalidMatrix, InvalidMemory};

/// A [`SwapConfig`](super::SwapConfig) that can't be used: which model and key, and what is allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSwap {
    /// A model without a name.
    #[error("a model has an empty name")]
    EmptyName,
    /// A name that can't be shown in a header.
    #[error("model {0:?} has control characters in its name")]
    BadName(String),
    /// Two models of the same name, or a model with the name of another one's further instance.
    #[error(
        "model `{0}` is there twice; the further instances of a model have its name with `#2` and so on"
    )]
    DuplicateModel(String),
    /// A command line that can't be split into words, or has none.
    #[error("model `{model}`: `{key}` is {line:?}: it must be a command line with closed quotes")]
    Command {
        /// The model.
        model: String,
        /// `cmd` or `stop_cmd`.
        key: &'static str,
        /// The command line.
        line: String,
    },
    /// A variable of the environment that no process can have.
    #[error(
        "model `{model}`: the variable {name:?} of `env` can't be set: a name must not be empty or have a `=`, and neither \
         names nor values may have a NUL"
    )]
    Variable {
        /// The model.
        model: String,
        /// The variable.
        name: String,
    },
    /// A number of a model that is 0.
    #[error("model `{model}`: `{key}` is 0: it must be above 0")]
    Zero {
        /// The model.
        model: String,
        /// The key.
        key: &'static str,
    },
    /// More instances of a model than there may be.
    #[error("model `{model}`: `instances` is {instances}: it must be at most {MOST_INSTANCES}")]
    TooManyInstances {
        /// The model.
        model: String,
        /// Its instances.
        instances: u32,
    },
    /// No model could be started in no time.
    #[error("`health_timeout_seconds` is 0: it must be above 0")]
    ZeroHealthTimeout,
    /// No path that could be asked.
    #[error("model `{model}`: `{key}` is {path:?}: it must be a path that begins with `/`")]
    Path {
        /// The model.
        model: String,
        /// The key.
        key: &'static str,
        /// Its value.
        path: String,
    },
    /// A model that could be put to sleep and not be woken, or the reverse.
    #[error("model `{0}`: `sleep_path` and `wake_path` need each other: set both or none")]
    HalfSleep(String),
    /// The default model is not configured.
    #[error("`default` is `{0}`, and there is no such model")]
    UnknownDefault(String),
    /// An amount of memory, and no budget.
    #[error("model `{0}` has `memory`, and there is no budget: set `memory` or `pools` for all")]
    NoBudget(String),
    /// Models that are never stopped, and would have to be.
    #[error(
        "models `{model}` and `{other}` are `pinned`, and may not run together with all that are"
    )]
    Pinned {
        /// A model.
        model: String,
        /// One that has to stop for it.
        other: String,
    },
    /// The memory makes no sense.
    #[error(transparent)]
    Memory(#[from] InvalidMemory),
    /// The groups make no sense.
    #[error(transparent)]
    Groups(#[from] InvalidGroups),
    /// The matrix makes no sense.
    #[error(transparent)]
    Matrix(#[from] InvalidMatrix),
}
