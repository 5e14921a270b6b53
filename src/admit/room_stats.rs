//! Counts of the requests that left a waiting room without being served.

use super::RejectReason;

/// How many requests were rejected, by reason, and how many left. Counted from the start; never reset.
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
    /// Requests of callers that went away before they were answered, or before they took the slot that they were given;
    /// and with `concurrency = "inner"`, those that ended by the inner service's error before they had a slot.
    pub cancelled: u64,
    /// Leases that were put back at once: the request had left, or the slot went to a better one.
    pub unclaimed: u64,
    /// [`RejectReason::Full`].
    pub full: u64,
    /// [`RejectReason::Overloaded`].
    pub overloaded: u64,
    /// [`RejectReason::TenantFull`].
    pub tenant_full: u64,
    /// [`RejectReason::TimedOut`].
    pub timed_out: u64,
    /// [`RejectReason::DeadlinePassed`].
    pub deadline_passed: u64,
    /// [`RejectReason::Disabled`].
    pub disabled: u64,
    /// [`RejectReason::NotQueued`].
    pub not_queued: u64,
    /// [`RejectReason::Displaced`].
    pub displaced: u64,
    /// [`RejectReason::ShuttingDown`].
    pub shutting_down: u64,
    /// [`RejectReason::Unservable`].
    pub unservable: u64,
}

impl RoomStats {
    pub(crate) fn reject<N>(&mut self, why: &RejectReason<N>) {
        *self.of(why) += 1;
    }

    fn of<N>(&mut self, why: &RejectReason<N>) -> &mut u64 {
        match why {
            RejectReason::Full => &mut self.full,
            RejectReason::Overloaded { .. } => &mut self.overloaded,
            RejectReason::TenantFull => &mut self.tenant_full,
            RejectReason::TimedOut => &mut self.timed_out,
            RejectReason::DeadlinePassed => &mut self.deadline_passed,
            RejectReason::Disabled => &mut self.disabled,
            RejectReason::NotQueued => &mut self.not_queued,
            RejectReason::Displaced => &mut self.displaced,
            RejectReason::ShuttingDown => &mut self.shutting_down,
            RejectReason::Unservable(_) => &mut self.unservable,
        }
    }

    /// All rejections.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.full
            + self.overloaded
            + self.tenant_full
            + self.timed_out
            + self.deadline_passed
            + self.disabled
            + self.not_queued
            + self.displaced
            + self.shutting_down
            + self.unservable
    }
}
