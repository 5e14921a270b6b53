//! The header `Retry-After`, which is the number of seconds that a rejected client waits before it retries.
//!
//! Without the header, or with the same number for all, clients retry in one wave and are rejected again.

use std::time::Duration;

use crate::setters::setters;

/// The settings for `Retry-After`, the number of seconds after which a rejected client may retry.
///
/// ```
/// use std::time::Duration;
/// use tower_triage::rejection::RetryAfter;
///
/// let retry_after = RetryAfter::estimate().min_seconds(2).max_seconds(30);
/// assert_eq!(retry_after.seconds(Some(Duration::from_secs(10)), 0.0), 10);
/// assert_eq!(retry_after.seconds(Some(Duration::from_secs(10)), 0.99), 12);
/// assert_eq!(retry_after.seconds(Some(Duration::from_secs(300)), 0.5), 30);
/// assert_eq!(RetryAfter::fixed(5).seconds(None, 0.5), 5);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct RetryAfter {
    /// The source of the seconds, which is [`RetryAfterMode::Estimate`] by default.
    pub mode: RetryAfterMode,
    /// The smallest number that is sent, which is 1 by default. It replaces the estimate, with jitter, while there is
    /// none. With [`RetryAfterMode::Fixed`], it is the number that is always sent. 0 counts as 1.
    pub min_seconds: u64,
    /// The largest number in the mode `Estimate`, including jitter. The default is 60. Over HTTP, more than 120 is sent
    /// as 120 in both modes.
    pub max_seconds: u64,
    /// The largest share of an estimate that is added at random. It is from 0 to 1, and the default is 0.2. The
    /// addition is rounded up to whole seconds, and it keeps clients from returning together.
    pub jitter: f64,
}

/// The source of the seconds of a [`RetryAfter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RetryAfterMode {
    /// The seconds follow from the speed at which the waiting room empties.
    #[default]
    Estimate,
    /// The seconds are always the configured `min_seconds`, without jitter.
    Fixed,
}

impl RetryAfter {
    /// Creates settings that estimate the seconds from the speed at which the waiting room empties. This is the
    /// default.
    #[must_use]
    pub fn estimate() -> Self {
        Self::default()
    }

    /// Creates settings that always send `seconds`, where 0 counts as 1.
    #[must_use]
    pub fn fixed(seconds: u64) -> Self {
        Self::default()
            .mode(RetryAfterMode::Fixed)
            .min_seconds(seconds)
    }

    setters! {
        mode: RetryAfterMode,
        min_seconds: u64,
        max_seconds: u64,
        jitter: f64,
    }

    /// Returns the whole seconds to send, which are at least 1. `random` is uniform in `0.0..1.0`.
    #[must_use]
    pub fn seconds(&self, estimated_wait: Option<Duration>, random: f64) -> u64 {
        let seconds = match self.mode {
            RetryAfterMode::Fixed => self.min_seconds,
            RetryAfterMode::Estimate => {
                let estimate = estimated_wait
                    .map_or(0, whole_seconds)
                    .max(self.min_seconds)
                    .min(self.max_seconds);
                estimate
                    .saturating_add(extra(estimate, self.jitter, random))
                    .min(self.max_seconds)
            }
        };
        seconds.max(1)
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    ///
    /// If `min_seconds` is above `max_seconds` in the mode `Estimate`, or if `jitter` is not from 0 to 1.
    pub fn validate(&self) -> Result<(), InvalidRetryAfter> {
        if self.mode == RetryAfterMode::Estimate && self.min_seconds > self.max_seconds {
            return Err(InvalidRetryAfter::Range {
                min: self.min_seconds,
                max: self.max_seconds,
            });
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(InvalidRetryAfter::Jitter(self.jitter));
        }
        Ok(())
    }
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self {
            mode: RetryAfterMode::Estimate,
            min_seconds: 1,
            max_seconds: 60,
            jitter: 0.2,
        }
    }
}

