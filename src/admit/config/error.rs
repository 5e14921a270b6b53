//! Errors of the configuration of a waiting room.

use crate::admit::Tenant;

/// The reason why a [`WaitingRoomConfig`](super::WaitingRoomConfig) is invalid, with the field, its value, and the
/// allowed values.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidWaitingRoom {
    /// The interval of promotions is 0, so every waiter would be promoted at once.
    #[error("`promote_after_seconds` is 0: it must be above 0, or \"none\"")]
    ZeroPromoteAfter,
    /// The weight of this tenant is 0, so it would never be served.
    #[error("`tenant_weights` gives \"{0}\" the weight 0: a weight must be at least 1")]
    ZeroWeight(Tenant),
    /// The field names a level that does not exist.
    #[error("`{field}` names the level \"{name}\": it must be one of \"{levels}\"")]
    UnknownLevel {
        /// The name of the field, which is `reserve` or `level_weights`.
        field: &'static str,
        /// The unknown name.
        name: String,
        /// The names of the existing levels.
        levels: String,
    },
    /// The value is not a share of a pool's slots.
    #[error(
        "`reserve` keeps a share of {share} for \"{name}\": it must be from 0 to 1 (\"0%\" to \"100%\")"
    )]
    ReserveShare {
        /// The level that the share is for.
        name: String,
        /// The invalid share.
        share: f64,
    },
    /// The weight of this level is 0, so it would never be served.
    #[error("`level_weights` gives \"{0}\" the weight 0: a weight must be at least 1")]
    ZeroLevelWeight(String),
    /// Two values are given for one level.
    #[error("`{field}` names the level \"{level}\" twice (case is ignored)")]
    LevelTwice {
        /// The name of the field, which is `reserve` or `level_weights`.
        field: &'static str,
        /// The level that is named twice.
        level: String,
    },
    /// Levels can't have weights beside a setting for strict levels.
    #[error(
        "`level_weights` and {0} exclude each other, because {0} is for strict levels: leave one of them out"
    )]
    LevelWeightsBeside(&'static str),
}
