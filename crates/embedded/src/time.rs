//! The time of a store, in microseconds since 1970, so that it keeps its meaning across restarts.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A point in time with a resolution of 1 µs. It is never 0, so an `Option` of it takes 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Time(NonZeroU64);

impl Time {
    pub(crate) fn from_micros(micros: u64) -> Self {
        Self(NonZeroU64::new(micros).unwrap_or(NonZeroU64::MIN))
    }

    /// Returns the time at which the request with this number was stored.
    pub(crate) fn of_seq(seq: u64) -> Self {
        Self::from_micros(seq / 1_000)
    }

    /// Returns the time, rounded down to a microsecond. Times before 1970 become the first microsecond of 1970.
    pub(crate) fn from_system(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_micros(micros(since))
    }

    pub(crate) fn to_system(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.0.get())
    }

    /// Returns the time that is `duration` later. It saturates at the last representable microsecond.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self::from_micros(self.0.get().saturating_add(micros(duration)))
    }

    /// Returns the time from `earlier` to this one, or 0 if `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.get().saturating_sub(earlier.0.get()))
    }

    pub(crate) fn micros(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn nanos(self) -> u64 {
        self.0.get().saturating_mul(1_000)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_to_the_microsecond() {
        let time = Time::from_system(SystemTime::now());
        assert_eq!(Time::from_system(time.to_system()), time);
        assert_eq!(size_of::<Option<Time>>(), 8);
        let last = time.after(Duration::MAX);
        assert!(last.to_system() > time.to_system());
        assert_eq!(time.since(last), Duration::ZERO);
    }
}
