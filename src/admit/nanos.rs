//! Instants as numbers.
//!
//! An [`Instant`] takes two words, an optional one three, and its arithmetic is a call each time; a number is one word.

use std::time::{Duration, Instant};

/// An instant, in nanoseconds.
pub(crate) type Nanos = u64;

/// Later than everything.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// The epoch's own number: what was before it has one, too.
const EPOCH: Nanos = 1 << 62;

/// What instants are measured from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch(pub(crate) Instant);

impl Epoch {
    #[inline]
    pub(crate) fn nanos(self, instant: Instant) -> Nanos {
        // What is said where the time does not matter.
        if instant == self.0 {
            return EPOCH;
        }
        self.measure(instant)
    }

    fn measure(self, instant: Instant) -> Nanos {
        match instant.checked_duration_since(self.0) {
            Some(after) => EPOCH.saturating_add(span(after)).min(NEVER - 1),
            None => EPOCH.saturating_sub(span(self.0 - instant)),
        }
    }

    /// `None` for what is never.
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

/// How long it is.
#[inline]
pub(crate) fn span(duration: Duration) -> Nanos {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos().into())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_the_epoch_comes_before_it() {
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
    fn never_is_no_instant() {
        let now = Instant::now();
        assert_eq!(Epoch(now).instant(NEVER), None);
        let far = now + Duration::from_secs(1 << 40);
        assert!(Epoch(now).nanos(far) < NEVER);
    }
}
