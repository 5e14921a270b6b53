//! The error of an invalid configuration of models.

use std::fmt;

use super::validate::MOST_INSTANCES;

/// The error of an invalid [`SwapConfig`](super::SwapConfig). It names the model and the key, and the values that are
/// allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSwap {
    /// A model has an empty name, by which requests can't ask for it.
    #[error("a model has an empty name")]
    EmptyName,
    /// A name that can't be shown in a header.
    #[error("model {0:?} has control characters in its name")]
    BadName(String),
    /// Two models with the same name, or a model with the name of a further instance of another one.
    #[error(
        "model `{0}` is there twice; the further instances of a model have its name with `#2` and so on"
    )]
    DuplicateModel(String),
    /// A command line that can't be split into words, or is empty.
    #[error("model `{model}`: `{key}` is {line:?}: it must be a command line with closed quotes")]
    Command {
        /// The model.
        model: String,
        /// `cmd` or `stop_cmd`.
        key: &'static str,
        /// The command line.
        line: String,
    },
    /// A variable that can't be in the environment of a process.
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
    /// A number of a model that is 0 and has to be above.
    #[error("model `{model}`: `{key}` is 0: it must be above 0")]
    Zero {
        /// The model.
        model: String,
        /// The key.
        key: &'static str,
    },
    /// A model with more instances than are allowed.
    #[error("model `{model}`: `instances` is {instances}: it must be at most {MOST_INSTANCES}")]
    TooManyInstances {
        /// The model.
        model: String,
        /// The number of instances, which is above the limit.
        instances: u32,
    },
    /// A `health_timeout` of 0, within which no model could start.
    #[error("`health_timeout_seconds` is 0: it must be above 0")]
    ZeroHealthTimeout,
    /// The value of a key is not a path that a request can have.
    #[error("model `{model}`: `{key}` is {path:?}: it must be a path that begins with `/`")]
    Path {
        /// The model.
        model: String,
        /// The key.
        key: &'static str,
        /// Its value.
        path: String,
    },
    /// A model that could be put to sleep but not woken, or the reverse.
    #[error("model `{0}`: `sleep_path` and `wake_path` need each other: set both or none")]
    HalfSleep(String),
    /// The default model is not one of the configured models.
    #[error("`default` is `{0}`, and there is no such model")]
    UnknownDefault(String),
    /// A model has an amount of memory, and the configuration has no budget for it.
    #[error("model `{0}` has `memory`, and there is no budget: set `memory` or `pools` for all")]
    NoBudget(String),
    /// Pinned models of which one would have to stop for another.
    #[error(
        "models `{model}` and `{other}` are `pinned`, and may not run together with all that are"
    )]
    Pinned {
        /// A model.
        model: String,
        /// Another model, which would have to stop for the first one.
        other: String,
    },
    /// The memory, the groups or the matrix of the [policy](super::SwapPolicy) has the mistake that this message describes.
    #[error("{0}")]
    Policy(String),
}

impl InvalidSwap {
    pub(super) fn policy(error: impl fmt::Display) -> Self {
        Self::Policy(error.to_string())
    }
}
