//! The state of one priority level of a waiting room at one instant.

use std::time::Duration;

use super::RoomStats;

/// The state of one priority level at one instant: how many wait, how many were refused, and how long one more would wait.
///
/// With feature `serde` it is serialized with its fields' names, but for the two times, which are numbers of seconds:
///
/// ```
/// # #[cfg(feature = "serde")] {
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// let status = QueueLayer::new(QueueConfig::new(8)).handle().status();
/// let json = serde_json::to_value(&status.levels)?;
/// assert_eq!(json[0]["name"], "high");
/// assert_eq!(json[0]["stats"]["overloaded"], 0);
/// assert_eq!(json[0]["estimated_wait_seconds"], 0.0); // a slot is free
/// # }
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStatus {
    /// Its name.
    pub name: String,
    /// How many requests wait at this level. One that was promoted waits at the level that it has now.
    pub waiting: usize,
    /// What happened to requests of this level that were not served, since the start. `unclaimed` is 0: those leases are
    /// counted for all levels together.
    ///
    /// A request that was refused because the room was full, before its level was read, is counted for no level: only a
    /// [classifier](crate::queue::Classify::priority) that does not say it has such.
    pub stats: RoomStats,
    /// For how long an arrival would wait, behind all that wait at this level and above; zero if it would find a slot
    /// free. Where requests wait for different slots, the longest. `None` until it is known how fast slots come back.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "estimated_wait_seconds", serialize_with = "seconds")
    )]
    pub estimated_wait: Option<Duration>,
    /// The predicted wait from which on arrivals are refused, of callers that name no deadline (see
    /// [`TargetWait`](super::TargetWait)). `None` without a target.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "target_wait_seconds", serialize_with = "seconds")
    )]
    pub target_wait: Option<Duration>,
    /// How many slots are kept for this level and those above, in all pools together (see [`ReservedSlots`](super::ReservedSlots)).
    pub reserved: usize,
    /// How many of these requests of lower levels have. A lease does not say of which level it is: if several slots are kept,
    /// or more are taken than the limit, it may be too many while no slot that comes back stays free.
    pub lent: usize,
}

#[cfg(feature = "serde")]
pub(crate) fn seconds<S: serde::Serializer>(
    wait: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&wait.map(|wait| wait.as_secs_f64()), to)
}
