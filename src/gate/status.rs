//! The state of a gate at one instant.

use std::time::Duration;

use crate::admit::{LevelStatus, RoomStats};

/// The state of a [`Gate`](super::Gate) at one instant: the requests that wait and run, and the totals so far.
///
/// With feature `serde`, it is serialized with its fields' names. The estimated wait is serialized as a number of
/// seconds:
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
    /// The number of leases that may be out now. It changes if the limit adapts. It is 0 with `concurrency = "inner"`,
    /// because the inner service then decides.
    pub limit: usize,
    /// The number of requests that may wait.
    pub max_size: usize,
    /// The number of requests that were given a slot, with or without a wait.
    pub served: u64,
    /// The numbers of requests that were not served, by reason.
    pub stats: RoomStats,
    /// The time that the next arrival would probably wait. It is 0 while a slot is free and the waiting room is empty,
    /// and is otherwise computed from the measured departure rate. `None` until that rate is known.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "estimated_wait_seconds",
            serialize_with = "crate::admit::seconds"
        )
    )]
    pub estimated_wait: Option<Duration>,
    /// The number of slots per second that came back lately while requests waited for them. `None` until that was
    /// measured.
    pub slots_per_second: Option<f64>,
    /// `true` once the gate is closed.
    pub closed: bool,
    /// The status of each priority level, highest first: its waiters, its rejections and its estimated wait.
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
            slots_per_second: None,
            closed: false,
            levels: Vec::new(),
        };
        let json = serde_json::to_value(status).unwrap();
        assert_eq!(json["depth"], 1);
        assert_eq!(json["stats"]["timed_out"], 3);
        assert_eq!(json["estimated_wait_seconds"], 1.5);
        assert_eq!(json.as_object().unwrap().len(), 10);
    }
}
