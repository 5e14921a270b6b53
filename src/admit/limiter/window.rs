//! A window of calls under one limit, and its means.
//!
//! Single latencies vary far more than a limit that is slightly too high changes them. A window therefore grows until
//! its mean latency is exact to a twentieth, judged by its own variance.

use super::{LimitOutcome, LimitSample};

/// A window of calls that is being collected.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The number of calls still to be left out, because they began under the previous limit.
    skip: usize,
    answered: usize,
    overloaded: usize,
    busy: usize,
    in_flight: f64,
    seconds: f64,
    seconds_squared: f64,
}

/// The means over a window of calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Means {
    /// The mean number of calls in flight; 0 if all calls were refused.
    pub(super) in_flight: f64,
    /// The mean latency of the answered calls, in seconds. It is above 0 if any call was answered.
    pub(super) latency: f64,
    /// `true` if more than one in ten calls was refused.
    pub(super) is_overloaded: bool,
    /// `true` if most calls found at least half of the limit in use, or requests waiting.
    pub(super) is_busy: bool,
}

/// The relative standard error of a mean latency at which it is exact enough to act on.
const PRECISION: f64 = 0.05;
/// The relative standard error for low limits, to be divided by the limit. One slot more or less is a larger step there
/// than `PRECISION`.
const PRECISION_OF_ONE: f64 = 0.5;
/// The least number of calls in a window.
const FEWEST: usize = 10;
/// The highest number of calls in a window, which bounds the time without a decision.
const MOST: usize = 500;

impl Window {
    /// Creates a window under `limit`, which begins after the calls that are in flight now have ended.
    pub(super) fn after_change(limit: usize) -> Self {
        Self {
            skip: limit,
            ..Self::default()
        }
    }

    /// Adds a call. Returns the means if the window is complete, and the caller then has to begin the next one.
    pub(super) fn observe(&mut self, sample: LimitSample, limit: usize) -> Option<Means> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.busy += usize::from(sample.is_busy(limit));
        if sample.outcome == LimitOutcome::Ok {
            // The value is above 0, because the callers divide by the mean.
            let seconds = sample.latency.as_secs_f64().max(1e-9);
            self.answered += 1;
            self.in_flight += sample.in_flight as f64;
            self.seconds += seconds;
            self.seconds_squared += seconds * seconds;
        } else {
            // The outcome is `Overloaded`, because ignored samples were left out before.
            self.overloaded += 1;
        }
        let calls = self.answered + self.overloaded;
        (calls >= self.needed(limit)).then(|| self.means(calls))
    }

    /// Returns the number of calls that the window needs.
    fn needed(&self, limit: usize) -> usize {
        // The window covers at least two round trips, because calls that end in the same round trip are alike.
        let fewest = limit.saturating_mul(2).clamp(FEWEST, MOST);
        if self.answered == 0 {
            return fewest;
        }
        // The variance of the latencies relative to their mean, as the mean square over the squared mean, less 1.
        let variance =
            self.seconds_squared * self.answered as f64 / (self.seconds * self.seconds) - 1.0;
        let precision = PRECISION.max(PRECISION_OF_ONE / limit as f64);
        // The error of the mean of n latencies is their deviation divided by √n, and solving for n gives this number.
        // The cast turns negative values and NaN into 0.
        ((variance / (precision * precision)) as usize).clamp(fewest, MOST)
    }

    fn means(&self, calls: usize) -> Means {
        let answered = self.answered.max(1) as f64;
        Means {
            in_flight: self.in_flight / answered,
            latency: self.seconds / answered,
            is_overloaded: self.overloaded * 10 > calls,
            is_busy: self.busy * 2 >= calls,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(millis: u64, in_flight: usize, outcome: LimitOutcome) -> LimitSample {
        LimitSample {
            latency: Duration::from_millis(millis),
            in_flight,
            waiting: false,
            outcome,
        }
    }

    #[test]
    fn steady_latencies_need_two_round_trips_and_uneven_ones_more() {
        let calls = |latencies: [u64; 2], limit| {
            let mut window = Window::default();
            let mut of = latencies.iter().cycle();
            let mut add = || window.observe(sample(*of.next()?, 1, LimitOutcome::Ok), limit);
            (1..).find(|_| add().is_some()).unwrap_or(0)
        };
        assert_eq!(calls([100, 100], 1), 10);
        assert_eq!(calls([100, 100], 20), 40);
        assert_eq!(calls([100, 100], 1000), 500);
        // The deviation is 50 of a mean of 100, which needs (0.5 / 0.05)² calls.
        assert_eq!(calls([50, 150], 20), 100);
        assert_eq!(calls([1, 1000], 20), 398);
        // At a limit of 4, a mean that is exact to an eighth is enough.
        assert_eq!(calls([50, 150], 4), 16);
    }

    #[test]
    fn means_are_those_of_answered_calls_after_the_change() {
        let mut window = Window::after_change(2);
        for _ in 0..2 {
            assert_eq!(window.observe(sample(900, 9, LimitOutcome::Ok), 2), None);
        }
        for _ in 0..8 {
            assert_eq!(window.observe(sample(100, 1, LimitOutcome::Ok), 2), None);
        }
        let refused = sample(1, 1, LimitOutcome::Overloaded);
        assert_eq!(window.observe(refused, 2), None);
        let means = window.observe(refused, 2).expect("ten calls");
        assert!((means.latency - 0.1).abs() < 1e-9, "{means:?}");
        assert_eq!(means.in_flight, 1.0);
        assert!(means.is_overloaded && means.is_busy);
    }
}
