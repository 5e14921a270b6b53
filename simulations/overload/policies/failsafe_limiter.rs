//! The limit of failsafe-go's adaptive limiter, with its defaults (0.9.7).
//!
//! 20 at first, 1 at least, 200 at most. Samples are collected for 1 s and twice the shortest response time, up to 30 s,
//! and until there are 50. Their p90 goes through a median of 5 and an average over 5, and is compared with an average over 10
//! of those: the limit falls or rises by log10 of it, by the queue that the ratio of the two implies. Correlations of
//! requests in flight with throughput and response time over the last 50 windows keep it from drifting upwards.

use std::collections::VecDeque;
use std::time::Duration;

use super::rolling::{Correlation, WarmAverage};

pub(crate) struct FailsafeLimiter {
    pub(crate) limit: f64,
    /// Response times in seconds since the last update.
    samples: Vec<f64>,
    most_in_flight: usize,
    next_update: Duration,
    recent_quantiles: VecDeque<f64>,
    recent: WarmAverage,
    baseline: WarmAverage,
    throughput: Correlation,
    response_time: Correlation,
}

const WARM_UP: usize = 10;

impl FailsafeLimiter {
    const LEAST: f64 = 1.0;
    const MOST: f64 = 200.0;
    const LEAST_SAMPLES: usize = 50;
    const QUANTILE: f64 = 0.9;
    /// The limit is not raised above so many times the requests in flight.
    const MOST_IN_FLIGHT: f64 = 5.0;

    pub(crate) fn new() -> Self {
        Self {
            limit: 20.0,
            samples: Vec::new(),
            most_in_flight: 0,
            next_update: Duration::ZERO,
            recent_quantiles: VecDeque::new(),
            recent: WarmAverage::new(5.0, WARM_UP),
            baseline: WarmAverage::new(10.0, WARM_UP),
            throughput: Correlation::new(50, WARM_UP),
            response_time: Correlation::new(50, WARM_UP),
        }
    }

    /// A response took `seconds`; `in_flight` is from its start. `is_full`: as many are in flight as may be.
    pub(crate) fn sample(&mut self, seconds: f64, in_flight: usize, is_full: bool, now: Duration) {
        self.samples.push(seconds);
        self.most_in_flight = self.most_in_flight.max(in_flight);
        if now <= self.next_update || self.samples.len() < Self::LEAST_SAMPLES {
            return;
        }
        self.samples.sort_by(f64::total_cmp);
        let shortest = self.samples[0];
        let rank = (self.samples.len() as f64 * Self::QUANTILE) as usize;
        let quantile = self.samples[rank.min(self.samples.len() - 1)];
        let recent = self
            .recent
            .add(median_of_5(&mut self.recent_quantiles, quantile));
        self.update(recent, self.most_in_flight as f64, is_full);
        self.samples.clear();
        self.most_in_flight = 0;
        self.next_update = now + Duration::from_secs_f64((2.0 * shortest).clamp(1.0, 30.0));
    }

    fn update(&mut self, recent: f64, in_flight: f64, is_full: bool) {
        let baseline = self.baseline.add(recent);
        let queue = (self.limit * (1.0 - baseline / recent)).ceil();
        let throughput = self.throughput.add(in_flight, in_flight / recent);
        let response_time = self.response_time.add(in_flight, recent);
        // At least 1, in whole numbers.
        let step = self.limit.log10().floor().max(1.0);
        let overloaded = throughput.correlation < 0.0
            || throughput.correlation < 0.3 && response_time.correlation > 0.5
            || throughput.variation < 0.2 && response_time.correlation > 0.5;
        let new = if queue > 6.0 * step || is_full && overloaded {
            self.limit - step
        } else if queue < 3.0 * step {
            self.limit + step
        } else {
            self.limit
        };
        let new = match new > Self::MOST_IN_FLIGHT * in_flight {
            true => self.limit - step,
            false => new,
        };
        self.limit = new.clamp(Self::LEAST, Self::MOST);
    }
}

fn median_of_5(recent: &mut VecDeque<f64>, sample: f64) -> f64 {
    recent.push_back(sample);
    if recent.len() > 5 {
        recent.pop_front();
    }
    let mut sorted: Vec<f64> = recent.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
