//! `[routing]`

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Routing {
    strategy: Strategy,
    max_retries: u32,
    weights: Weights,
    #[serde(deserialize_with = "aliases")]
    aliases: BTreeMap<String, String>,
    #[serde(deserialize_with = "fallbacks")]
    fallbacks: BTreeMap<String, Vec<String>>,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            strategy: Strategy::Smart,
            max_retries: 2,
            weights: Weights::default(),
            aliases: BTreeMap::new(),
            fallbacks: BTreeMap::new(),
        }
    }
}

impl Routing {
    pub(super) fn announce(&self) {
        if let Strategy::Unknown(name) = &self.strategy {
            tracing::warn!(
                "[routing] strategy = {name:?} is unknown, \"smart\" is used: the choices are \
                 \"smart\", \"round_robin\", \"priority_only\" and \"random\""
            );
        }
        let Weights {
            priority,
            load,
            latency,
        } = self.weights;
        tracing::debug!(
            strategy = self.strategy.name(),
            max_retries = self.max_retries,
            weights = ?(priority, load, latency),
            aliases = ?self.aliases,
            fallbacks = ?self.fallbacks,
            "[routing] is read but not acted on yet: by priority, then by free slots",
        );
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Strategy {
    Smart,
    RoundRobin,
    PriorityOnly,
    Random,
    /// Stands for `Smart`, and is warned of.
    Unknown(String),
}

impl Strategy {
    fn name(&self) -> &'static str {
        match self {
            Self::Smart | Self::Unknown(_) => "smart",
            Self::RoundRobin => "round_robin",
            Self::PriorityOnly => "priority_only",
            Self::Random => "random",
        }
    }
}

impl<'de> Deserialize<'de> for Strategy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Ok(match name.as_str() {
            "smart" => Self::Smart,
            "round_robin" => Self::RoundRobin,
            "priority_only" => Self::PriorityOnly,
            "random" => Self::Random,
            _ => Self::Unknown(name),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "AnyWeights")]
struct Weights {
    priority: u32,
    load: u32,
    latency: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            priority: 50,
            load: 30,
            latency: 20,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnyWeights {
    priority: Option<u32>,
    load: Option<u32>,
    latency: Option<u32>,
}

impl TryFrom<AnyWeights> for Weights {
    type Error = String;

    fn try_from(given: AnyWeights) -> Result<Self, String> {
        let default = Self::default();
        let priority = given.priority.unwrap_or(default.priority);
        let load = given.load.unwrap_or(default.load);
        let latency = given.latency.unwrap_or(default.latency);
        let sum: u64 = [priority, load, latency].into_iter().map(u64::from).sum();
        if sum == 100 {
            Ok(Self {
                priority,
                load,
                latency,
            })
        } else {
            Err(format!(
                "the weights (priority {priority}, load {load}, latency {latency}) sum to {sum}: they must sum to 100"
            ))
        }
    }
}

fn aliases<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let aliases = BTreeMap::<String, String>::deserialize(deserializer)?;
    match aliases
        .iter()
        .find(|(alias, target)| alias.is_empty() || target.is_empty())
    {
        Some((alias, target)) => Err(D::Error::custom(format_args!(
            "the alias {alias:?} = {target:?} has an empty name"
        ))),
        None => Ok(aliases),
    }
}

fn fallbacks<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let fallbacks = BTreeMap::<String, Vec<String>>::deserialize(deserializer)?;
    match fallbacks
        .iter()
        .find(|(model, chain)| model.is_empty() || chain.iter().any(String::is_empty))
    {
        Some((model, chain)) => Err(D::Error::custom(format_args!(
            "the fallbacks {model:?} = {chain:?} have an empty name"
        ))),
        None => Ok(fallbacks),
    }
}
