//! Counts of the requests that left a waiting room without being served.

use super::RejectReason;

/// The numbers of requests that were rejected, by reason, or that left. They count from the start and are never reset.
///
/// ```
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// let stats = QueueLayer::new(QueueConfig::new(8)).handle().status().stats;
/// assert_eq!((stats.full, stats.rejected()), (0, 0));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RoomStats {
    /// Requests whose callers left before they were answered, or before they took the slot that they were given. With
    /// `concurrency = "inner"`, requests also count here if the inner service failed before they had a slot.
    pub cancelled: u64,
    /// Leases that were put back at once, because the request had left or a better request got the slot.
    pub unclaimed: u64,
    /// Requests that were rejected as [`RejectReason::Full`] or as [`RejectReason::Shed`].
    pub full: u64,
    /// Requests that were rejected as [`RejectReason::Overloaded`].
    pub overloaded: u64,
    /// Requests that were rejected as [`RejectReason::TenantFull`].
    pub tenant_full: u64,
    /// Requests that were rejected as [`RejectReason::TimedOut`].
    pub timed_out: u64,
    /// Requests that were rejected as [`RejectReason::DeadlinePassed`].
    pub deadline_passed: u64,
    /// Requests that were rejected as [`RejectReason::Disabled`].
    pub disabled: u64,
    /// Requests that were rejected as [`RejectReason::NotQueued`].
    pub not_queued: u64,
    /// Requests that were rejected as [`RejectReason::Displaced`].
    pub displaced: u64,
    /// Requests that were rejected as [`RejectReason::ShuttingDown`].
    pub shutting_down: u64,
    /// Requests that were rejected as [`RejectReason::Unservable`].
    pub unservable: u64,
}

impl RoomStats {
    pub(crate) fn reject<N>(&mut self, why: &RejectReason<N>) {
        let count = match why {
            RejectReason::Full | RejectReason::Shed => &mut self.full,
            RejectReason::Overloaded { .. } => &mut self.overloaded,
            RejectReason::TenantFull => &mut self.tenant_full,
            RejectReason::TimedOut => &mut self.timed_out,
            RejectReason::DeadlinePassed => &mut self.deadline_passed,
            RejectReason::HeldTooLong | RejectReason::Stalled => return, // the room gave it a slot
            RejectReason::Disabled => &mut self.disabled,
            RejectReason::NotQueued => &mut self.not_queued,
            RejectReason::Displaced => &mut self.displaced,
            RejectReason::ShuttingDown => &mut self.shutting_down,
            RejectReason::Unservable(_) => &mut self.unservable,
        };
        *count += 1;
    }

    /// Returns the number of rejections for each error code.
    ///
    /// All requests that no endpoint can ever serve share the code `unservable` here, although their errors have many codes.
    /// Requests that are shed count as `queue_full`. A router's requests that must not wait are streams.
    #[must_use]
    pub fn by_code(&self) -> [(&'static str, u64); 10] {
        [
            ("queue_full", self.full),
            ("overloaded", self.overloaded),
            ("tenant_queue_full", self.tenant_full),
            ("queue_timeout", self.timed_out),
            ("deadline_exceeded", self.deadline_passed),
            ("queue_disabled", self.disabled),
            ("streaming_not_queued", self.not_queued),
            ("displaced", self.displaced),
            ("shutting_down", self.shutting_down),
            ("unservable", self.unservable),
        ]
    }

    /// Returns the number of all rejections.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.by_code().iter().map(|(_, count)| count).sum()
    }
}
