//! The predicted wait from which on arrivals are refused.

use std::time::Duration;

/// The predicted wait from which on arrivals are refused as [`Overloaded`](crate::RejectReason::Overloaded).
///
/// A room that is bounded by number alone fills up in overload, and each request then waits for nearly as long as its
/// caller does. So the room predicts the wait of each arrival. From the target on it refuses a growing share of the
/// arrivals, and from twice the target on all of them. The head of the queue is always let in. A request that names a
/// deadline is refused if even the shortest of the latest services of its lane would end too late; where no waiter goes
/// before it, one is let in now and then, to see whether the service is as slow as it was.
///
/// The room does not learn how long callers wait, because clients could teach it to refuse others. If you know how long your
/// callers wait, set `max_wait`.
///
/// In a configuration file: a number of seconds, which may be a fraction, `"auto"` or `"none"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TargetWait {
    /// The mean service time × max(1/8, 3 ÷ slots) of the first pool that could serve the request. A queue of that length
    /// keeps the slots busy, and a longer one only adds to the waits. The target grows with the share of the slots that was
    /// idle lately, up to a share of 0.18, so that bursts are let in: up to `max_wait`, or 30 s without it. It grows by the
    /// square of that share; for callers that name no deadline by the fourth power, unless tenants or levels have shares:
    /// these callers may have left when their turn comes. A request that would get its slot too late for its deadline is
    /// refused in bursts, too. "Lately" is 10 service times, at least 10 s and at most 60 s. Slots that lower levels had count
    /// as idle, unless levels have weights; with the discipline `fair`, or with weights, so do slots that others had beyond
    /// their shares.
    #[default]
    Auto,
    /// A fixed target, which holds from the first request on, and in bursts. An arrival whose predicted wait is twice as long
    /// is refused. So is a request that has waited for twice as long, not counting the load of its model, because a
    /// prediction may be wrong, and a service may slow down. Only the next of its lane goes on waiting then, and the next of
    /// a tenant that has all its slots.
    After(Duration),
    /// Every arrival may wait, however long its predicted wait is.
    Off,
}

impl From<Duration> for TargetWait {
    fn from(target: Duration) -> Self {
        Self::After(target)
    }
}
