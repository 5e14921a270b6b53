//! A layer's limit that adapts, and the calls that are measured to find it.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::layer_state::LayerState;
use crate::admit::{
    AdaptiveLimit, Capacity, InvalidAdaptiveLimit, LimitOutcome, LimitSample, Limiter, SlotPool,
};
use crate::clock;

impl LayerState<SlotPool> {
    /// Fixes the limit at this number from now on.
    pub(crate) fn fix_limit(&self, limit: usize) {
        self.change_limit(|limiter| {
            *limiter = None;
            limit
        });
    }

    /// Adapts the limit from now on, starting from the current number of slots.
    pub(crate) fn adapt_limit(&self, config: &AdaptiveLimit) -> Result<(), InvalidAdaptiveLimit> {
        config.validate()?;
        self.change_limit(|limiter| {
            let now = self.gate.capacity().usage().slots;
            match (&mut *limiter, now) {
                (Some(limiter), _) => limiter.reconfigure(config).ok(),
                // No slots yet, so it begins as configured.
                (None, 0) => Limiter::new(config).ok().map(|new| *limiter = Some(new)),
                (None, now) => Limiter::new(&config.initial(now))
                    .ok()
                    .map(|new| *limiter = Some(new)),
            };
            limiter.as_ref().map_or(now, Limiter::limit)
        });
        Ok(())
    }

    /// Adapts the limit by one measured call.
    fn observe(&self, sample: LimitSample, now: Instant) {
        self.change_limit(|limiter| match limiter {
            Some(limiter) => limiter.observe(sample, now),
            None => self.gate.capacity().usage().slots, // the limit was fixed meanwhile
        });
    }

    /// Sets the number of slots that `change` returns. If the number has grown, waiters get the new slots.
    fn change_limit(&self, change: impl FnOnce(&mut Option<Limiter>) -> usize) {
        let (gate, slots) = (&self.gate, self.gate.capacity());
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = change(&mut limiter);
        // Set under the lock, so that the later one of two changes stays.
        let has_grown = limit != slots.usage().slots && slots.set_limit(limit);
        drop(limiter);
        if has_grown {
            gate.shared().on_capacity_grown(); // called without the lock, because it wakes a caller's code
        }
    }
}

/// A call that is measured, from when its request has a slot until its answer.
///
/// The wait for the inner service to be ready counts, because a service that is busy may report it there. A call that
/// is dropped before its answer is not measured.
pub(crate) struct MeasuredCall {
    state: Arc<LayerState<SlotPool>>,
    in_flight: usize,
    began: Instant,
}

impl MeasuredCall {
    /// Begins to measure the call of a request that has just got its slot.
    pub(crate) fn new(state: &Arc<LayerState<SlotPool>>) -> Self {
        Self {
            state: Arc::clone(state),
            in_flight: state.gate.capacity().usage().in_use,
            began: clock::now(),
        }
    }

    /// Records the latency of the call, and its outcome.
    pub(super) fn answered(self, is_overloaded: bool) {
        let now = clock::now();
        let sample = LimitSample {
            latency: now.saturating_duration_since(self.began),
            in_flight: self.in_flight,
            waiting: self.state.gate.has_waiters(),
            outcome: match is_overloaded {
                true => LimitOutcome::Overloaded,
                false => LimitOutcome::Ok,
            },
        };
        self.state.observe(sample, now);
    }
}
