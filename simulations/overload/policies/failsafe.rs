//! failsafe-go's adaptive limiter (0.9.7) with a queue, plain or prioritized.
//!
//! A request beyond the [limit](super::failsafe_limiter) waits, first come, first served, without a bound in time. With
//! twice the limit waiting, arrivals are refused with a probability that is 1 at three times the limit. Prioritized, a
//! request draws a level within its class (high: 300 to 399, normal: 200 to 299), and those below a threshold are refused,
//! which is set each 500 ms: the quantile, of the levels of the last 1,000 admitted, at that probability.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use fastrand::Rng;

use super::failsafe_limiter::FailsafeLimiter;
use super::waiters::Waiters;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};

pub(crate) struct Failsafe {
    limiter: FailsafeLimiter,
    in_flight: HashMap<RequestId, Start>,
    waiters: Waiters<()>,
    rng: Rng,
    prioritizer: Option<Prioritizer>,
}

/// When a request was admitted, and how many were in flight then, itself included.
struct Start {
    at: Duration,
    in_flight: usize,
}

impl Failsafe {
    pub(crate) fn queueing(seed: u64) -> Self {
        Self::new(seed, None)
    }

    pub(crate) fn prioritized(seed: u64) -> Self {
        Self::new(seed, Some(Prioritizer::default()))
    }

    fn new(seed: u64, prioritizer: Option<Prioritizer>) -> Self {
        Self {
            limiter: FailsafeLimiter::new(),
            in_flight: HashMap::new(),
            waiters: Waiters::new(),
            rng: Rng::with_seed(seed),
            prioritizer,
        }
    }

    fn limit(&self) -> usize {
        self.limiter.limit as usize
    }

    fn is_full(&self) -> bool {
        self.in_flight.len() >= self.limit()
    }

    /// The probability that an arrival is refused: from 0 at twice the limit to 1 at three times.
    fn rejection_rate(&self) -> f64 {
        let limit = self.limit() as f64;
        ((self.waiters.len() as f64 - 2.0 * limit) / limit).clamp(0.0, 1.0)
    }

    /// Whether an arrival may neither start nor wait.
    fn refuses(&mut self, arrival: &Arrival) -> bool {
        let rate = self.rejection_rate();
        let is_full = self.is_full();
        let Some(prioritizer) = &mut self.prioritizer else {
            return is_full && rate > self.rng.f64();
        };
        let class = if arrival.level == 0 { 300 } else { 200 };
        let level = class + self.rng.u32(..100);
        prioritizer.levels.insert(arrival.id, level);
        is_full && (rate >= 1.0 || level < prioritizer.threshold)
    }

    fn admit(&mut self, id: RequestId, now: Duration, decisions: &mut Vec<Decision>) {
        let in_flight = self.in_flight.len() + 1;
        self.in_flight.insert(id, Start { at: now, in_flight });
        if let Some(prioritizer) = &mut self.prioritizer {
            prioritizer.record(id);
        }
        decisions.push(Decision::Admit(id));
    }
}

impl Policy for Failsafe {
    fn arrive(&mut self, arrival: Arrival, now: Duration, decisions: &mut Vec<Decision>) {
        if self.refuses(&arrival) {
            decisions.push(Decision::Refuse(arrival.id));
        } else if self.is_full() {
            self.waiters.push(arrival.id, (), None);
        } else {
            self.admit(arrival.id, now, decisions);
        }
    }

    fn release(
        &mut self,
        id: RequestId,
        ended: Ended,
        now: Duration,
        decisions: &mut Vec<Decision>,
    ) {
        let is_full = self.is_full();
        if let Some(start) = self.in_flight.remove(&id)
            && ended == Ended::Finished
        {
            let seconds = (now - start.at).as_secs_f64();
            self.limiter.sample(seconds, start.in_flight, is_full, now);
        }
        while !self.is_full()
            && let Some(next) = self.waiters.pop_first()
        {
            self.admit(next, now, decisions);
        }
    }

    fn leave(&mut self, id: RequestId, _: Duration, _: &mut Vec<Decision>) {
        self.waiters.remove(id);
    }

    fn next_timeout(&self) -> Option<Duration> {
        self.prioritizer.as_ref().map(|p| p.next_calibration)
    }

    fn advance(&mut self, _: Duration, _: &mut Vec<Decision>) {
        let rate = self.rejection_rate();
        if let Some(prioritizer) = &mut self.prioritizer {
            prioritizer.calibrate(rate);
        }
    }
}

#[derive(Default)]
struct Prioritizer {
    /// Those of lower levels are refused.
    threshold: u32,
    levels: HashMap<RequestId, u32>,
    /// The levels of the last requests that were admitted.
    admitted: VecDeque<u32>,
    next_calibration: Duration,
}

impl Prioritizer {
    const INTERVAL: Duration = Duration::from_millis(500);
    const MEMORY: usize = 1_000;

    fn record(&mut self, id: RequestId) {
        self.admitted.extend(self.levels.remove(&id));
        if self.admitted.len() > Self::MEMORY {
            self.admitted.pop_front();
        }
    }

    fn calibrate(&mut self, rate: f64) {
        self.next_calibration += Self::INTERVAL;
        let mut levels: Vec<u32> = self.admitted.iter().copied().collect();
        levels.sort_unstable();
        let rank = (levels.len() as f64 * rate).ceil() as usize;
        // At rate 0 none is refused.
        self.threshold = rank.checked_sub(1).map_or(0, |at| levels[at]);
    }
}
