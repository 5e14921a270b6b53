//! The limit follows the ratio of a baseline latency to the latency now.
//!
//! The baseline falls with the latency, but rises only where a queue can't be the cause: at low load, where the limit was
//! halved in vain, and at the lowest limit.

use super::window::{Means, Window};
use super::{Bounds, LimitSample, a_tenth_less};

#[derive(Debug)]
pub(super) struct Gradient {
    pub(super) limit: usize,
    window: Window,
    /// The latency in seconds without a queue; 0 before the first window.
    baseline: f64,
    /// Limit and latency when the limit began to fall.
    fall: Option<(usize, f64)>,
}

/// How much above the baseline the latency may be.
const TOLERANCE: f64 = 1.1;
/// The largest fall in one window.
const STEEPEST: f64 = 0.5;
/// How far a window of low load moves the baseline.
const LOW_LOAD_WEIGHT: f64 = 0.1;
/// How far a latency below the baseline lowers it. Small, because the baseline shall not be the least of many means.
const LOWER_WEIGHT: f64 = 0.05;
/// While the limit is halved, the share of the latency that a queue can't explain.
const RELIEF: f64 = 0.75;

impl Gradient {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            window: Window::after_change(limit),
            baseline: 0.0,
            fall: None,
        }
    }

    /// Goes on from another limit.
    pub(super) fn restart(&mut self, limit: usize) {
        self.limit = limit;
        self.fall = None;
        self.window = Window::after_change(limit);
    }

    pub(super) fn observe(&mut self, sample: LimitSample, bounds: Bounds) {
        if let Some(means) = self.window.observe(sample, self.limit) {
            let next = self.next_limit(means);
            self.limit = bounds.clamp(next);
            // A window in which most were refused has no latency.
            if means.is_busy && !means.is_overloaded && next <= bounds.min {
                // No lower load can be had: what latency remains is what there is.
                self.baseline += LOW_LOAD_WEIGHT * (means.latency - self.baseline);
            }
            self.window = Window::after_change(self.limit);
        }
    }

    fn next_limit(&mut self, means: Means) -> usize {
        if means.is_overloaded {
            return a_tenth_less(self.limit);
        }
        let latency = means.latency;
        if self.baseline == 0.0 {
            self.baseline = latency;
        }
        if !means.is_busy {
            self.baseline += LOW_LOAD_WEIGHT * (latency - self.baseline);
            return self.limit;
        }
        // Only down: under load, a higher latency may be that of a queue.
        self.baseline += LOWER_WEIGHT * (latency - self.baseline).min(0.0);
        // Calls were answered, since no more than a tenth was refused: the latency is not 0.
        let gradient = (TOLERANCE * self.baseline / latency).clamp(STEEPEST, TOLERANCE);
        // One more: rounded down, a tenth more would be nothing at limits below 10.
        let next = (self.limit as f64 * gradient) as usize + 1;
        self.check_relief(next, latency);
        next
    }

    /// Once the limit has been halved: if the latency stayed, no queue was its cause, and it is the new baseline.
    fn check_relief(&mut self, next: usize, latency: f64) {
        if next >= self.limit {
            self.fall = None;
            return;
        }
        // Kept from the first window of a fall until the limit is half of what it was then, or grows.
        let (limit_then, latency_then) = *self.fall.get_or_insert((self.limit, latency));
        if self.limit * 2 <= limit_then {
            if latency > RELIEF * latency_then {
                self.baseline = latency;
            }
            self.fall = None;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admit::LimitOutcome;

    fn means(latency: f64, is_busy: bool) -> Means {
        Means {
            in_flight: 10.0,
            latency,
            is_overloaded: false,
            is_busy,
        }
    }

    #[test]
    fn the_limit_is_scaled_by_the_gradient_plus_one() {
        // Limit, baseline, latency, next limit.
        let cases = [
            (20, 0.1, 0.1, 23),
            (20, 0.1, 0.11, 21),
            (20, 0.1, 0.2, 12),
            (20, 0.1, 9.0, 11),
            (1, 0.1, 0.1, 2),
            (1, 0.1, 0.2, 1),
            (2, 0.1, 0.2, 2),
        ];
        for (limit, baseline, latency, next) in cases {
            let mut gradient = Gradient::new(limit);
            gradient.baseline = baseline;
            let found = gradient.next_limit(means(latency, true));
            assert_eq!(found, next, "{limit} {latency}");
        }
    }

    #[test]
    fn at_low_load_the_limit_holds_and_the_baseline_follows() {
        let mut gradient = Gradient::new(20);
        gradient.baseline = 0.1;
        assert_eq!(gradient.next_limit(means(0.2, false)), 20);
        assert!((gradient.baseline - 0.11).abs() < 1e-9);
    }

    #[test]
    fn a_latency_that_halving_does_not_cure_is_the_baseline() {
        let after_fall = |latency_at_half: f64| {
            let mut gradient = Gradient::new(40);
            gradient.baseline = 0.1;
            gradient.limit = gradient.next_limit(means(0.3, true)); // 40 → 21
            gradient.limit = gradient.next_limit(means(latency_at_half, true)).min(20);
            gradient.limit = 10;
            gradient.next_limit(means(latency_at_half, true));
            gradient.baseline
        };
        assert!((after_fall(0.3) - 0.3).abs() < 1e-9);
        assert!((after_fall(0.15) - 0.1).abs() < 1e-9);
    }

    /// At the lowest limit, with a baseline of 100 ms, after 1,000 calls of 300 ms.
    fn at_the_lowest(outcome: LimitOutcome) -> Gradient {
        let mut gradient = Gradient::new(1);
        gradient.baseline = 0.1;
        let sample = LimitSample {
            latency: Duration::from_millis(300),
            in_flight: 1,
            waiting: true,
            outcome,
        };
        for _ in 0..1_000 {
            gradient.observe(sample, Bounds { min: 1, max: 200 });
        }
        gradient
    }

    #[test]
    fn the_lowest_limit_is_left_though_the_latency_stays() {
        let gradient = at_the_lowest(LimitOutcome::Ok);
        assert!(gradient.limit > 2, "{gradient:?}");
    }

    #[test]
    fn calls_that_are_refused_say_nothing_of_the_latency() {
        let gradient = at_the_lowest(LimitOutcome::Overloaded);
        assert_eq!((gradient.limit, gradient.baseline), (1, 0.1));
    }
}
