//! An endpoint that answers every check and fails every request would go on failing them.
//!
//! [`Ejection`] counts failures in a row, as requests meet them, and says for how long the endpoint is left
//! alone. What a client did wrong (4xx) is no failure of the endpoint's.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // counts, which nothing else depends on
use std::time::Duration;

/// When an endpoint is left alone, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EjectionPolicy {
    /// After so many failures in a row; 0: never.
    pub(crate) after: u32,
    /// For so long the first time. It doubles as long as it goes on failing.
    pub(crate) first: Duration,
}

/// Longer than this, nobody is left alone; unless it is so for the first time.
const LONGEST: Duration = Duration::from_secs(60);

/// The failures of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Ejection {
    in_a_row: AtomicU32,
    /// Apart from them, or the next answer to begin would seem to make up for one that never ended.
    broke_off_in_a_row: AtomicU32,
    /// How often it was ejected since it last was well.
    times: AtomicU32,
}

impl Ejection {
    /// It answered a request.
    #[inline]
    pub(crate) fn succeeded(&self) {
        reset(&self.in_a_row);
    }

    /// An answer of it came to its end.
    #[inline]
    pub(crate) fn ended(&self) {
        reset(&self.broke_off_in_a_row);
    }

    /// Whether it failed the last request.
    pub(crate) fn is_failing(&self) -> bool {
        self.in_a_row.load(Relaxed) > 0
    }

    /// It passed its trial.
    pub(crate) fn closed(&self) {
        self.in_a_row.store(0, Relaxed);
        self.times.store(0, Relaxed);
    }

    /// It failed a request. Says whether that was once too often.
    pub(crate) fn failed(&self, policy: EjectionPolicy) -> bool {
        once_more(&self.in_a_row, policy)
    }

    /// An answer of it broke off. Says whether that was once too often.
    pub(crate) fn broke_off(&self, policy: EjectionPolicy) -> bool {
        once_more(&self.broke_off_in_a_row, policy)
    }

    /// It would be ejected, but has to stay: its failures count from 0 again.
    pub(crate) fn reset_failures(&self) {
        self.in_a_row.store(0, Relaxed);
        self.broke_off_in_a_row.store(0, Relaxed);
    }

    /// It is ejected now: for how long?
    pub(crate) fn ejection_duration(&self, policy: EjectionPolicy) -> Duration {
        self.reset_failures();
        let times = self.times.fetch_add(1, Relaxed);
        let doubled = 2_u32.saturating_pow(times);
        let longest = LONGEST.max(policy.first);
        policy.first.saturating_mul(doubled).min(longest)
    }
}

fn reset(in_a_row: &AtomicU32) {
    if in_a_row.load(Relaxed) != 0 {
        in_a_row.store(0, Relaxed);
    }
}

/// Whether that was once too often.
fn once_more(in_a_row: &AtomicU32, policy: EjectionPolicy) -> bool {
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
    fn nobody_is_ejected_after_no_failures() {
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
