//! The state of one priority level of a waiting room at one instant.

use std::time::Duration;

use super::RoomStats;

/// The state of one priority level at one instant: its waiters, its rejections, and the wait that an arrival would
/// have.
///
/// With the feature `serde`, the fields are serialized under their names, except for the three times, which become
/// numbers of seconds:
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
/// assert!(json[0]["oldest_seconds"].is_null()); // no request waits
/// # }
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStatus {
    /// The name of the level.
    pub name: String,
    /// The number of requests that wait at this level. A promoted request counts at the level that it has now.
    pub waiting: usize,
    /// The time since the arrival of this level's first waiter in the order of arrival. `None` while no request waits at
    /// this level.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "oldest_seconds", serialize_with = "seconds")
    )]
    pub oldest: Option<Duration>,
    /// The requests of this level that left without being served, by reason, since the start. `unclaimed` is 0 here,
    /// because those leases are counted for all levels together.
    ///
    /// A request counts for no level if it was refused before its level was read. This happens in a layer that
    /// [sheds](crate::queue::Overflow::Shed), and in a full room with a
    /// [classifier](crate::queue::Classify::priority) that leaves the priority open.
    pub stats: RoomStats,
    /// The wait of an arrival that goes behind all waiters of this level and above. It is zero if a slot is free. If
    /// requests wait for different slots, it is the longest of their waits. `None` until the room knows how fast slots
    /// come back.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "estimated_wait_seconds", serialize_with = "seconds")
    )]
    pub estimated_wait: Option<Duration>,
    /// The predicted wait above which arrivals without a deadline may be refused (see
    /// [`TargetWait`](super::TargetWait)). `None` without a target.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "target_wait_seconds", serialize_with = "seconds")
    )]
    pub target_wait: Option<Duration>,
    /// The number of slots that are reserved for this level and those above, in all pools together (see
    /// [`ReservedSlots`](super::ReservedSlots)).
    pub reserved: usize,
}

#[cfg(feature = "serde")]
pub(crate) fn seconds<S: serde::Serializer>(
    wait: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&wait.map(|wait| wait.as_secs_f64()), to)
}
