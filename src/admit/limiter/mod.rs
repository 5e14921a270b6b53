//! A concurrency limit that follows what is measured: calls that end go in, the limit comes out.
//!
//! A [`Limiter`] has no clock and starts nothing. One algorithm a file: `aimd`, and `vegas`, which judges whole `window`s
//! of calls.

mod aimd;
mod config;
mod vegas;
mod window;

use std::time::{Duration, Instant};

use aimd::Aimd;
pub use config::{AdaptiveLimit, InvalidAdaptiveLimit, LimitAlgorithm};
use vegas::Vegas;

/// A limit that adapts. Each call that ends is [observed](Self::observe).
///
/// ```
/// use std::time::{Duration, Instant};
/// use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm, LimitOutcome, LimitSample, Limiter};
///
/// let config = AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd);
/// let mut limiter = Limiter::new(&config)?;
/// assert_eq!(limiter.limit(), 20);
/// let refused = LimitSample {
///     latency: Duration::from_millis(3),
///     in_flight: 20,
///     waiting: true,
///     outcome: LimitOutcome::Overloaded,
/// };
/// assert_eq!(limiter.observe(refused, Instant::now()), 18);
/// # Ok::<(), tower_triage::admit::InvalidAdaptiveLimit>(())
/// ```
#[derive(Debug)]
pub struct Limiter {
    min: usize,
    max: usize,
    algorithm: Algorithm,
}

#[derive(Debug)]
enum Algorithm {
    Aimd(Aimd),
    Vegas(Vegas),
}

/// One call that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitSample {
    /// From when the call got its slot to the head of its response. Not to the end of a body, which lasts as long as it is
    /// long.
    pub latency: Duration,
    /// How many calls were in flight when this one got its slot, itself included.
    pub in_flight: usize,
    /// Whether requests wait for a slot.
    pub waiting: bool,
    /// How the call ended.
    pub outcome: LimitOutcome,
}

/// How a call ended, as far as a limit is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitOutcome {
    /// It was answered.
    Ok,
    /// It failed, or was refused because the service has too much to do: 429, 503, or a queue that the service reports.
    Overloaded,
    /// It was cancelled, which says nothing about the service.
    Ignored,
}

impl Limiter {
    /// A limiter that has measured nothing.
    ///
    /// # Errors
    ///
    /// If the configuration can't be used.
    pub fn new(config: &AdaptiveLimit) -> Result<Self, InvalidAdaptiveLimit> {
        config.validate()?;
        let (min, max) = (config.min, config.max);
        let initial = config.initial_limit();
        let algorithm = match config.algorithm {
            LimitAlgorithm::Aimd => Algorithm::Aimd(Aimd::new(initial)),
            LimitAlgorithm::Vegas => Algorithm::Vegas(Vegas::new(initial)),
        };
        Ok(Self {
            min,
            max,
            algorithm,
        })
    }

    /// Changes the configuration, and keeps what was measured, unless the algorithm is another one. The limit is kept,
    /// within the new bounds.
    ///
    /// # Errors
    ///
    /// If the configuration can't be used. Nothing has changed then.
    pub fn reconfigure(&mut self, config: &AdaptiveLimit) -> Result<(), InvalidAdaptiveLimit> {
        // Begins at the present limit, brought within the new bounds.
        let mut new = Self::new(&config.initial(self.limit()))?;
        match (&mut self.algorithm, &new.algorithm) {
            (Algorithm::Aimd(old), Algorithm::Aimd(new)) => old.limit = new.limit,
            (Algorithm::Vegas(old), Algorithm::Vegas(new)) => old.restart(new.limit_now()),
            (_, _) => std::mem::swap(&mut self.algorithm, &mut new.algorithm),
        }
        (self.min, self.max) = (new.min, new.max);
        Ok(())
    }

    /// The limit now.
    #[must_use]
    pub fn limit(&self) -> usize {
        let limit = match &self.algorithm {
            Algorithm::Aimd(aimd) => aimd.limit,
            Algorithm::Vegas(vegas) => vegas.limit_now(),
        };
        // The higher window of `vegas` may be above the bound.
        limit.min(self.max)
    }

    /// Learns from a call that has just ended, and returns the limit from now on.
    ///
    /// From one call to the next the limit at most doubles, and at most halves, give or take one.
    pub fn observe(&mut self, sample: LimitSample, now: Instant) -> usize {
        let bounds = Bounds {
            min: self.min,
            max: self.max,
        };
        if sample.outcome != LimitOutcome::Ignored {
            match &mut self.algorithm {
                Algorithm::Aimd(aimd) => aimd.observe(sample, now, bounds),
                Algorithm::Vegas(vegas) => vegas.observe(sample, bounds),
            }
        }
        self.limit()
    }
}

#[cfg(feature = "client")]
impl Limiter {
    /// Learns whether requests wait inside the service, `None` if it does not say. While they do, `aimd` does not grow.
    pub(crate) fn on_reading(&mut self, waits: Option<bool>) {
        if let Algorithm::Aimd(aimd) = &mut self.algorithm {
            aimd.on_reading(waits);
        }
    }
}

/// What a limit stays within.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    min: usize,
    max: usize,
}

impl Bounds {
    fn clamp(self, limit: usize) -> usize {
        limit.clamp(self.min, self.max)
    }
}

impl LimitSample {
    /// Whether the limit was used so far that the call says something about a higher one.
    fn is_busy(&self, limit: usize) -> bool {
        self.waiting || self.in_flight.saturating_mul(2) >= limit
    }
}

/// A tenth less, and at least one.
fn a_tenth_less(limit: usize) -> usize {
    limit.saturating_sub((limit / 10).max(1))
}
