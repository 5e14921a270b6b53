//! Outlier detection: counts the failures of an endpoint in a row, and says for how long it is ejected.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // counters: no other memory depends on them
use std::time::Duration;

/// When an endpoint is ejected, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EjectionPolicy {
    /// After this many failures in a row; 0: never.
    pub(crate) after: u32,
    /// The duration of the first ejection. Each further one in a row lasts twice as long.
    pub(crate) first: Duration,
}

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

    /// The endpoint failed a request. Returns whether it is to be ejected.
    pub(crate) fn failed(&self, policy: EjectionPolicy) -> bool {
        count(&self.in_a_row, policy)
    }

    /// A response body of the endpoint broke off. Returns whether it is to be ejected.
    pub(crate) fn body_reset(&self, policy: EjectionPolicy) -> bool {
        count(&self.resets_in_a_row, policy)
    }

    /// Counts failures from 0 again.
    pub(crate) fn reset_failures(&self) {
        self.in_a_row.store(0, Relaxed);
        self.resets_in_a_row.store(0, Relaxed);
    }

    /// Counts an ejection, and returns how long it lasts.
    pub(crate) fn ejection_duration(&self, policy: EjectionPolicy) -> Duration {
        self.reset_failures();
        let times = self.times.fetch_add(1, Relaxed);
        let doubled = 2_u32.saturating_pow(times);
        let longest = LONGEST.max(policy.first);
        policy.first.saturating_mul(doubled).min(longest)
    }
}

fn reset(in_a_row: &AtomicU32) {
    // A load first: this runs after each response, and a store takes the cache line.
    if in_a_row.load(Relaxed) != 0 {
        in_a_row.store(0, Relaxed);
    }
}

/// Counts a failure. Returns whether it was one too many.
fn count(in_a_row: &AtomicU32, policy: EjectionPolicy) -> bool {
    let in_a_row = in_a_row.fetch_add(1, Relaxed).saturating_add(1);
    policy.after != 0 && in_a_row >= policy.after
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: EjectionPolicy = EjectionPolicy {
        after: 3,
        first: Duration::from_secs(1),
    };

    #[test]
    fn failures_count_in_a_row() {
        let ejection = Ejection::default();
        assert!(!ejection.failed(POLICY));
        assert!(!ejection.failed(POLICY));
        ejection.succeeded();
        assert!(!ejection.failed(POLICY));
        assert!(!ejection.failed(POLICY));
        assert!(ejection.failed(POLICY));
    }

    #[test]
    fn after_0_no_endpoint_is_ejected() {
        let policy = EjectionPolicy { after: 0, ..POLICY };
        let ejection = Ejection::default();
        assert!((0..1_000).all(|_| !ejection.failed(policy)));
    }

    #[test]
    fn ejections_in_a_row_double_up_to_a_minute() {
        let ejection = Ejection::default();
        let seconds: Vec<u64> = (0..8)
            .map(|_| ejection.ejection_duration(POLICY).as_secs())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        ejection.closed();
        assert_eq!(ejection.ejection_duration(POLICY), POLICY.first);
        (0..100).for_each(|_| _ = ejection.ejection_duration(POLICY));
        let first = Duration::from_secs(90);
        let policy = EjectionPolicy { first, ..POLICY };
        assert_eq!(ejection.ejection_duration(policy), first);
    }
}
