//! Additive increase, multiplicative decrease.

use std::time::Instant;

use super::{Bounds, LimitOutcome, LimitSample, a_tenth_less};

#[derive(Debug)]
pub(super) struct Aimd {
    pub(super) limit: usize,
    /// Since the limit changed, with at least half of it in use.
    successes: usize,
    /// When the limit was last lowered. A refusal of a call that began before that is no reason to lower it again.
    decreased: Option<Instant>,
}

impl Aimd {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            successes: 0,
            decreased: None,
        }
    }

    pub(super) fn observe(&mut self, sample: LimitSample, now: Instant, bounds: Bounds) {
        if sample.outcome == LimitOutcome::Overloaded {
            let began = now.checked_sub(sample.latency);
            // `None`, where the clock can't go back that far, counts as earlier than any instant.
            if self.decreased.is_none_or(|then| began >= Some(then)) {
                self.limit = bounds.clamp(a_tenth_less(self.limit));
                self.successes = 0;
                self.decreased = Some(now);
            }
        } else if sample.is_busy(self.limit) {
            self.successes += 1;
            if self.successes >= self.limit {
                self.limit = bounds.clamp(self.limit + 1);
                self.successes = 0;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    const BOUNDS: Bounds = Bounds { min: 1, max: 200 };
    const LATENCY: Duration = Duration::from_millis(100);

    fn ended(outcome: LimitOutcome, in_flight: usize) -> LimitSample {
        LimitSample {
            latency: LATENCY,
            in_flight,
            waiting: false,
            outcome,
        }
    }

    #[test]
    fn a_refusal_costs_a_tenth_and_at_least_one() {
        let now = Instant::now();
        for (before, after) in [(200, 180), (20, 18), (19, 18), (2, 1), (1, 1)] {
            let mut aimd = Aimd::new(before);
            aimd.observe(ended(LimitOutcome::Overloaded, before), now, BOUNDS);
            assert_eq!(aimd.limit, after);
        }
    }

    #[test]
    fn refusals_of_one_round_trip_cost_once() {
        let now = Instant::now();
        let mut aimd = Aimd::new(100);
        for _ in 0..50 {
            aimd.observe(ended(LimitOutcome::Overloaded, 100), now, BOUNDS);
        }
        assert_eq!(aimd.limit, 90);
        aimd.observe(ended(LimitOutcome::Overloaded, 90), now + LATENCY, BOUNDS);
        assert_eq!(aimd.limit, 81);
    }

    #[test]
    fn as_many_successes_as_the_limit_add_one_if_half_is_in_use() {
        let now = Instant::now();
        let mut aimd = Aimd::new(4);
        for _ in 0..40 {
            aimd.observe(ended(LimitOutcome::Ok, 1), now, BOUNDS);
        }
        assert_eq!(aimd.limit, 4);
        for after in [4, 4, 4, 5, 5, 5, 5, 5, 6] {
            aimd.observe(ended(LimitOutcome::Ok, 3), now, BOUNDS);
            assert_eq!(aimd.limit, after);
        }
    }
}
