//! The state of a gate at one instant.

use std::time::Duration;

use crate::admit::{LevelStatus, RoomStats};

/// The state of a [`Gate`](super::Gate) at one instant: how many wait and run, and what happened so far.
///
/// With feature `serde` it is serialized with its fields' names, but for the wait, which is a number of seconds:
///
/// ```
/// # #[cfg(feature = "serde")] {
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// let status = QueueLayer::new(QueueConfig::new(8)).handle().status();
/// let json = serde_json::to_value(status)?;
/// assert_eq!(json["limit"], 8);
/// assert_eq!(json["stats"]["full"], 0);
/// assert_eq!(json["estimated_wait_seconds"], 0.0);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GateStatus {
    /// The number of waiting requests.
    pub depth: usize,
    /// The number of leases that are out.
    pub running: usize,
    /// The number of leases that may be out now. It changes where it adapts. 0 with `concurrency = "inner"`, where the inner
    /// service says.
    pub limit: usize,
    /// The number of requests that may wait.
    pub max_size: usize,
    /// The number of requests that were given a slot, whether they waited or not.
    pub served: u64,
    /// What happened to the others.
    pub stats: RoomStats,
    /// The time that the next arrival would probably wait: 0 while no request waits and a slot is free, else from the
    /// measured departure rate. `None` while that is not known.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "estimated_wait_seconds",
            serialize_with = "crate::admit::seconds"
        )
    )]
    pub estimated_wait: Option<Duration>,
    /// Whether the gate is closed.
    pub closed: bool,
    /// The same by level, highest first: how many wait, how many were refused, and how long one more would wait.
    pub levels: Vec<LevelStatus>,
}

#[cfg(all(test, feature = "serde", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_serialized_with_its_wait_in_seconds() {
        let stats = RoomStats {
            timed_out: 3,
            ..RoomStats::default()
        };
        let status = GateStatus {
            depth: 1,
            running: 2,
            limit: 2,
            max_size: 100,
            served: 7,
            stats,
            estimated_wait: Some(Duration::from_millis(1_500)),
            closed: false,
            levels: Vec::new(),
        };
        let json = serde_json::to_value(status).unwrap();
        assert_eq!(json["depth"], 1);
        assert_eq!(json["stats"]["timed_out"], 3);
        assert_eq!(json["estimated_wait_seconds"], 1.5);
        assert_eq!(json.as_object().unwrap().len(), 9);
    }
}
