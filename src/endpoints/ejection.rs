//! Outlier detection, which counts an endpoint's failures in a row and computes the time of its ejection.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // counters that guard no other memory
use std::time::Duration;

/// The upper bound of an ejection's duration, unless the configured first duration is longer.
const LONGEST: Duration = Duration::from_secs(60);

/// The counters of one endpoint's failures and ejections.
#[derive(Debug, Default)]
pub(crate) struct Ejection {
    in_a_row: AtomicU32,
    /// The number of responses in a row that broke off. It is counted apart because a response that begins does not
    /// make up for one that broke off.
    resets_in_a_row: AtomicU32,
    /// The number of ejections since a probe last succeeded.
    times: AtomicU32,
    /// The total number of ejections of the endpoint. It wraps around.
    ejections: AtomicU32,
}

impl Ejection {
    /// Records that the endpoint answered a request.
    #[inline]
    pub(crate) fn succeeded(&self) {
        reset(&self.in_a_row);
    }

    /// Records that a response of the endpoint came to its end.
    #[inline]
    pub(crate) fn ended(&self) {
        reset(&self.resets_in_a_row);
    }

    /// Returns `true` if the endpoint failed its last request.
    pub(crate) fn is_failing(&self) -> bool {
        self.in_a_row.load(Relaxed) > 0
    }

    /// Records that a probe succeeded, so that the next ejection is short again.
    pub(crate) fn closed(&self) {
        self.in_a_row.store(0, Relaxed);
        self.times.store(0, Relaxed);
    }

    /// Records that the endpoint failed a request. Returns `true` if the endpoint is to be ejected, which happens after
    /// `limit` failures in a row. With a `limit` of 0, it returns `false`.
    pub(crate) fn failed(&self, limit: u32) -> bool {
        count(&self.in_a_row, limit)
    }

    /// Records that a response of the endpoint broke off. Returns `true` if the endpoint is to be ejected.
    pub(crate) fn body_reset(&self, limit: u32) -> bool {
        count(&self.resets_in_a_row, limit)
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
        self.in_a_row.store(0, Relaxed);
        self.resets_in_a_row.store(0, Relaxed);
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

/// Resets a counter to 0.
fn reset(in_a_row: &AtomicU32) {
    // The load comes first because this runs after each response, and a store would take the cache line.
    if in_a_row.load(Relaxed) != 0 {
        in_a_row.store(0, Relaxed);
    }
}

/// Counts a failure. Returns `true` if the counter has reached the limit.
fn count(in_a_row: &AtomicU32, limit: u32) -> bool {
    let in_a_row = in_a_row.fetch_add(1, Relaxed).saturating_add(1);
    limit != 0 && in_a_row >= limit
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 3;
    const FIRST: Duration = Duration::from_secs(1);

    #[test]
    fn failures_count_in_a_row() {
        let ejection = Ejection::default();
        assert!(!ejection.failed(LIMIT));
        assert!(!ejection.failed(LIMIT));
        ejection.succeeded();
        assert!(!ejection.failed(LIMIT));
        assert!(!ejection.failed(LIMIT));
        assert!(ejection.failed(LIMIT));
    }

    #[test]
    fn after_0_no_endpoint_is_ejected() {
        let ejection = Ejection::default();
        assert!((0..1_000).all(|_| !ejection.failed(0)));
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
