//! A limit that follows the queue inside the service and the growth of latency with the load.
//!
//! By Little's law the queue inside is `in flight × (1 − baseline ÷ latency)`. The limit moves to where this queue is a
//! small share of the calls in flight. The difficulty is the baseline, which is the latency without a queue. The least
//! latency ever seen is too low, by chance, and a past average follows the queue up.
//!
//! Windows therefore come in pairs. One window runs at the limit and the other a little above. If latency stays the
//! same at the higher limit, there is no queue, so the baseline follows the latency. If latency rises in proportion,
//! throughput is at its maximum, so the baseline is lowered until the limit falls.

use super::window::{Means, Window};
use super::{Bounds, LimitSample, a_tenth_less};

#[derive(Debug)]
pub(super) struct Vegas {
    /// The limit of the lower window of a pair.
    limit: usize,
    /// The window that is being collected.
    window: Window,
    /// The means of the lower window, while the higher one is collected.
    lower: Option<Means>,
    /// The latency without a queue, in seconds; 0 before the first window.
    baseline: f64,
    /// The growth of latency with the calls in flight, averaged over pairs. It is 0 without a queue and 1 with one.
    slope: f64,
    /// The number of times in a row that the limit grew. Each growth is twice the one before.
    growths: u32,
}

/// The share by which the second window of a pair is above the first.
const HIGHER: f64 = 0.16;
/// The queue that the limit aims at, as a share of the calls in flight.
const QUEUE: f64 = 0.08;
/// The queue that the limit aims at, in requests, if `QUEUE` yields less.
const LEAST_QUEUE: f64 = 0.4;
/// The weight of one pair in the average slope.
const SLOPE_WEIGHT: f64 = 0.2;
/// The range to which the slope of one pair is clamped, because a single slope is mostly noise.
const SLOPES: (f64, f64) = (-2.0, 3.0);
/// The logarithm of the ratio of the calls in flight above which a pair yields a slope.
const APART: f64 = 0.05;
/// The weight by which a pair without a queue moves the baseline.
const BASELINE_WEIGHT: f64 = 0.3;
/// The slope from which on the baseline is lowered.
const SATURATED: f64 = 0.6;
/// The rate at which the baseline is lowered.
const LOWERING: f64 = 0.03;

