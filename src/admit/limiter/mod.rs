//! A concurrency limit that follows measurements. Each call that ends is reported to it, and the new limit comes out.
//!
//! A [`Limiter`] has no clock and starts no tasks. Each algorithm has its own file. These are `aimd` and `vegas`, which
//! judges whole `window`s of calls.

mod aimd;
mod config;
mod vegas;
mod window;

use std::time::{Duration, Instant};

use crate::setters::setters;
use aimd::Aimd;
pub use config::{AdaptiveLimit, InvalidAdaptiveLimit, LimitAlgorithm};
use vegas::Vegas;

/// A concurrency limit that adapts. The caller has it [observe](Self::observe) each call that ends.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm, LimitOutcome, LimitSample, Limiter};
///
/// let config = AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd);
/// let mut limiter = Limiter::new(&config)?;
/// assert_eq!(limiter.limit(), 20);
/// let refused = LimitSample::new(Duration::from_millis(3), 20, LimitOutcome::Overloaded).waiting(true);
/// assert_eq!(limiter.observe(refused, Instant::now()), 18);
/// # Ok::<(), tower_triage::admit::InvalidAdaptiveLimit>(())
/// ```
#[derive(Debug)]
pub struct Limiter {
    bounds: Bounds,
    algorithm: Algorithm,
}

#[derive(Debug)]
enum Algorithm {
    Aimd(Aimd),
    Vegas(Vegas),
}

/// A call that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitSample {
    /// The time from the grant of the slot to the head of the response. The body is left out, because its duration
    /// depends on its length.
    pub latency: Duration,
    /// The number of calls in flight when this one got its slot, including itself.
    pub in_flight: usize,
    /// `true` if requests wait for a slot.
    pub waiting: bool,
    /// The outcome of the call.
    pub outcome: LimitOutcome,
}

/// The outcome of a call, reduced to the cases that matter for a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitOutcome {
    /// The service answered the call.
    Ok,
    /// The call failed, or was refused because the service is overloaded. Signs of that are status 429 or 503, or a
    /// queue that the service reports.
    Overloaded,
    /// The call was cancelled, which says nothing about the service.
    Ignored,
}

impl Limiter {
    /// Creates a limiter without measurements.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is invalid.
    pub fn new(config: &AdaptiveLimit) -> Result<Self, InvalidAdaptiveLimit> {
        config.validate()?;
        let (min, max) = (config.min, config.max);
        let bounds = Bounds { min, max };
        let initial = config.initial_limit();
        let algorithm = match config.algorithm {
            LimitAlgorithm::Aimd => Algorithm::Aimd(Aimd::new(initial)),
            LimitAlgorithm::Vegas => Algorithm::Vegas(Vegas::new(initial)),
        };
        Ok(Self { bounds, algorithm })
    }

    /// Changes the configuration. The measurements are kept unless the algorithm changes, and the limit is kept within
    /// the new bounds.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is invalid. The limiter then stays as it was.
    pub fn reconfigure(&mut self, config: &AdaptiveLimit) -> Result<(), InvalidAdaptiveLimit> {
        // The new limiter begins at the present limit, brought within the new bounds.
        let mut new = Self::new(&config.initial(self.limit()))?;
        match (&mut self.algorithm, &new.algorithm) {
            (Algorithm::Aimd(old), Algorithm::Aimd(new)) => old.limit = new.limit,
            (Algorithm::Vegas(old), Algorithm::Vegas(new)) => old.restart(new.limit_now()),
            (_, _) => std::mem::swap(&mut self.algorithm, &mut new.algorithm),
        }
        self.bounds = new.bounds;
        Ok(())
    }

    /// Returns the present limit.
    #[must_use]
    pub fn limit(&self) -> usize {
        let limit = match &self.algorithm {
            Algorithm::Aimd(aimd) => aimd.limit,
            Algorithm::Vegas(vegas) => vegas.limit_now(),
        };
        // The higher window of `vegas` may exceed the bound.
        limit.min(self.bounds.max)
    }

    /// Learns from a call that has just ended, and returns the limit from now on.
    ///
    /// From one call to the next the limit at most doubles and at most halves, give or take one.
    pub fn observe(&mut self, sample: LimitSample, now: Instant) -> usize {
        let bounds = self.bounds;
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
    /// Records the service's own report on its queue. `waits` is `true` if requests wait inside the service, and `None`
    /// without a report. While requests wait inside, `aimd` does not grow.
    pub(crate) fn on_reading(&mut self, waits: Option<bool>) {
        if let Algorithm::Aimd(aimd) = &mut self.algorithm {
            aimd.on_reading(waits);
        }
    }
}

/// The bounds of a limit.
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
    /// Returns the sample of a call while no request waits for a slot.
    #[must_use]
    pub fn new(latency: Duration, in_flight: usize, outcome: LimitOutcome) -> Self {
        Self {
            latency,
            in_flight,
            waiting: false,
            outcome,
        }
    }

    setters! {
        waiting: bool,
    }

    /// Returns `true` if the limit was used so far that the call says something about a higher limit.
    fn is_busy(&self, limit: usize) -> bool {
        self.waiting || self.in_flight.saturating_mul(2) >= limit
    }
}

/// Returns the limit lowered by a tenth, and by at least one.
fn a_tenth_less(limit: usize) -> usize {
    limit.saturating_sub((limit / 10).max(1))
}
