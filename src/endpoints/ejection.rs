//! Outlier detection, which counts an endpoint's failures in a row and their share, and computes the time of its ejection.

use std::sync::atomic::Ordering::Relaxed; // counters that guard no other memory
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// The upper bound of an ejection's duration, unless the configured first duration is longer.
const LONGEST: Duration = Duration::from_secs(60);

/// The counters of one endpoint's failures and ejections.
#[derive(Debug, Default)]
pub(crate) struct Ejection {
    /// The requests in a row that failed.
    pub(crate) failures: Streak,
    /// The responses in a row that broke off. They are counted apart because a response that begins does not make up for
    /// one that broke off.
    pub(crate) resets: Streak,
    /// The share of requests that failed, for an endpoint that serves some in between.
    pub(crate) share: FailureShare,
    /// The number of ejections since a probe last succeeded.
    times: AtomicU32,
    /// The total number of ejections of the endpoint. It wraps around.
    ejections: AtomicU32,
}

impl Ejection {
    /// Records that a probe succeeded, so that the next ejection is short again.
    pub(crate) fn closed(&self) {
        self.failures.end();
        self.share.forget();
        self.times.store(0, Relaxed);
    }

    /// Returns the number of the last ejection, by which the timer of an earlier one knows that it is stale.
    pub(crate) fn number(&self) -> u32 {
        self.ejections.load(Relaxed)
    }

    /// Resets the counters of failures to 0.
    pub(crate) fn reset_failures(&self) {
        self.failures.end();
        self.resets.end();
        self.share.forget();
    }

    /// Counts a failure. Returns the reason to eject the endpoint, if there is one: `limit` failures in a row, or twice as
    /// many among the last `4 * limit` requests. With a `limit` of 0, there is none.
    pub(crate) fn failed(&self, limit: u32) -> Option<String> {
        let share = self.share.failed(limit);
        if self.failures.failed(limit) {
            return Some(format!("{limit} requests in a row failed"));
        }
        share.map(|(failed, of)| format!("{failed} of the last {of} requests failed"))
    }

    /// Records a request that was served.
    #[inline]
    pub(crate) fn served(&self) {
        self.failures.end();
        self.share.served();
    }

    /// Counts an ejection, and returns its duration. The duration is `first` for the first ejection, and doubles for
    /// each further one in a row.
    pub(crate) fn ejection_duration(&self, first: Duration) -> Duration {
        self.reset_failures();
        self.ejections.fetch_add(1, Relaxed);
        let times = self.times.fetch_add(1, Relaxed);
        let doubled = 2_u32.saturating_pow(times);
        let longest = LONGEST.max(first);
        first.saturating_mul(doubled).min(longest)
    }
}

/// The outcomes of the last 64 requests, as a word with one bit for each. The last one is the lowest bit, which is set if the
/// request failed.
#[derive(Debug, Default)]
pub(crate) struct FailureShare(AtomicU64);

impl FailureShare {
    /// Counts a failure. Returns the number of failures and of the requests among which they are, if at least half of the
    /// last `4 * limit` failed.
    fn failed(&self, limit: u32) -> Option<(u32, u32)> {
        let next = |outcomes: u64| Some(outcomes << 1 | 1);
        // The closure always returns `Some`, so both variants hold the word before.
        let (Ok(before) | Err(before)) = self.0.fetch_update(Relaxed, Relaxed, next);
        let outcomes = before << 1 | 1;
        let of = limit
            .checked_mul(4)
            .filter(|&of| of > 0 && of <= u64::BITS)?;
        let failed = (outcomes << (u64::BITS - of)).count_ones();
        (failed >= 2 * limit).then_some((failed, of))
    }

    /// Records a request that was served.
    #[inline]
    fn served(&self) {
        // The load comes first because this runs after each response, and nearly always there was no failure lately.
        if self.0.load(Relaxed) != 0 {
            _ = self
                .0
                .fetch_update(Relaxed, Relaxed, |outcomes| Some(outcomes << 1));
        }
    }

    fn forget(&self) {
        self.0.store(0, Relaxed);
    }
}

/// A number of failures in a row.
#[derive(Debug, Default)]
pub(crate) struct Streak(AtomicU32);

impl Streak {
    /// Counts a failure. Returns `true` if the endpoint is to be ejected, which happens after `limit` failures in a row.
    /// With a `limit` of 0, it returns `false`.
    pub(crate) fn failed(&self, limit: u32) -> bool {
        let in_a_row = self.0.fetch_add(1, Relaxed).saturating_add(1);
        limit != 0 && in_a_row >= limit
    }

    /// Records a success, which ends the streak.
    #[inline]
    pub(crate) fn end(&self) {
        // The load comes first because this runs after each response, and a store would take the cache line.
        if self.is_running() {
            self.0.store(0, Relaxed);
        }
    }

    /// Returns `true` if the last attempt was a failure.
    pub(crate) fn is_running(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 3;
    const FIRST: Duration = Duration::from_secs(1);

    #[test]
    fn failures_count_in_a_row() {
        let ejection = Ejection::default();
        assert!(!ejection.failures.failed(LIMIT));
        assert!(!ejection.failures.failed(LIMIT));
        ejection.failures.end();
        assert!(!ejection.failures.failed(LIMIT));
        assert!(!ejection.failures.failed(LIMIT));
        assert!(ejection.failures.failed(LIMIT));
    }

    #[test]
    fn after_0_no_endpoint_is_ejected() {
        let ejection = Ejection::default();
        assert!((0..1_000).all(|_| !ejection.failures.failed(0)));
    }

    /// Returns the reasons for an ejection after these outcomes, where `-` is a failure and `+` a success.
    fn reasons(outcomes: &str, limit: u32) -> Vec<String> {
        let ejection = Ejection::default();
        let outcome = |outcome| match outcome {
            '-' => ejection.failed(limit),
            _ => {
                ejection.served();
                None
            }
        };
        outcomes.chars().filter_map(outcome).collect()
    }

    #[test]
    fn half_of_the_last_requests_are_too_many_failures() {
        let twelve = "6 of the last 12 requests failed";
        assert_eq!(reasons("-+-+-+-+-+-", LIMIT), [twelve]);
        assert_eq!(reasons("--+--+--", LIMIT), [twelve]);
        assert!(reasons(&"-++".repeat(50), LIMIT).is_empty());
        assert!(reasons(&"-+".repeat(50), 0).is_empty());
        assert!(reasons(&"-+".repeat(500), 100).is_empty());
        assert_eq!(reasons(&"-+".repeat(32), 16).len(), 1);
        assert_eq!(reasons("---", LIMIT), ["3 requests in a row failed"]);
    }

    #[test]
    fn ejections_in_a_row_double_up_to_a_minute() {
        let ejection = Ejection::default();
        let seconds: Vec<u64> = (0..8)
            .map(|_| ejection.ejection_duration(FIRST).as_secs())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        ejection.closed();
        assert_eq!(ejection.ejection_duration(FIRST), FIRST);
        (0..100).for_each(|_| _ = ejection.ejection_duration(FIRST));
        let first = Duration::from_secs(90);
        assert_eq!(ejection.ejection_duration(first), first);
    }
}
