//! The strategies that a configuration can choose.

use std::mem::discriminant;
use std::sync::Arc;

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
    /// An unknown name, which selects `smart` and is reported by [`warnings`](crate::route::RoutingConfig::warnings).
    Unknown(String),
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

    /// Returns the strategy with this name, or [`Unknown`](Self::Unknown) if the crate has none of that name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "smart" => Self::Smart,
            "round_robin" => Self::RoundRobin,
            "priority_only" => Self::PriorityOnly,
            "random" => Self::Random,
            "least_loaded" => Self::LeastLoaded,
            "power_of_two" => Self::PowerOfTwo,
            "prefix_affinity" => Self::PrefixAffinity,
            _ => Self::Unknown(name.to_owned()),
        }
    }

    /// Builds the strategy. Only `smart` uses the `weights`.
    pub(in crate::endpoints) fn strategy(&self, weights: Weights) -> Arc<dyn Strategy> {
        match self {
            Self::Smart | Self::Unknown(_) => built_in("smart", move |candidates| {
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

/// Compares custom strategies by identity, so that one equals itself and its clones.
impl PartialEq for StrategyChoice {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Custom(one), Self::Custom(other)) => Arc::ptr_eq(one, other),
            (Self::Unknown(one), Self::Unknown(other)) => one == other,
            _ => discriminant(self) == discriminant(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_strategies_are_equal_by_identity() {
        let named = StrategyChoice::named;
        assert!(named("random") == named("random") && named("random") != named("smart"));
        assert!(
            named("a") == named("a") && named("a") != named("b") && named("a") != named("smart")
        );
        let random = || StrategyChoice::Custom(named("random").strategy(Weights::default()));
        let own = random();
        assert!(own == own.clone());
        assert!(own != random() && own != named("random"));
    }
}
