//! The limit follows the queue inside the service, and what a little more in flight does to latency.
//!
//! By Little's law the queue inside is `in flight × (1 − baseline ÷ latency)`; the limit goes where that is a small share.
//! All depends on the baseline, the latency without a queue. The least latency ever seen is too low, by chance, and then the
//! limit falls without end; a past average follows the queue up, and then the limit grows without end.
//!
//! So windows come in pairs, one at the limit and one a little above, and their ratio tells which it is: while latency
//! does not rise with what is in flight, throughput does, there is no queue, and the baseline follows the latency; while
//! latency rises in proportion, throughput is at its maximum, and the baseline is lowered until the limit falls.

use super::window::{Means, Window};
use super::{Bounds, LimitSample, a_tenth_less};

#[derive(Debug)]
pub(super) struct Vegas {
    /// The limit of the lower window of a pair.
    limit: usize,
    window: Window,
    /// The lower window, while the higher one is collected.
    lower: Option<Means>,
    /// The latency in seconds without a queue; 0 before the first window.
    baseline: f64,
    /// How much latency rises with what is in flight, an average over pairs: 0 without a queue, 1 with one.
    slope: f64,
    /// How often in a row the limit grew. Each time it grows by twice as much.
    growths: u32,
}

/// How much higher the second window of a pair is.
const HIGHER: f64 = 0.16;
/// The queue that is aimed at, as a share of what is in flight.
const QUEUE: f64 = 0.08;
/// The same, in requests, where the share is less.
const LEAST_QUEUE: f64 = 0.4;
/// How much of the slope one pair tells.
const SLOPE_WEIGHT: f64 = 0.2;
/// One pair's slope is mostly noise: it is not taken to be further off than this.
const SLOPES: (f64, f64) = (-2.0, 3.0);
/// A pair further apart than this, as a logarithm, has a slope.
const APART: f64 = 0.05;
/// How far a pair without a queue moves the baseline.
const BASELINE_WEIGHT: f64 = 0.3;
/// The slope from which on the baseline is lowered.
const SATURATED: f64 = 0.6;
/// How fast it is lowered.
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

    /// Goes on from another limit.
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
        // The higher window, too, stays within the bounds.
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
            // On the way up there is no time for pairs.
            _ if self.growths > 0 => self.decide(means),
            // `limit_now` is the higher limit from now on.
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

    /// Learns from a pair what the latency is without a queue.
    fn learn(&mut self, lower: Means, higher: Means) {
        let apart = (higher.in_flight / lower.in_flight).ln();
        if apart > APART {
            // By how many percent latency rises for 1 % more in flight: 1 where throughput stays the same.
            let slope = (higher.latency / lower.latency).ln() / apart;
            let slope = slope.clamp(SLOPES.0, SLOPES.1);
            self.slope += SLOPE_WEIGHT * (slope - self.slope);
        }
        // The less latency rises with the load, the less of it is a queue.
        let weight = BASELINE_WEIGHT * (1.0 - self.slope).clamp(0.0, 1.0);
        self.baseline += weight * (lower.latency - self.baseline);
        // At a slope of 1, by 1.2 % for each pair.
        self.baseline *= (-LOWERING * (self.slope - SATURATED).clamp(0.0, 1.0)).exp();
    }

    /// Moves the limit by the queue inside.
    fn decide(&mut self, means: Means) {
        let target = (means.in_flight * QUEUE).max(LEAST_QUEUE);
        // The queue inside, by Little's law, less the one that is aimed at.
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
            // 1, 2, 4 and so on. The bound keeps the shift within the word.
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
        // Limit, latency in units of the baseline, next limit.
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
        // It is lowered while latency rises with the load.
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
