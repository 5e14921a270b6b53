//! Outlier detection, which counts an endpoint's failures in a row and computes the time of its ejection.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // counters that guard no other memory
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
    /// The number of ejections since a probe last succeeded.
    times: AtomicU32,
    /// The total number of ejections of the endpoint. It wraps around.
    ejections: AtomicU32,
}

impl Ejection {
    /// Records that a probe succeeded, so that the next ejection is short again.
    pub(crate) fn closed(&self) {
        self.failures.end();
        self.times.store(0, Relaxed);
    }

    /// Returns the number of the last ejection, by which the timer of an earlier one knows that it is stale.
    pub(crate) fn number(&self) -> u32 {
        self.ejections.load(Relaxed)
    }

    /// Counts an ejection that the endpoint asked for, and returns its duration. It does not count as a failure.
    pub(crate) fn requested_duration(&self, asked: Duration) -> Duration {
        self.ejections.fetch_add(1, Relaxed);
        asked.min(LONGEST)
    }

    /// Resets the counters of failures to 0.
    pub(crate) fn reset_failures(&self) {
        self.failures.end();
        self.resets.end();
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
