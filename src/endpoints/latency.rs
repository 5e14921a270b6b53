//! Exponential averages of an endpoint's latency, each in one atomic word. An average decays while there are no samples, so
//! that an endpoint that was slow an hour ago and has idled since does not count as slow.

use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed; // a measurement that guards no other memory
use std::time::{Duration, Instant};

use crate::gate;

/// The averages of the time that an endpoint takes to respond.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    /// The time until the head of a response arrives.
    pub(crate) first_byte: Average,
    /// The time until the head of a response arrives, where a longer sample replaces the average at once.
    pub(crate) peak: Average,
    /// The time until a response has ended.
    pub(crate) total: Average,
}

/// The number of usual times after which a caller that leaves says something about the endpoint.
const MANY_TIMES: u32 = 8;

/// The number of microseconds within which a caller that leaves says nothing about the endpoint.
const LEAST_GIVEN_UP: u32 = 100_000;

impl Latency {
    /// Records that a caller left after the time `took` without a response, which would have taken longer. Returns `true` if
    /// that is many times the usual time of a whole response.
    pub(crate) fn given_up(&self, took: Duration, now: CoarseInstant) -> bool {
        let sample = micros(took);
        if sample > self.first_byte.micros(now) {
            self.answered(took, now);
        }
        let usual = self.total.last();
        usual > 0 && sample > LEAST_GIVEN_UP && sample / MANY_TIMES > usual
    }

    /// Records that the head of a response arrived after the time `took`.
    pub(crate) fn answered(&self, took: Duration, now: CoarseInstant) {
        self.first_byte.add(took, now);
        self.peak.add_peak(took, now);
    }
}

/// A number of milliseconds since a fixed moment of the process, which wraps around after 49.7 days.
///
/// So an [`Average`] with its time fits into one atomic word. If an average gets no sample for longer than that, its last
/// sample may look recent, which is harmless: within a few minutes it has halved away again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CoarseInstant(pub(crate) u32);

impl CoarseInstant {
    pub(crate) fn now() -> Self {
        Self::at(gate::now())
    }

    pub(crate) fn at(instant: Instant) -> Self {
        Self(instant.saturating_duration_since(*START).as_millis() as u32)
    }

    /// Returns the instant to the millisecond, if it is within the last 49 days.
    pub(crate) fn instant(self) -> Instant {
        let now = gate::now();
        let ago = Duration::from_millis(Self::at(now).since(self).into());
        now.checked_sub(ago).unwrap_or(now)
    }

    /// Returns the milliseconds since `earlier`. It returns 0 if `earlier` is a little later, because another thread
    /// has read the clock in between.
    fn since(self, earlier: Self) -> u32 {
        match self.0.wrapping_sub(earlier.0) {
            ms if ms > u32::MAX - MAX_SKEW_MS => 0,
            ms => ms,
        }
    }
}

/// The zero of [`CoarseInstant`]: an instant before all others of the process, even before those of a paused clock.
pub(super) static START: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(Duration::from_secs(3600)).unwrap_or(now)
});

/// The longest time for which a thread may be suspended between the read of the clock and its use.
const MAX_SKEW_MS: u32 = 60_000;

/// An exponential average of durations. The upper half of the word has the microseconds, and the lower half has the
/// time of the last sample.
#[derive(Debug, Default)]
pub(crate) struct Average(AtomicU64);

/// The binary logarithm of the time after which an average halves without samples, which is 2^13 ms or about 8 s.
const HALVES_AFTER_LOG2: u32 = 13;

/// The binary logarithm of the inverse weight of a sample, which weighs 2^-3 = 1/8.
const LEAST_WEIGHT_LOG2: u32 = 3;

impl Average {
    /// Returns the average in microseconds. It is 0 before the first sample and long after the last one.
    pub(crate) fn micros(&self, now: CoarseInstant) -> u32 {
        let (micros, since) = unpack(self.0.load(Relaxed));
        decayed(micros, now.since(since))
    }

    /// Returns the average in microseconds as it was after the last sample, or 0 before the first one.
    fn last(&self) -> u32 {
        unpack(self.0.load(Relaxed)).0
    }

    /// Adds a sample, which moves the average towards it by an eighth.
    pub(crate) fn add(&self, sample: Duration, now: CoarseInstant) {
        self.update(now, |old| average(old, micros(sample)));
    }

    /// Adds a sample, which replaces the average if it is longer.
    fn add_peak(&self, sample: Duration, now: CoarseInstant) {
        let sample = micros(sample);
        self.update(now, |old| sample.max(average(old, sample)));
    }

