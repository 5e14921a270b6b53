//! The strategies that a configuration can choose.

use std::mem::discriminant;
use std::str::FromStr;
use std::sync::Arc;

use crate::endpoints::strategy::{
    Candidates, Choice, Strategy, Weights, power_of_two, prefix_affinity, simple, smart,
};

/// The choice of a strategy, which picks one of the endpoints that can serve a request now.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum StrategyChoice {
    /// Picks the endpoint with the highest score of priority, load and latency. Its name is `smart`.
    #[default]
    Smart,
    /// Picks the endpoints of a model one after the other. Its name is `round_robin`.
    RoundRobin,
    /// Picks the endpoint with the lowest priority number. Its name is `priority_only`.
    PriorityOnly,
    /// Picks any endpoint, each with the same probability. Its name is `random`.
    Random,
    /// Picks the largest share of free slots among the endpoints with the lowest priority number. Its name is
    /// `least_loaded`.
    LeastLoaded,
    /// Draws two endpoints and picks the one with less in flight and less latency. Its name is `power_of_two`.
    PowerOfTwo,
    /// Picks the endpoint that served requests with the same beginning, unless it is overloaded. Its name is
    /// `prefix_affinity`.
    PrefixAffinity,
    /// A strategy of your own, which cannot be named in a configuration file.
    Custom(Arc<dyn Strategy>),
}

impl StrategyChoice {
    /// The names that a configuration file may use.
    pub const NAMES: [&str; 7] = [
        "smart",
        "round_robin",
        "priority_only",
        "random",
        "least_loaded",
        "power_of_two",
        "prefix_affinity",
    ];

    /// Returns the name of the strategy.
    pub(in crate::endpoints) fn name(&self) -> &'static str {
        match self {
            Self::Smart => "smart",
            Self::RoundRobin => "round_robin",
            Self::PriorityOnly => "priority_only",
            Self::Random => "random",
            Self::LeastLoaded => "least_loaded",
            Self::PowerOfTwo => "power_of_two",
            Self::PrefixAffinity => "prefix_affinity",
            Self::Custom(strategy) => strategy.name(),
        }
    }

    /// Returns `true` if the strategy may read the prefix of a request.
    pub(in crate::endpoints) fn reads_prefixes(&self) -> bool {
        match self {
            Self::Smart
            | Self::RoundRobin
            | Self::PriorityOnly
            | Self::Random
            | Self::LeastLoaded
            | Self::PowerOfTwo => false,
            Self::PrefixAffinity => true,
            Self::Custom(strategy) => strategy.reads_prefixes(),
        }
    }

    /// Chooses one of the candidates. Only `smart` uses the `weights`.
    pub(in crate::endpoints) fn choose<'a>(
        &self,
        weights: Weights,
        candidates: &Candidates<'a>,
    ) -> Option<Choice<'a>> {
        match self {
            Self::Smart => smart::choose(weights, candidates),
            Self::RoundRobin => simple::round_robin(candidates),
            Self::PriorityOnly => simple::priority_only(candidates),
            Self::Random => simple::random(candidates),
            Self::LeastLoaded => simple::least_loaded(candidates),
            Self::PowerOfTwo => power_of_two::choose(candidates),
            Self::PrefixAffinity => prefix_affinity::choose(candidates),
            Self::Custom(strategy) => strategy.choose(candidates),
        }
    }
}

/// Finds a strategy by its name in a configuration file.
///
/// ```
/// use tower_triage::route::StrategyChoice;
///
/// assert_eq!("least_loaded".parse(), Ok(StrategyChoice::LeastLoaded));
/// assert!("fastest".parse::<StrategyChoice>().is_err());
/// ```
impl FromStr for StrategyChoice {
    type Err = UnknownStrategy;

    /// Returns the strategy with this name, which is one of [`NAMES`](Self::NAMES).
    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        use StrategyChoice::*;
        let choices = [
            Smart,
            RoundRobin,
            PriorityOnly,
            Random,
            LeastLoaded,
            PowerOfTwo,
            PrefixAffinity,
        ];
        let mut choices = choices.into_iter();
        let found = choices.find(|choice| choice.name() == name);
        found.ok_or_else(|| UnknownStrategy {
            name: name.to_owned(),
        })
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for StrategyChoice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

/// A name that no strategy of the crate has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is unknown: the choices are {}", StrategyChoice::NAMES.join(", "))]
#[non_exhaustive]
pub struct UnknownStrategy {
    /// The name that was given.
    pub name: String,
}

/// Compares custom strategies by identity, so that one equals itself and its clones.
impl PartialEq for StrategyChoice {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Custom(one), Self::Custom(other)) => Arc::ptr_eq(one, other),
            _ => discriminant(self) == discriminant(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_strategies_are_equal_by_identity() {
        use StrategyChoice::{Custom, Random, Smart};

        #[derive(Debug)]
        struct Own;

        impl Strategy for Own {
            fn name(&self) -> &'static str {
                "own"
            }

            fn choose<'a>(&self, _: &Candidates<'a>) -> Option<Choice<'a>> {
                None
            }
        }

        assert!(Random == Random && Random != Smart);
        let new = || Custom(Arc::new(Own));
        let own = new();
        assert!(own == own.clone());
        assert!(own != new() && own != Random);
    }

    #[test]
    fn each_name_selects_the_strategy_of_that_name() {
        for name in StrategyChoice::NAMES {
            let choice: StrategyChoice = name.parse().unwrap();
            assert_eq!(choice.name(), name);
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_choices() {
        let error = "best".parse::<StrategyChoice>().unwrap_err().to_string();
        let choices = StrategyChoice::NAMES.join(", ");
        assert_eq!(
            error,
            format!("\"best\" is unknown: the choices are {choices}")
        );
    }
}
