//! The strategies that a configuration can choose.

use std::mem::discriminant;
use std::sync::Arc;

use crate::endpoints::strategy::{
    Strategy, Weights, built_in, least_loaded, power_of_two, prefix_affinity, priority_only,
    random, round_robin, smart,
};

/// The strategy: which of the endpoints that can serve a request now gets it.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum StrategyChoice {
    /// `smart`: the highest score of priority, load and latency.
    #[default]
    Smart,
    /// `round_robin`: one after the other, per model.
    RoundRobin,
    /// `priority_only`: the lowest priority number.
    PriorityOnly,
    /// `random`: any.
    Random,
    /// `least_loaded`: the lowest priority number; of these, the largest share of slots free.
    LeastLoaded,
    /// `power_of_two`: of two at random, the one with less in flight and less latency.
    PowerOfTwo,
    /// `prefix_affinity`: where requests with the same beginning went, unless that is overloaded.
    PrefixAffinity,
    /// A custom strategy.
    Custom(Arc<dyn Strategy>),
    /// A name that is none of these: `smart`, and worth a warning.
    Unknown(String),
}

impl StrategyChoice {
    /// The names that a configuration may use.
    pub const NAMES: [&str; 7] = [
        "smart",
        "round_robin",
        "priority_only",
        "random",
        "least_loaded",
        "power_of_two",
        "prefix_affinity",
    ];

    /// The strategy of this name; [`Unknown`](Self::Unknown) if there is none.
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

/// A custom strategy equals itself and its clones.
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
