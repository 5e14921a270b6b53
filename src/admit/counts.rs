//! What became of those who arrived.

use super::Rejected;

/// How many requests were rejected, by reason, and how many left. Counted from the start; never reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Left before they were answered, or before they took the slot that they were given: their caller went
    /// away.
    pub cancelled: u64,
    /// Leases that were put back at once: the request had left, or the slot went to a better one.
    pub unclaimed: u64,
    /// [`Rejected::Full`].
    pub full: u64,
    /// [`Rejected::TenantFull`].
    pub tenant_full: u64,
    /// [`Rejected::TimedOut`].
    pub timed_out: u64,
    /// [`Rejected::DeadlinePassed`].
    pub deadline_passed: u64,
    /// [`Rejected::Disabled`].
    pub disabled: u64,
    /// [`Rejected::MayNotWait`].
    pub may_not_wait: u64,
    /// [`Rejected::Displaced`].
    pub displaced: u64,
    /// [`Rejected::ShuttingDown`].
    pub shutting_down: u64,
    /// [`Rejected::Never`].
    pub never: u64,
}

impl Counts {
    pub(crate) fn reject<N>(&mut self, why: &Rejected<N>) {
        *self.of(why) += 1;
    }

    pub(crate) fn unreject<N>(&mut self, why: &Rejected<N>) {
        *self.of(why) -= 1;
    }

    fn of<N>(&mut self, why: &Rejected<N>) -> &mut u64 {
        match why {
            Rejected::Full => &mut self.full,
            Rejected::TenantFull => &mut self.tenant_full,
            Rejected::TimedOut => &mut self.timed_out,
            Rejected::DeadlinePassed => &mut self.deadline_passed,
            Rejected::Disabled => &mut self.disabled,
            Rejected::MayNotWait => &mut self.may_not_wait,
            Rejected::Displaced => &mut self.displaced,
            Rejected::ShuttingDown => &mut self.shutting_down,
            Rejected::Never(_) => &mut self.never,
        }
    }

    /// All rejections.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.full
            + self.tenant_full
            + self.timed_out
            + self.deadline_passed
            + self.disabled
            + self.may_not_wait
            + self.displaced
            + self.shutting_down
            + self.never
    }
}