impl Vegas {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            window: Window::after_change(limit),
            lower: None,
            baseline: 0.0,
            slope: 0.0,
            growths: 0,
        }
    }

    /// Continues from another limit. The baseline and the slope are kept.
    pub(super) fn restart(&mut self, limit: usize) {
        self.limit = limit;
        self.lower = None;
        self.growths = 0;
        self.window = Window::after_change(limit);
    }

    pub(super) fn limit_now(&self) -> usize {
        match self.lower {
            None => self.limit,
            Some(_) => self.limit + ((self.limit as f64 * HIGHER).round() as usize).max(1),
        }
    }

    pub(super) fn observe(&mut self, sample: LimitSample, bounds: Bounds) {
        // The higher window is kept within the bounds, too.
        let Some(means) = self
            .window
            .observe(sample, self.limit_now().min(bounds.max))
        else {
            return;
        };
        self.end_window(means);
        self.limit = bounds.clamp(self.limit);
        self.window = Window::after_change(self.limit_now().min(bounds.max));
    }

    fn end_window(&mut self, means: Means) {
        let lower = self.lower.take();
        if means.is_overloaded {
            self.limit = a_tenth_less(self.limit);
            self.growths = 0;
            return;
        }
        if self.baseline == 0.0 {
            self.baseline = means.latency;
        }
        match lower {
            // While the limit grows, a single window decides, because pairs would take too long.
            _ if self.growths > 0 => self.decide(means),
            // From here on `limit_now` returns the higher limit.
            None => self.lower = Some(means),
            Some(lower) => {
                self.learn(lower, means);
                self.decide(Means {
                    in_flight: (lower.in_flight + means.in_flight) / 2.0,
                    latency: (lower.latency + means.latency) / 2.0,
                    ..means
                });
            }
        }
    }

    /// Learns the latency without a queue from a pair of windows.
    fn learn(&mut self, lower: Means, higher: Means) {
        let apart = (higher.in_flight / lower.in_flight).ln();
        if apart > APART {
            // The slope is the percentage by which latency rises for 1 % more calls in flight. It is 1 if throughput
            // stays the same.
            let slope = (higher.latency / lower.latency).ln() / apart;
            let slope = slope.clamp(SLOPES.0, SLOPES.1);
            self.slope += SLOPE_WEIGHT * (slope - self.slope);
        }
        // The less latency rises with the load, the less of it comes from a queue.
        let weight = BASELINE_WEIGHT * (1.0 - self.slope).clamp(0.0, 1.0);
        self.baseline += weight * (lower.latency - self.baseline);
        // At a slope of 1, each pair lowers the baseline by 1.2 %.
        self.baseline *= (-LOWERING * (self.slope - SATURATED).clamp(0.0, 1.0)).exp();
    }

    /// Moves the limit by the excess of the queue inside the service.
    fn decide(&mut self, means: Means) {
        let target = (means.in_flight * QUEUE).max(LEAST_QUEUE);
        // The queue inside by Little's law, minus the queue that the limit aims at.
        let excess = means.in_flight * (1.0 - self.baseline / means.latency) - target;
        let most = (self.limit / 4).max(1);
        if !means.is_busy {
            self.growths = 0;
        } else if excess > 0.0 {
            self.limit = self
                .limit
                .saturating_sub((excess.ceil() as usize).min(most));
            self.growths = 0;
        } else {
            // The limit grows by 1, 2, 4 and so on. The bound of 20 keeps the shift within the word.
            self.limit += (1 << self.growths.min(20)).min(most);
            self.growths += 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn means(in_flight: f64, latency: f64) -> Means {
        Means {
            in_flight,
            latency,
            is_overloaded: false,
            is_busy: true,
        }
    }

    #[test]
    fn the_limit_moves_by_the_queue_that_is_too_long() {
        // Each line has the limit, the latency in units of the baseline, and the next limit.
        let cases = [
            (20, 1.0, 21),
            (20, 1.05, 21),
            (20, 1.2, 18), // 3.3 queued, 1.6 aimed at
            (20, 2.0, 15), // a quarter at most
            (40, 2.0, 30),
            (1, 1.0, 2),
            (1, 9.0, 0), // to be brought within bounds
            (2, 2.0, 1),
            (3, 1.5, 2),
        ];
        for (limit, latency, next) in cases {
            let mut vegas = Vegas::new(limit);
            vegas.baseline = 1.0;
            vegas.decide(means(limit as f64, latency));
            assert_eq!(vegas.limit, next, "{limit} {latency}");
        }
    }

    #[test]
    fn growth_doubles_up_to_a_quarter_and_ends_with_the_first_queue() {
        let mut vegas = Vegas::new(20);
        vegas.baseline = 1.0;
        let mut grown = Vec::new();
        for _ in 0..6 {
            vegas.decide(means(vegas.limit as f64, 1.0));
            grown.push(vegas.limit);
        }
        assert_eq!(grown, [21, 23, 27, 33, 41, 51]);
        vegas.decide(means(51.0, 1.2));
        assert_eq!((vegas.limit, vegas.growths), (46, 0));
    }

    #[test]
    fn the_baseline_follows_a_latency_that_does_not_depend_on_the_load() {
        let mut vegas = Vegas::new(20);
        vegas.baseline = 0.1;
        for _ in 0..20 {
            vegas.learn(means(20.0, 0.3), means(23.0, 0.3));
        }
        assert!((vegas.baseline - 0.3).abs() < 0.01, "{vegas:?}");
        // The baseline is lowered while latency rises with the load.
        for _ in 0..20 {
            vegas.learn(means(20.0, 0.3), means(23.0, 0.3 * 23.0 / 20.0));
        }
        assert!(vegas.baseline < 0.27, "{vegas:?}");
    }

    #[test]
    fn a_window_of_refusals_lowers_the_limit() {
        let mut vegas = Vegas::new(20);
        vegas.end_window(Means {
            is_overloaded: true,
            ..means(20.0, 0.1)
        });
        assert_eq!(vegas.limit, 18);
    }
}
