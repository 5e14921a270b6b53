//! The configuration of an adaptive concurrency limit.

use crate::admit::SlotPool;
use crate::setters::setters;

/// A concurrency limit that is found by measurement, for a service whose limit is unknown or changes.
///
/// The limit starts at [`initial`](Self::initial) and stays from [`min`](Self::min) to [`max`](Self::max). If a
/// reconfiguration replaces a fixed limit by an adaptive one, it starts at the fixed limit.
///
/// ```
/// use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm};
///
/// let limit = AdaptiveLimit::default().max(64);
/// assert_eq!(limit.validate(), Ok(()));
/// assert_eq!(limit.algorithm, LimitAlgorithm::Vegas);
/// ```
///
/// With the feature `serde`, a file sets the limit as
/// `limit = { algorithm = "vegas", min = 1, max = 64, initial = 20 }`, in which every key is optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(try_from = "AdaptiveLimitFile"))]
#[non_exhaustive]
pub struct AdaptiveLimit {
    /// The algorithm that finds the limit. Default [`LimitAlgorithm::Vegas`].
    pub algorithm: LimitAlgorithm,
    /// The lowest limit, at least 1. Default 1.
    pub min: usize,
    /// The highest limit, at most [`SlotPool::MAX`]. Default 200.
    pub max: usize,
    /// The limit before the first measurement, brought within `min` and `max`. Default 20. In a file, a value beyond
    /// `min` or `max` is an error.
    ///
    /// A value that is too low is better than one that is too high. A limit that is too low grows by up to a quarter at
    /// a time. If the limit is several times too high, it takes minutes to fall, because the limiter has never seen the
    /// service without a queue inside.
    pub initial: usize,
}

/// The algorithm that finds an [`AdaptiveLimit`].
///
/// Any algorithm keeps its limit while less than half of it is in use and no request waits, because the calls then say
/// nothing about a higher limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LimitAlgorithm {
    /// An algorithm that reacts to refusals alone, after the rule of TCP.
    ///
    /// It lowers the limit by a tenth when calls are refused, and raises it by one after as many successes as the limit
    /// is. A step up to the limit at which calls were last refused is a probe. Each refused probe doubles the pause
    /// before the next one, up to 64 times as many successes, until a probe holds.
    ///
    /// Use it for services that report their overload with 429 or 503, and for **engines of language models**. The
    /// latency of such an engine grows with its batch by design, so the other algorithm would throttle a healthy
    /// engine.
    Aimd,
    /// An algorithm that estimates the queue inside the service from latency, and tests whether more calls in flight
    /// bring more throughput.
    ///
    /// The limit goes up and down by about a sixth all the time. If latency rises in proportion to the calls in flight,
    /// throughput stays the same, so the service is at its limit. The algorithm follows TCP Vegas. It adds the guard of
    /// failsafe-go and Uber's Cinnamon against the drift of algorithms that only compare with a past latency.
    #[default]
    Vegas,
}

impl AdaptiveLimit {
    setters! {
        algorithm: LimitAlgorithm,
        min: usize,
        max: usize,
        initial: usize,
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// Returns an error for the first wrong key, with its value and the allowed values.
    pub fn validate(&self) -> Result<(), InvalidAdaptiveLimit> {
        let Self { min, max, .. } = *self;
        if min == 0 {
            return Err(InvalidAdaptiveLimit::ZeroMin);
        }
        if max < min || max > SlotPool::MAX {
            return Err(InvalidAdaptiveLimit::Max { min, max });
        }
        Ok(())
    }

    /// Returns the limit before the first measurement. The configuration has to be valid.
    pub(crate) fn initial_limit(&self) -> usize {
        self.initial.clamp(self.min, self.max)
    }
}

impl Default for AdaptiveLimit {
    fn default() -> Self {
        Self {
            algorithm: LimitAlgorithm::default(),
            min: 1,
            max: 200,
            initial: 20,
        }
    }
}

/// The form of an [`AdaptiveLimit`] in a file.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct AdaptiveLimitFile {
    algorithm: Option<LimitAlgorithm>,
    min: Option<usize>,
    max: Option<usize>,
    initial: Option<usize>,
}

#[cfg(feature = "serde")]
impl TryFrom<AdaptiveLimitFile> for AdaptiveLimit {
    type Error = InvalidAdaptiveLimit;

    fn try_from(file: AdaptiveLimitFile) -> Result<Self, InvalidAdaptiveLimit> {
        let default = Self::default();
        let limit = Self {
            algorithm: file.algorithm.unwrap_or(default.algorithm),
            min: file.min.unwrap_or(default.min),
            max: file.max.unwrap_or(default.max),
            initial: file.initial.unwrap_or(default.initial),
        };
        let (min, max) = (limit.min, limit.max);
        match file.initial {
            // Bounds in the wrong order are left to `validate`.
            Some(initial) if min <= max && !(min..=max).contains(&initial) => {
                Err(InvalidAdaptiveLimit::Initial { initial, min, max })
            }
            _ => Ok(limit),
        }
    }
}

/// The reason why an [`AdaptiveLimit`] is invalid, with the key, its value, and the allowed values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAdaptiveLimit {
    /// The lowest limit is 0, so the service might be left without any calls.
    #[error("`limit.min` is 0: it must be at least 1")]
    ZeroMin,
    /// The highest limit is below `min`, or above [`SlotPool::MAX`].
    #[error(
        "`limit.max` is {max}: it must be from `limit.min`, which is {min}, to {}",
        SlotPool::MAX
    )]
    Max {
        /// `limit.min`.
        min: usize,
        /// `limit.max`.
        max: usize,
    },
    /// The initial limit is below `min` or above `max`.
    #[error(
        "`limit.initial` is {initial}: it must be from `limit.min`, which is {min}, to `limit.max`, which is {max}"
    )]
    Initial {
        /// `limit.initial`.
        initial: usize,
        /// `limit.min`.
        min: usize,
        /// `limit.max`.
        max: usize,
    },
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_refused_by_key() {
        let ok = AdaptiveLimit::default();
        assert_eq!(ok.validate(), Ok(()));
        let cases = [
            (ok.min(0), "`limit.min` is 0: it must be at least 1"),
            (
                ok.min(9).max(8),
                "`limit.max` is 8: it must be from `limit.min`, which is 9, to 1048575",
            ),
            (
                ok.max(1 << 20),
                "`limit.max` is 1048576: it must be from `limit.min`, which is 1, to 1048575",
            ),
        ];
        for (limit, expected) in cases {
            assert_eq!(limit.validate().unwrap_err().to_string(), expected);
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn every_key_is_read_and_no_other() {
        let read = |text: &str| toml::from_str::<AdaptiveLimit>(text);
        assert_eq!(read("").unwrap(), AdaptiveLimit::default());
        let all = "algorithm = \"aimd\"\nmin = 2\nmax = 9\ninitial = 3";
        let expected = AdaptiveLimit::default()
            .algorithm(LimitAlgorithm::Aimd)
            .min(2)
            .max(9)
            .initial(3);
        assert_eq!(read(all).unwrap(), expected);
        assert_eq!(read("max = 8").unwrap(), AdaptiveLimit::default().max(8));
        for (bad, said) in [
            ("mni = 1", "mni"),
            ("algorithm = \"tcp\"", "`aimd`"),
            ("initial = 300", "`limit.initial` is 300"),
            ("max = 8\ninitial = 9", "`limit.max`, which is 8"),
            ("min = 8\ninitial = 7", "`limit.min`, which is 8"),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
