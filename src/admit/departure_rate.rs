//! How fast the waiting room drains.
//!
//! Without it, `Retry-After` is a guess. Departures are counted as they happen, and put against the clock
//! only when somebody arrives and has read the clock anyway: a release stays free of it.

use std::time::Duration;

use super::nanos::Nanos;

/// Departures per second, averaged over about half a minute of waiting.
#[derive(Debug, Default)]
pub(crate) struct DepartureRate {
    departures: u64,
    /// When and at how many departures the present measurement began.
    since: Option<(Nanos, u64)>,
    per_second: Option<f64>,
}

/// A shorter measurement says more about chance than about the rate.
const SHORTEST: Nanos = 100_000_000;
/// Older measurements fade by half in about two thirds of this.
const MEMORY_SECONDS: f64 = 30.0;

impl DepartureRate {
    /// Somebody got a slot.
    #[inline]
    pub(crate) fn depart(&mut self) {
        self.departures += 1;
    }

    /// Time in an empty room says nothing about how fast a full one drains.
    pub(crate) fn room_was_empty(&mut self, now: Nanos) {
        self.since = Some((now, self.departures));
    }

    /// Puts the departures so far against the clock.
    pub(crate) fn observe(&mut self, now: Nanos) {
        let (began, at) = *self.since.get_or_insert((now, self.departures));
        let time = now.saturating_sub(began);
        if time < SHORTEST {
            return;
        }
        let count = self.departures - at;
        let seconds = time as f64 / 1e9;
        if count == 0 {
            // A service that has stalled is no faster than one departure in all this time.
            self.per_second = self.per_second.map(|rate| rate.min(1.0 / seconds));
            return;
        }
        let rate = count as f64 / seconds;
        self.per_second = Some(match self.per_second {
            None => rate,
            Some(old) => {
                let weight = 1.0 - (-seconds / MEMORY_SECONDS).exp();
                old + (rate - old) * weight
            }
        });
        self.since = Some((now, self.departures));
    }

    /// How long until `ahead` requests have gone. `None` before anything is known.
    pub(crate) fn wait_for(&self, ahead: usize) -> Option<Duration> {
        time_for(ahead, self.per_second?)
    }

    /// Departures per second. `None` before anything is known.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.per_second
    }
}

/// How long `ahead` requests take to go at this many per second.
pub(crate) fn time_for(ahead: usize, per_second: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ahead as f64 / per_second).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = 7;
    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn ten_a_second_drain_fifty_in_five() {
        let mut drain = DepartureRate::default();
        drain.room_was_empty(START);
        for i in 1..=20 {
            drain.depart();
            drain.observe(START + i * SECOND / 10);
        }
        let wait = drain.wait_for(50).unwrap().as_secs_f64();
        assert!((wait - 5.0).abs() < 0.01, "{wait}");
    }

    #[test]
    fn an_idle_hour_does_not_slow_the_estimate() {
        let mut drain = DepartureRate::default();
        drain.room_was_empty(START);
        drain.depart();
        drain.observe(START + SECOND);
        let later = START + 3600 * SECOND;
        drain.room_was_empty(later);
        drain.depart();
        drain.observe(later + SECOND);
        let wait = drain.wait_for(1).unwrap().as_secs_f64();
        assert!((wait - 1.0).abs() < 0.01, "{wait}");
    }

    #[test]
    fn a_stalled_service_drains_no_faster_than_it_stalls() {
        let mut drain = DepartureRate::default();
        drain.room_was_empty(START);
        drain.depart();
        drain.observe(START + SECOND);
        drain.observe(START + 21 * SECOND);
        let wait = drain.wait_for(1).unwrap().as_secs_f64();
        assert!((wait - 20.0).abs() < 0.01, "{wait}");
    }

    #[test]
    fn nothing_is_known_at_first() {
        assert_eq!(DepartureRate::default().wait_for(1), None);
    }
}
