//! Outlier detection: counts the failures of an endpoint in a row, and says for how long it is ejected.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // counters: no other memory depends on them
use std::time::Duration;

/// No ejection lasts longer, unless the first one does.
const LONGEST: Duration = Duration::from_secs(60);

/// The failures of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Ejection {
    in_a_row: AtomicU32,
    /// Counted apart: a response that begins does not make up for one that never ended.
    resets_in_a_row: AtomicU32,
    /// How often it was ejected since a probe last succeeded.
    times: AtomicU32,
    /// The number of ejections. It wraps around.
    ejections: AtomicU32,
}

impl Ejection {
    /// The endpoint answered a request.
    #[inline]
    pub(crate) fn succeeded(&self) {
        reset(&self.in_a_row);
    }

    /// A response of the endpoint came to its end.
    #[inline]
    pub(crate) fn ended(&self) {
        reset(&self.resets_in_a_row);
    }

    /// Whether it failed the last request.
    pub(crate) fn is_failing(&self) -> bool {
        self.in_a_row.load(Relaxed) > 0
    }

    /// A probe succeeded.
    pub(crate) fn closed(&self) {
        self.in_a_row.store(0, Relaxed);
        self.times.store(0, Relaxed);
    }

    /// The endpoint failed a request. Returns whether it is to be ejected, which it is after `limit` failures in a
    /// row; 0: never.
    pub(crate) fn failed(&self, limit: u32) -> bool {
        count(&self.in_a_row, limit)
    }

    /// A response body of the endpoint broke off. Returns whether it is to be ejected.
    pub(crate) fn body_reset(&self, limit: u32) -> bool {
        count(&self.resets_in_a_row, limit)
    }

    /// Returns the number of the last ejection. A timer of an earlier one does not end it.
    pub(crate) fn number(&self) -> u32 {
        self.ejections.load(Relaxed)
    }

    /// Counts an ejection that the endpoint asked for, and returns how long it lasts. It is no failure.
    pub(crate) fn requested_duration(&self, asked: Duration) -> Duration {
        self.ejections.fetch_add(1, Relaxed);
        asked.min(LONGEST)
    }

    /// Counts failures from 0 again.
    pub(crate) fn reset_failures(&self) {
        self.in_a_row.store(0, Relaxed);
        self.resets_in_a_row.store(0, Relaxed);
    }

    /// Counts an ejection, and returns how long it lasts: the `first` one this long, each further one in a row twice as
    /// long.
    pub(crate) fn ejection_duration(&self, first: Duration) -> Duration {
        self.reset_failures();
        self.ejections.fetch_add(1, Relaxed);
        let times = self.times.fetch_add(1, Relaxed);
        let doubled = 2_u32.saturating_pow(times);
        let longest = LONGEST.max(first);
        first.saturating_mul(doubled).min(longest)
    }
}

fn reset(in_a_row: &AtomicU32) {
    // A load first: this runs after each response, and a store takes the cache line.
    if in_a_row.load(Relaxed) != 0 {
        in_a_row.store(0, Relaxed);
    }
}

/// Counts a failure. Returns whether it was one too many.
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
