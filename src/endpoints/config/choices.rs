//! The strategies that a configuration can choose.

use std::mem::discriminant;
use std::str::FromStr;
use std::sync::Arc;

use super::error::UnknownStrategy;
use crate::endpoints::strategy::{
    Strategy, Weights, built_in, least_loaded, power_of_two, prefix_affinity, priority_only,
    random, round_robin, smart,
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

    /// Builds the strategy. Only `smart` uses the `weights`.
    pub(in crate::endpoints) fn strategy(&self, weights: Weights) -> Arc<dyn Strategy> {
        match self {
            Self::Smart => built_in("smart", move |candidates| {
                smart::choose(weights, candidates)
            }),
            Self::RoundRobin => built_in("round_robin", round_robin::choose),
            Self::PriorityOnly => built_in("priority_only", priority_only::choose),
            Self::Random => built_in("random", random::choose),
            Self::LeastLoaded => built_in("least_loaded", least_loaded::choose),
            Self::PowerOfTwo => built_in("power_of_two", power_of_two::choose),
            Self::PrefixAffinity => built_in("prefix_affinity", prefix_affinity::choose),
            Self::Custom(strategy) => Arc::clone(strategy),
        }
    }
}

/// Finds a strategy by the name that a configuration file gives it.
///
/// ```
/// use tower_triage::route::StrategyChoice;
///
/// assert_eq!("least_loaded".parse(), Ok(StrategyChoice::LeastLoaded));
/// assert!("fastest".parse::<StrategyChoice>().is_err());
/// ```
impl FromStr for StrategyChoice {
    type Err = UnknownStrategy;

    /// Returns the strategy with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is none of [`NAMES`](Self::NAMES).
    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        Ok(match name {
            "smart" => Self::Smart,
            "round_robin" => Self::RoundRobin,
            "priority_only" => Self::PriorityOnly,
            "random" => Self::Random,
            "least_loaded" => Self::LeastLoaded,
            "power_of_two" => Self::PowerOfTwo,
            "prefix_affinity" => Self::PrefixAffinity,
            _ => {
                let name = name.to_owned();
                return Err(UnknownStrategy { name });
            }
        })
    }
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
        assert!(Random == Random && Random != Smart);
        let random = || Custom(Random.strategy(Weights::default()));
        let own = random();
        assert!(own == own.clone());
        assert!(own != random() && own != Random);
    }

    #[test]
    fn each_name_selects_the_strategy_of_that_name() {
        for name in StrategyChoice::NAMES {
            let choice: StrategyChoice = name.parse().unwrap();
            assert_eq!(choice.strategy(Weights::default()).name(), name);
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
