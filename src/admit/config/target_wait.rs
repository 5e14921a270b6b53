//! How long a wait may get before arrivals are refused.

use std::time::Duration;

/// How long a wait may get before arrivals are refused as [`Overloaded`](crate::RejectReason::Overloaded).
///
/// A room that is bounded by number alone fills up in overload, and each request then waits for nearly as long as its
/// caller does. So an arrival that would have to wait for longer than the target is told at once: the more longer, the
/// more likely, and always from twice the target on. One that no waiter goes before is let in. But a request that names a
/// deadline, and would not be answered by then, is refused whatever the target; where no waiter goes before it, now and then
/// one is let in, to see whether the service is as slow as it was.
///
/// The target holds in lasting overload. It grows with the share of the slots that was idle lately (by the square, up to
/// a share of 0.18), so that bursts are let in as long as they can still be served in time: as a longer queue is worth
/// something only where slots would be idle without it. What lower levels had counts as idle, unless levels have
/// weights; and with the discipline `fair`, or with weights, so does what others had beyond their shares. Where no wait
/// is too long (without `max_wait`, for callers that name no deadline), the target does not grow.
///
/// In a configuration file: a number of seconds, which may be a fraction, `"auto"` or `"none"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TargetWait {
    /// About a tenth (9.5 %) of the caller's patience: of the time until its deadline; for callers that name none, of the time after which
    /// others were seen to give up; and of `max_wait`, if that is less.
    #[default]
    Auto,
    /// This long.
    After(Duration),
    /// No arrival is refused for its wait.
    Off,
}

impl From<Duration> for TargetWait {
    fn from(target: Duration) -> Self {
        Self::After(target)
    }
}
