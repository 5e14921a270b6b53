//! The predicted wait above which arrivals may be refused.

use std::time::Duration;

/// The predicted wait above which arrivals may be refused as [`Overloaded`](crate::RejectReason::Overloaded).
///
/// A room that is bounded by number alone fills up in overload, and each request then waits for nearly as long as its
/// caller does. The room therefore predicts the wait of each arrival. Below the target every arrival is admitted, above
/// twice the target every one is refused, and in between a growing share is refused. The head of the queue is always
/// admitted.
///
/// A request with a deadline is also refused if even the shortest of the latest services of its lane would end too
/// late. If such a request would be the head, one is admitted now and then to probe whether the service is still slow.
///
/// The room does not learn how long callers wait, because clients could teach it to refuse others. If you know that
/// time, set `max_wait`.
///
/// A configuration file has a number of seconds, which may be a fraction, or `"auto"` or `"none"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TargetWait {
    /// A target that follows the service time: the mean service time × max(1/8, 3 ÷ slots) of the first pool that could
    /// serve the request. A queue of that length keeps the slots busy, and a longer one only adds to the waits.
    ///
    /// The target grows with the share of the slots that was idle in the last 10 service times (10 to 60 s), so that
    /// bursts are admitted. It grows by the square of the idle share, and for callers without a deadline by the fourth
    /// power, because they may have left when their turn comes. From an idle share of 0.18 on, it is `max_wait`, or 30
    /// s without that. Slots that lower levels used count as idle, unless levels have weights. Where tenants or levels
    /// have shares, slots that others used beyond their shares count as idle, too, and the target grows by the square
    /// for all callers.
    #[default]
    Auto,
    /// A fixed target, which applies from the first request on, and in bursts. An arrival is refused if its predicted
    /// wait is twice as long.
    ///
    /// A request that has waited for twice as long is refused, too, because a prediction may be wrong and a service may
    /// slow down. The load of its model does not count as waited. Only the next waiter of a lane goes on waiting then,
    /// and the next waiter of a tenant that has all its slots.
    After(Duration),
    /// A room without a target. Every arrival may wait, however long its predicted wait is.
    Off,
}

impl From<Duration> for TargetWait {
    fn from(target: Duration) -> Self {
        Self::After(target)
    }
}
