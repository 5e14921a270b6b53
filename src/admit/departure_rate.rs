//! The measured rate at which waiters leave with a slot.
//!
//! Without it, `Retry-After` is a guess. Departures are counted as they happen, and compared with the clock only when a
//! request arrives, which has read the clock anyway: so a release costs no clock read, about 25 ns.

use std::time::Duration;

use super::nanos::Nanos;

/// Departures per second: an exponentially weighted average with a time constant of 30 s of waiting.
#[derive(Debug, Default)]
pub(crate) struct DepartureRate {
    /// How many left with a slot so far.
    departures: u64,
    /// When and at how many departures the present measurement began.
    since: Option<(Nanos, u64)>,
    per_second: Option<f64>,
}

/// In nanoseconds. A shorter measurement says more about chance than about the rate.
const SHORTEST: Nanos = 100_000_000;
/// Time constant of the average: a measurement's weight halves in about 21 s.
const MEMORY_SECONDS: f64 = 30.0;

impl DepartureRate {
    /// A waiter got a slot.
    #[inline]
    pub(crate) fn depart(&mut self) {
        self.departures += 1;
    }

    /// The room was empty until `now`: the measurement begins anew, because idle time says nothing about the rate.
    pub(crate) fn room_was_empty(&mut self, now: Nanos) {
        self.since = Some((now, self.departures));
    }

    /// Ends the present measurement, if it has lasted long enough, and adds it to the average.
    pub(crate) fn observe(&mut self, now: Nanos) {
        let (began, count_then) = *self.since.get_or_insert((now, self.departures));
        let time = now.saturating_sub(began);
        if time < SHORTEST {
            // The measurement goes on.
            return;
        }
        let count = self.departures - count_then;
        let seconds = time as f64 / 1e9;
        if count == 0 {
            // Stalled: no faster than one departure in all this time. The measurement goes on.
            self.per_second = self.per_second.map(|rate| rate.min(1.0 / seconds));
            return;
        }
        let rate = count as f64 / seconds;
        self.per_second = Some(match self.per_second {
            None => rate,
            Some(old) => {
                // The longer this measurement, the less the old ones count.
                let weight = 1.0 - (-seconds / MEMORY_SECONDS).exp();
                old + (rate - old) * weight
            }
        });
        self.since = Some((now, self.departures));
    }

    /// How long it takes until `ahead` waiters have left. `None` before the first measurement.
    pub(crate) fn wait_for(&self, ahead: usize) -> Option<Duration> {
        time_for(ahead, self.per_second?)
    }

    /// Departures per second. `None` before the first measurement.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.per_second
    }
}

/// How long `ahead` waiters take to leave at this rate. `None` if that is longer than a duration can be.
pub(crate) fn time_for(ahead: usize, per_second: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ahead as f64 / per_second).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = 7;
    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn fifty_leave_in_5_s_at_ten_per_second() {
        let mut rate = DepartureRate::default();
        rate.room_was_empty(START);
        for i in 1..=20 {
            rate.depart();
            rate.observe(START + i * SECOND / 10);
        }
        let wait = rate.wait_for(50).unwrap().as_secs_f64();
        assert!((wait - 5.0).abs() < 0.01, "{wait}");
    }

    #[test]
    fn idle_time_does_not_lower_the_rate() {
        let mut rate = DepartureRate::default();
        rate.room_was_empty(START);
        rate.depart();
        rate.observe(START + SECOND);
        let later = START + 3600 * SECOND;
        rate.room_was_empty(later);
        rate.depart();
        rate.observe(later + SECOND);
        let wait = rate.wait_for(1).unwrap().as_secs_f64();
        assert!((wait - 1.0).abs() < 0.01, "{wait}");
    }

    #[test]
    fn a_stall_lowers_the_rate() {
        let mut rate = DepartureRate::default();
        rate.room_was_empty(START);
        rate.depart();
        rate.observe(START + SECOND);
        rate.observe(START + 21 * SECOND);
        let wait = rate.wait_for(1).unwrap().as_secs_f64();
        assert!((wait - 20.0).abs() < 0.01, "{wait}");
    }

    #[test]
    fn there_is_no_estimate_before_a_measurement() {
        assert_eq!(DepartureRate::default().wait_for(1), None);
    }
}