    /// Replaces the decayed average by `next` of it. An average of 0 means unknown, so the smallest result is 1.
    fn update(&self, now: CoarseInstant, next: impl Fn(u32) -> u32) {
        // The closure always returns `Some`, so the result can be ignored.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |word| {
            let (micros, since) = unpack(word);
            let next = next(decayed(micros, now.since(since)));
            Some(pack(next.max(1), now))
        });
    }
}

/// Returns `old` moved towards `sample`, or `sample` alone if there was none before.
fn average(old: u32, sample: u32) -> u32 {
    if old == 0 {
        return sample;
    }
    let step = (i64::from(sample) - i64::from(old)) >> LEAST_WEIGHT_LOG2;
    (i64::from(old) + step) as u32
}

/// Returns an average after `idle_ms` milliseconds without a sample.
fn decayed(micros: u32, idle_ms: u32) -> u32 {
    micros
        .checked_shr(idle_ms >> HALVES_AFTER_LOG2)
        .unwrap_or(0)
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

fn pack(micros: u32, at: CoarseInstant) -> u64 {
    u64::from(micros) << 32 | u64::from(at.0)
}

fn unpack(word: u64) -> (u32, CoarseInstant) {
    ((word >> 32) as u32, CoarseInstant(word as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_sample_is_the_average() {
        let average = Average::default();
        assert_eq!(average.micros(CoarseInstant(9)), 0);
        average.add(5 * MS, CoarseInstant(9));
        assert_eq!(average.micros(CoarseInstant(9)), 5_000);
    }

    #[test]
    fn samples_move_it_by_an_eighth() {
        let average = Average::default();
        average.add(8 * MS, CoarseInstant(0));
        average.add(16 * MS, CoarseInstant(1));
        assert_eq!(average.micros(CoarseInstant(1)), 9_000);
        average.add(MS, CoarseInstant(2));
        assert_eq!(average.micros(CoarseInstant(2)), 8_000);
    }

    #[test]
    fn a_peak_counts_at_once_and_is_forgotten_slowly() {
        let average = Average::default();
        average.add_peak(8 * MS, CoarseInstant(0));
        average.add_peak(80 * MS, CoarseInstant(1));
        assert_eq!(average.micros(CoarseInstant(1)), 80_000);
        average.add_peak(8 * MS, CoarseInstant(2));
        assert_eq!(average.micros(CoarseInstant(2)), 71_000);
    }

    #[test]
    fn it_halves_without_samples() {
        let average = Average::default();
        average.add(8 * MS, CoarseInstant(u32::MAX - 10));
        let later = |ms: u32| CoarseInstant((u32::MAX - 10).wrapping_add(ms));
        for (ms, micros) in [
            (8_191, 8_000),
            (8_192, 4_000),
            (16_384, 2_000),
            (1 << 30, 0),
        ] {
            assert_eq!(average.micros(later(ms)), micros, "{ms}");
        }
        average.add(4 * MS, later(8_192));
        assert_eq!(average.micros(later(8_192)), 4_000);
    }

    #[test]
    fn a_reader_with_an_earlier_clock_sees_the_sample() {
        let average = Average::default();
        average.add(8 * MS, CoarseInstant(5));
        assert_eq!(average.micros(CoarseInstant(4)), 8_000);
        average.add(16 * MS, CoarseInstant(4));
        assert_eq!(average.micros(CoarseInstant(5)), 9_000);
    }

    #[test]
    fn a_caller_that_leaves_after_many_times_the_usual_time_is_told() {
        let latency = Latency::default();
        let now = CoarseInstant(9);
        assert!(!latency.given_up(500 * MS, now), "nothing is usual yet");
        let latency = Latency::default();
        latency.answered(20 * MS, now);
        latency.total.add(20 * MS, now);
        for (took, expected) in [(99, false), (150, false), (500, true), (500, true)] {
            assert_eq!(latency.given_up(took * MS, now), expected, "{took}");
        }
        assert!(
            latency.first_byte.micros(now) > 100_000,
            "others are preferred now"
        );
        latency.total.add(800 * MS, now);
        assert!(!latency.given_up(800 * MS, now));
    }

    #[test]
    fn more_than_an_hour_is_the_maximum() {
        let average = Average::default();
        average.add(Duration::MAX, CoarseInstant(0));
        assert_eq!(average.micros(CoarseInstant(0)), u32::MAX);
    }
}
