//! The checks that a configuration of models has to pass before anything changes, and the error of one that fails.

use std::collections::HashSet;
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;

use super::{SwapConfig, SwapModel, SwapPolicy};
use crate::swap::swapper::{InstanceId, RunningInstance, Swapper};

/// The error of an invalid [`SwapConfig`]. It names the model and the key, and the values that are allowed.
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
    /// The value of a model's key is not allowed.
    #[error("model `{model}`: `{key}` is {value}: it must be {allowed}")]
    Value {
        /// The model.
        model: String,
        /// The key.
        key: &'static str,
        /// The value, in quotes if it is text.
        value: String,
        /// The values that are allowed, in words.
        allowed: &'static str,
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
    /// A `health_timeout` of 0, within which no model could start.
    #[error("`health_timeout_seconds` is 0: it must be above 0")]
    ZeroHealthTimeout,
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
    /// The memory, the groups or the matrix of the [policy](SwapPolicy) has the mistake that this message describes.
    #[error("{0}")]
    Policy(String),
}

/// The number of instances that a model may have. Each is an endpoint, and has a port while it runs.
const MOST_INSTANCES: u32 = 1_000;

impl SwapConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// Fails with the first mistake: the model and the key, and the values that are allowed.
    pub fn validate(&self) -> Result<(), InvalidSwap> {
        let mut names = HashSet::new();
        for model in &self.models {
            model.validate()?;
            if let Some(name) = model
                .instance_names()
                .find(|name| !names.insert(name.clone()))
            {
                return Err(InvalidSwap::DuplicateModel(name));
            }
            if model.memory.is_some() && !matches!(self.policy, SwapPolicy::Memory(_)) {
                return Err(InvalidSwap::NoBudget(model.model.name.clone()));
            }
        }
        if self.health_timeout.is_zero() {
            return Err(InvalidSwap::ZeroHealthTimeout);
        }
        let is_there = |name: &String| self.models.iter().any(|model| model.model.name == *name);
        if let Some(name) = self.default.as_ref().filter(|name| !is_there(name)) {
            return Err(InvalidSwap::UnknownDefault(name.clone()));
        }
        self.pinned_fit(&*self.swapper()?)
    }

    /// Checks that all pinned models can run together.
    fn pinned_fit(&self, swapper: &dyn Swapper) -> Result<(), InvalidSwap> {
        let models = self.models.iter();
        let of_instance: Vec<&SwapModel> = models
            .flat_map(|model| std::iter::repeat_n(model, model.instances as usize))
            .collect();
        let mut running: Vec<RunningInstance> = Vec::new();
        let check = |target: InstanceId, running: &[RunningInstance]| {
            let plan = swapper.plan(target, running);
            let name = |InstanceId(id): InstanceId| of_instance[id as usize].model.name.clone();
            match plan.evict.first() {
                None => Ok(plan),
                Some(&other) => Err(InvalidSwap::Pinned {
                    model: name(target),
                    other: name(other),
                }),
            }
        };
        for (id, model) in (0..).map(InstanceId).zip(&of_instance) {
            if model.pinned {
                let plan = check(id, &running)?;
                running.push(RunningInstance {
                    pool: plan.pool,
                    memory: plan.memory,
                    ..RunningInstance::new(id)
                });
            }
        }
        // A model that starts last may have to stop others that would not stop it.
        for nth in 0..running.len() {
            let mut others = running.clone();
            let target = others.remove(nth);
            check(target.id, &others)?;
        }
        Ok(())
    }
}

impl SwapModel {
    fn validate(&self) -> Result<(), InvalidSwap> {
        let name = || self.model.name.clone();
        if self.model.name.is_empty() {
            return Err(InvalidSwap::EmptyName);
        }
        if self.model.name.contains(char::is_control) {
            return Err(InvalidSwap::BadName(name()));
        }
        let refused = |key, value, allowed| {
            let model = name();
            Err(InvalidSwap::Value {
                model,
                key,
                value,
                allowed,
            })
        };
        let lines = [
            ("cmd", Some(&self.cmd)),
            ("stop_cmd", self.stop_cmd.as_ref()),
        ];
        for (key, line) in lines {
            let Some(line) = line else { continue };
            if shell_words::split(line).map_or(true, |words| words.is_empty()) {
                return refused(
                    key,
                    format!("{line:?}"),
                    "a command line with closed quotes",
                );
            }
        }
        let is_bad = |(name, value): &(&String, &String)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        };
        if let Some((variable, _)) = self.env.iter().find(is_bad) {
            return Err(InvalidSwap::Variable {
                model: name(),
                name: variable.clone(),
            });
        }
        let is_zero = |duration| duration == Some(Duration::ZERO);
        let zeros = [
            ("context_length", self.model.context_length == Some(0)),
            ("evict_cost", self.evict_cost == 0),
            ("concurrency", self.concurrency == 0),
            ("instances", self.instances == 0),
            ("health_interval_seconds", is_zero(self.health_interval)),
            ("hang_seconds", is_zero(self.hang_timeout)),
            ("ttl_seconds", is_zero(self.ttl)),
            ("start_timeout_seconds", is_zero(self.start_timeout)),
        ];
        if let Some((key, _)) = zeros.into_iter().find(|(_, is_zero)| *is_zero) {
            return refused(key, "0".to_owned(), "above 0");
        }
        if self.instances > MOST_INSTANCES {
            return refused("instances", self.instances.to_string(), "at most 1000");
        }
        let paths = [
            ("health_path", &self.health_path),
            ("progress_path", &self.progress_path),
            ("sleep_path", &self.sleep_path),
            ("wake_path", &self.wake_path),
        ];
        for (key, path) in paths {
            let Some(path) = path else { continue };
            if !path.starts_with('/') || path.parse::<PathAndQuery>().is_err() {
                return refused(key, format!("{path:?}"), "a path that begins with `/`");
            }
        }
        let has_host = |url: &Uri| url.scheme_str() == Some("http") && url.query().is_none();
        if let Some(url) = self.proxy.as_ref().filter(|url| !has_host(url)) {
            return refused(
                "proxy",
                format!("{:?}", url.to_string()),
                "a URL that begins with `http://` and has no query",
            );
        }
        match self.sleep_path.is_some() == self.wake_path.is_some() {
            true => Ok(()),
            false => Err(InvalidSwap::HalfSleep(name())),
        }
    }
}
