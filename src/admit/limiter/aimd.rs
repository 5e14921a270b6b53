//! Additive increase and multiplicative decrease of a limit. If the service refuses a step up, the next one comes
//! later.

use std::time::Instant;

use super::{Bounds, LimitOutcome, LimitSample, a_tenth_less};

#[derive(Debug)]
pub(super) struct Aimd {
    pub(super) limit: usize,
    /// The number of successes since the limit changed, counting only those with at least half of it in use.
    successes: usize,
    /// The instant at which the limit was last lowered. Refusals of calls that began before it do not lower the limit
    /// again.
    decreased: Option<Instant>,
    /// The limit at which the last refusal came. A step up to it counts as a probe.
    ceiling: usize,
    /// The number of round trips before the next probe. It doubles with each step that is refused.
    pause: usize,
    /// `true` from a step up until the step holds or is refused.
    stepped: bool,
    reading: Reading,
}

/// The last reading of the service's own queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "read by the health checks alone")
)]
enum Reading {
    /// The service reports no queue of its own.
    None,
    /// The queue inside is empty, so the limit may grow by one.
    Empty,
    /// Requests wait inside, or the limit has grown since the last reading, so the limit holds.
    Hold,
}

/// The longest pause before a probe, in round trips. With 4 slots, one request in 256 is then a probe.
const LONGEST_PAUSE: usize = 64;

impl Aimd {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            successes: 0,
            decreased: None,
            ceiling: usize::MAX,
            pause: 1,
            stepped: false,
            reading: Reading::None,
        }
    }

    pub(super) fn observe(&mut self, sample: LimitSample, now: Instant, bounds: Bounds) {
        if sample.outcome == LimitOutcome::Overloaded {
            let began = now.checked_sub(sample.latency);
            // `None`, if the clock can't go back that far, compares as earlier than any instant.
            if self.decreased.is_none_or(|then| began >= Some(then)) {
                if self.stepped {
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                    self.stepped = false;
                }
                self.ceiling = self.limit;
                self.limit = bounds.clamp(a_tenth_less(self.limit));
                self.successes = 0;
                self.decreased = Some(now);
            }
        } else if sample.is_busy(self.limit) && self.reading != Reading::Hold {
            self.successes += 1;
            // A step holds after a round trip of successes if all slots are in use.
            if self.stepped && self.successes >= self.limit && sample.in_flight >= self.limit {
                self.step_holds();
            }
            if self.successes >= self.limit.saturating_mul(self.round_trips()) {
                self.step_up(bounds);
            }
        }
    }

    /// Records the service's own report on its queue. `waits` is `true` if requests wait inside, and `None` without a
    /// report.
    #[cfg(any(feature = "client", test))]
    pub(super) fn on_reading(&mut self, waits: Option<bool>) {
        self.reading = match waits {
            None => Reading::None,
            Some(false) => Reading::Empty,
            Some(true) => Reading::Hold,
        };
    }

    /// Returns the number of round trips before the next step up.
    fn round_trips(&self) -> usize {
        match self.limit.saturating_add(1) >= self.ceiling {
            true => self.pause,
            false => 1,
        }
    }

    fn step_up(&mut self, bounds: Bounds) {
        let next = bounds.clamp(self.limit.saturating_add(1));
        self.stepped |= next > self.limit;
        self.limit = next;
        self.successes = 0;
        if self.reading == Reading::Empty {
            self.reading = Reading::Hold; // until the next reading shows what the step did
        }
    }

    fn step_holds(&mut self) {
        self.stepped = false;
        if self.limit >= self.ceiling {
            self.ceiling = usize::MAX;
            self.pause = 1;
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

    /// Returns the number of successes under a full limit until it grows.
    fn until_growth(aimd: &mut Aimd, now: Instant) -> usize {
        let before = aimd.limit;
        (1..100_000)
            .find(|_| {
                aimd.observe(ended(LimitOutcome::Ok, before), now, BOUNDS);
                aimd.limit > before
            })
            .expect("the limit grows")
    }

    #[test]
    fn each_refused_step_doubles_the_pause_until_a_step_holds() {
        let mut now = Instant::now();
        let mut aimd = Aimd::new(4);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pauses.push(until_growth(&mut aimd, now));
            now += 2 * LATENCY;
            aimd.observe(ended(LimitOutcome::Overloaded, 5), now, BOUNDS);
            assert_eq!(aimd.limit, 4);
        }
        assert_eq!(pauses, [4, 8, 16, 32, 64, 128, 256, 256, 256]);
        until_growth(&mut aimd, now);
        // This step up holds.
        assert_eq!(until_growth(&mut aimd, now), 5);
        assert_eq!(until_growth(&mut aimd, now), 6);
    }

    #[test]
    fn below_the_last_refusal_the_limit_grows_without_a_pause() {
        let now = Instant::now();
        let mut aimd = Aimd::new(39);
        until_growth(&mut aimd, now);
        aimd.observe(ended(LimitOutcome::Overloaded, 40), now + LATENCY, BOUNDS);
        assert_eq!(aimd.limit, 36);
        let pauses = [(); 4].map(|()| until_growth(&mut aimd, now));
        assert_eq!(pauses, [36, 37, 38, 2 * 39]);
    }

    #[test]
    fn after_each_reading_of_an_empty_queue_the_limit_grows_once() {
        let now = Instant::now();
        let mut aimd = Aimd::new(4);
        for (waits, after) in [
            (Some(true), 4),
            (Some(false), 5),
            (Some(false), 6),
            (Some(true), 6),
            (Some(false), 7),
        ] {
            aimd.on_reading(waits);
            for _ in 0..1_000 {
                aimd.observe(ended(LimitOutcome::Ok, aimd.limit), now, BOUNDS);
            }
            assert_eq!(aimd.limit, after, "{waits:?}");
        }
        aimd.on_reading(None);
        assert_eq!(until_growth(&mut aimd, now), 7);
        assert_eq!(until_growth(&mut aimd, now), 8);
    }
}
