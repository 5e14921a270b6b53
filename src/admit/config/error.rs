//! Errors of the configuration of a waiting room.

use crate::admit::Tenant;

/// A [`WaitingRoomConfig`](super::WaitingRoomConfig) that makes no sense: which field, its value, and what is allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidWaitingRoom {
    /// Every waiter would be promoted at once.
    #[error("`promote_after_seconds` is 0: it must be above 0, or \"none\"")]
    ZeroPromoteAfter,
    /// This tenant would never be served.
    #[error("`tenant_weights` gives \"{0}\" the weight 0: a weight must be at least 1")]
    ZeroWeight(Tenant),
    /// There is no such level.
    #[error("`reserve` names the level \"{name}\": it must be one of \"{levels}\"")]
    ReserveLevel {
        /// The name.
        name: String,
        /// The levels that there are.
        levels: String,
    },
    /// Not a share of a pool's slots.
    #[error(
        "`reserve` keeps a share of {share} for \"{name}\": it must be from 0 to 1 (\"0%\" to \"100%\")"
    )]
    ReserveShare {
        /// The level.
        name: String,
        /// The share.
        share: f64,
    },
    /// There is no such level.
    #[error("`level_weights` names the level \"{name}\": it must be one of \"{levels}\"")]
    LevelWeightLevel {
        /// The name.
        name: String,
        /// The levels that there are.
        levels: String,
    },
    /// This level would never be served.
    #[error("`level_weights` gives \"{0}\" the weight 0: a weight must be at least 1")]
    ZeroLevelWeight(String),
    /// Two values for one level.
    #[error("`{field}` names the level \"{level}\" twice (case is ignored)")]
    LevelTwice {
        /// `reserve` or `level_weights`.
        field: &'static str,
        /// The level.
        level: String,
    },
    /// Levels have weights, or they are strict.
    #[error(
        "`level_weights` and {0} exclude each other, because {0} is for strict levels: leave one of them out"
    )]
    LevelWeightsBeside(&'static str),
    /// Without a target no queue stands.
    #[error(
        "`lifo_when_standing` is true with `target_wait = \"none\"`: it needs a target, seconds or \"auto\""
    )]
    LifoNeedsTarget,
    /// The order is that of the deadlines.
    #[error(
        "`lifo_when_standing` is true with `discipline = \"deadline\"`: it must be \"fifo\" or \"fair\""
    )]
    LifoByDeadline,
}
