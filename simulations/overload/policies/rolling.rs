//! Statistics over recent samples, as the adaptive limits use them.

use std::collections::VecDeque;

/// An exponentially weighted average, and the plain one of its first samples.
pub(crate) struct WarmAverage {
    pub(crate) value: f64,
    weight: f64,
    warm_up: usize,
    count: usize,
}

impl WarmAverage {
    /// Over about `window` samples.
    pub(crate) fn new(window: f64, warm_up: usize) -> Self {
        Self {
            value: 0.0,
            weight: 2.0 / (window + 1.0),
            warm_up,
            count: 0,
        }
    }

    /// Adds a sample, and returns the average.
    pub(crate) fn add(&mut self, sample: f64) -> f64 {
        self.count += 1;
        let weight = match self.count <= self.warm_up {
            true => 1.0 / self.count as f64,
            false => self.weight,
        };
        self.value += weight * (sample - self.value);
        self.value
    }
}

/// The correlation of two quantities over recent samples.
pub(crate) struct Correlation {
    samples: VecDeque<(f64, f64)>,
    window: usize,
    warm_up: usize,
}

/// What [`Correlation`] says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Correlated {
    /// From −1 to 1; 0 until it is known.
    pub(crate) correlation: f64,
    /// The coefficient of variation of the second quantity.
    pub(crate) variation: f64,
}

impl Correlation {
    pub(crate) fn new(window: usize, warm_up: usize) -> Self {
        Self {
            samples: VecDeque::new(),
            window,
            warm_up,
        }
    }

    pub(crate) fn add(&mut self, x: f64, y: f64) -> Correlated {
        /// What varies less is constant.
        const LEAST_VARIATION: f64 = 0.01;
        self.samples.push_back((x, y));
        if self.samples.len() > self.window {
            self.samples.pop_front();
        }
        let unknown = Correlated {
            correlation: 0.0,
            variation: 0.0,
        };
        if self.samples.len() < self.warm_up {
            return unknown;
        }
        let count = self.samples.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| self.samples.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|(x, _)| *x), mean(|(_, y)| *y));
        let deviation_x = (mean(|(x, _)| x * x) - mean_x * mean_x).max(0.0).sqrt();
        let deviation_y = (mean(|(_, y)| y * y) - mean_y * mean_y).max(0.0).sqrt();
        let variation = deviation_y / mean_y;
        if deviation_x / mean_x < LEAST_VARIATION || variation < LEAST_VARIATION {
            return Correlated {
                variation,
                ..unknown
            };
        }
        let covariance = mean(|(x, y)| x * y) - mean_x * mean_y;
        Correlated {
            correlation: covariance / (deviation_x * deviation_y),
            variation,
        }
    }
}
