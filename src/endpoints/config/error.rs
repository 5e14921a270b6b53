//! Errors and warnings of a routing configuration.

use super::StrategyChoice;

/// What is wrong with a [`RoutingConfig`](crate::route::RoutingConfig): the field, and what is allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRouting {
    /// The weights of `smart` do not sum to 100.
    #[error(
        "`weights` (priority {priority}, load {load}, latency {latency}) sum to {}: they must sum to 100",
        u64::from(*priority) + u64::from(*load) + u64::from(*latency)
    )]
    Weights {
        /// What the endpoint's priority weighs.
        priority: u32,
        /// What its load weighs.
        load: u32,
        /// What its latency weighs.
        latency: u32,
    },
    /// Aliases form a cycle.
    #[error("`aliases` lead in a circle: {}", chain.join(" → "))]
    AliasCycle {
        /// The names, from one of them back to itself.
        chain: Vec<String>,
    },
    /// An alias or its target has no name.
    #[error("the alias {alias:?} = {target:?} has an empty name")]
    EmptyAlias {
        /// The alias.
        alias: String,
        /// What it stands for.
        target: String,
    },
    /// A model with fallbacks, or one of them, has no name.
    #[error("the `fallbacks` of {model:?} have an empty name")]
    EmptyFallback {
        /// The model of the fallbacks.
        model: String,
    },
    /// The share of retries is not from 0 to 1.
    #[error("`retry_share` = {share} must be between 0 and 1")]
    RetryShare {
        /// What it is.
        share: f64,
    },
    /// The share of endpoints that may be ejected is above 100 per cent.
    #[error("`max_ejected_percent` = {percent} must be between 0 and 100")]
    MaxEjectedPercent {
        /// What it is.
        percent: u32,
    },
    /// Ejections would end at once.
    #[error("`eject_seconds` must be above 0; to eject no endpoint, set `eject_after` = 0")]
    NoEjection,
}

/// What may be a mistake in a [`RoutingConfig`](crate::route::RoutingConfig).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoutingWarning {
    /// There is no such strategy.
    #[error(
        "`strategy` = {name:?} is unknown and \"smart\" is used: the choices are {}",
        StrategyChoice::NAMES.join(", ")
    )]
    UnknownStrategy {
        /// What it is called.
        name: String,
    },
    /// The target of an alias is an alias itself.
    #[error(
        "the alias {alias:?} stands for {target:?}, which is an alias itself: aliases have one level, so it is not followed further"
    )]
    AliasOfAlias {
        /// The alias.
        alias: String,
        /// What it stands for.
        target: String,
    },
}
