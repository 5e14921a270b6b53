//! Instants as numbers of nanoseconds.
//!
//! An [`Instant`] takes 16 bytes, and each operation on it is a function call. A number takes 8 bytes, and each
//! operation is one instruction.

use std::time::{Duration, Instant};

/// An instant, in nanoseconds since 2⁶² ns before the [`Epoch`].
pub(crate) type Nanos = u64;

/// The number that is later than every instant, for ends that never come.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// The number of the epoch itself. It is above 0, because tickets may have arrived up to 146 years before the epoch.
const EPOCH: Nanos = 1 << 62;

/// The instant from which numbers are measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch(pub(crate) Instant);

impl Epoch {
    /// Returns the number of an instant, which is always below [`NEVER`].
    #[inline]
    pub(crate) fn nanos(self, instant: Instant) -> Nanos {
        // Callers without interest in time pass the epoch, which needs no arithmetic.
        if instant == self.0 {
            return EPOCH;
        }
        match instant.checked_duration_since(self.0) {
            // Even an instant in 438 years is an end, so its number stays below `NEVER`.
            Some(after) => EPOCH.saturating_add(span(after)).min(NEVER - 1),
            // The instant is before the epoch.
            None => EPOCH.saturating_sub(span(self.0 - instant)),
        }
    }

    /// Returns the instant of a number. `None` for `NEVER`, and for numbers beyond the range of an [`Instant`].
    pub(crate) fn instant(self, nanos: Nanos) -> Option<Instant> {
        if nanos == NEVER {
            return None;
        }
        match nanos.checked_sub(EPOCH) {
            Some(after) => self.0.checked_add(Duration::from_nanos(after)),
            None => self.0.checked_sub(Duration::from_nanos(EPOCH - nanos)),
        }
    }
}

/// Returns a duration in nanoseconds. Durations above 584 years become 584 years.
#[inline]
pub(crate) fn span(duration: Duration) -> Nanos {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos().into())
}

/// Converts a number of nanoseconds to seconds.
#[inline]
pub(crate) fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn instants_before_and_after_the_epoch_round_trip() {
        let now = Instant::now();
        let epoch = Epoch(now + Duration::from_secs(2));
        for nanos in [
            0,
            1,
            999_999_999,
            2_000_000_000,
            2_000_000_001,
            u64::MAX >> 4,
        ] {
            let instant = now + Duration::from_nanos(nanos);
            assert_eq!(
                epoch.instant(epoch.nanos(instant)),
                Some(instant),
                "{nanos}"
            );
            assert!(epoch.nanos(now) <= epoch.nanos(instant), "{nanos}");
        }
    }

    #[test]
    fn only_never_has_no_instant() {
        let now = Instant::now();
        assert_eq!(Epoch(now).instant(NEVER), None);
        let far = now + Duration::from_secs(1 << 40);
        assert!(Epoch(now).nanos(far) < NEVER);
    }
}
