//! Errors and warnings of a routing configuration.

use crate::short_number::Short;

/// The reason why a [`RoutingConfig`](crate::route::RoutingConfig) is invalid, with the field and the values that are
/// allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRouting {
    /// The weights of `smart` do not sum to 100.
    #[error(
        "`weights` (priority {priority}, load {load}, latency {latency}) sum to {}: they must sum to 100",
        u64::from(*priority) + u64::from(*load) + u64::from(*latency)
    )]
    Weights {
        /// The weight of an endpoint's priority.
        priority: u32,
        /// The weight of the requests that an endpoint has in flight.
        load: u32,
        /// The weight of an endpoint's latency.
        latency: u32,
    },
    /// Aliases lead in a circle, so that they name no model.
    #[error("`aliases` lead in a circle: {}", chain.join(" → "))]
    AliasCycle {
        /// The names in the circle, from one of them back to itself.
        chain: Vec<String>,
    },
    /// An alias or its target is an empty string.
    #[error("the alias {alias:?} = {target:?} has an empty name")]
    EmptyAlias {
        /// The name that stands for another one.
        alias: String,
        /// The name that the alias stands for.
        target: String,
    },
    /// A model with fallbacks, or one of its fallbacks, is an empty string.
    #[error("the `fallbacks` of {model:?} have an empty name")]
    EmptyFallback {
        /// The model that the fallbacks belong to.
        model: String,
    },
    /// The share of retries is outside the range from 0 to 1.
    #[error("`retry_share` = {} must be between 0 and 1", Short(*share))]
    RetryShare {
        /// The share that was configured.
        share: f64,
    },
    /// The share of endpoints that may be ejected is above 100 per cent.
    #[error("`max_ejected_percent` = {percent} must be between 0 and 100")]
    MaxEjectedPercent {
        /// The percentage that was configured.
        percent: u32,
    },
    /// The duration of an ejection is 0, so that each ejection would end at once.
    #[error("`eject_seconds` must be above 0; to eject no endpoint, set `eject_after` = 0")]
    NoEjection,
}

/// A value in a [`RoutingConfig`](crate::route::RoutingConfig) that is allowed and may be a mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoutingWarning {
    /// The target of an alias is an alias itself, and is not followed further.
    #[error(
        "the alias {alias:?} stands for {target:?}, which is an alias itself: aliases have one level, so it is not followed further"
    )]
    AliasOfAlias {
        /// The name that stands for another alias.
        alias: String,
        /// The other alias, which is the target of the first one.
        target: String,
    },
}