/// An error in a [`RetryAfter`], with the field, its value, and the allowed values.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRetryAfter {
    /// The range of allowed estimates is empty.
    #[error(
        "`retry_after.min_seconds` is {min}: it must not exceed `retry_after.max_seconds`, {max}"
    )]
    Range {
        /// The value of `min_seconds`.
        min: u64,
        /// The value of `max_seconds`.
        max: u64,
    },
    /// The jitter is not a share from 0 to 1.
    #[error("`retry_after.jitter` is {0}: it must be from 0 to 1")]
    Jitter(f64),
}

/// Returns the duration in whole seconds. It is rounded up, because a client that retries too early is rejected again.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// Returns a whole number from 0 to `jitter` × `seconds`, rounded up. Every whole number is equally likely.
fn extra(seconds: u64, jitter: f64, random: f64) -> u64 {
    let most = (seconds as f64 * jitter).ceil();
    (random * (most + 1.0)).min(most) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_rounded_up_clamped_and_jittered_upwards() {
        let cases = [
            // min, max, jitter, estimate in ms, random → seconds
            (1, 60, 0.0, Some(2_300), 0.0, 3),
            (1, 60, 0.0, Some(2_000), 0.9, 2),
            (1, 60, 0.0, Some(0), 0.0, 1),
            (1, 60, 0.0, None, 0.9, 1),
            (5, 60, 0.0, Some(100), 0.0, 5),
            (5, 60, 0.0, None, 0.0, 5),
            (5, 60, 0.2, None, 0.99, 6),
            (1, 60, 0.0, Some(999_000), 0.0, 60),
            (1, 60, 0.2, Some(10_000), 0.0, 10),
            (1, 60, 0.2, Some(10_000), 0.5, 11),
            (1, 60, 0.2, Some(10_000), 0.99, 12),
            (1, 60, 0.2, Some(10_000), 1.0, 12),
            (1, 60, 0.2, Some(1_000), 0.99, 2),
            (1, 60, 0.2, Some(59_000), 0.99, 60),
            (1, 60, 0.2, Some(999_000), 0.99, 60),
            (0, 60, 0.2, Some(0), 0.99, 1),
            (1, 60, f64::NAN, Some(5_000), f64::NAN, 5),
            (9, 3, 0.2, Some(5_000), 0.5, 3),
        ];
        for case in cases {
            let (min, max, jitter, estimate, random, seconds) = case;
            let retry_after = RetryAfter::estimate()
                .min_seconds(min)
                .max_seconds(max)
                .jitter(jitter);
            let estimate = estimate.map(Duration::from_millis);
            assert_eq!(retry_after.seconds(estimate, random), seconds, "{case:?}");
        }
        let longest = RetryAfter::estimate().min_seconds(1).max_seconds(u64::MAX);
        assert_eq!(longest.seconds(Some(Duration::MAX), 0.99), u64::MAX);
    }

    #[test]
    fn fixed_ignores_the_estimate() {
        for estimate in [None, Some(Duration::from_secs(30))] {
            assert_eq!(RetryAfter::fixed(90).seconds(estimate, 0.99), 90);
            assert_eq!(RetryAfter::fixed(0).seconds(estimate, 0.99), 1);
        }
    }

    #[test]
    fn contradicting_numbers_are_refused() {
        let jitter = |share| RetryAfter::default().jitter(share).validate();
        assert_eq!(
            RetryAfter::estimate()
                .min_seconds(9)
                .max_seconds(3)
                .validate(),
            Err(InvalidRetryAfter::Range { min: 9, max: 3 })
        );
        assert_eq!(jitter(1.5), Err(InvalidRetryAfter::Jitter(1.5)));
        assert_eq!(jitter(-0.1), Err(InvalidRetryAfter::Jitter(-0.1)));
        assert!(jitter(f64::NAN).is_err());
        assert!(jitter(0.0).is_ok() && jitter(1.0).is_ok());
        assert!(RetryAfter::fixed(90).validate().is_ok());
    }
}
