//! A layer's limit that adapts, and the calls from which it is found.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::layer_state::LayerState;
use crate::admit::{
    AdaptiveLimit, Capacity, InvalidAdaptiveLimit, LimitOutcome, LimitSample, Limiter, SlotPool,
};
use crate::clock;

impl LayerState<SlotPool> {
    /// The limit is this from now on.
    pub(crate) fn fix_limit(&self, limit: usize) {
        self.change_limit(|limiter| {
            *limiter = None;
            limit
        });
    }

    /// The limit adapts from now on, from what it is.
    pub(crate) fn adapt_limit(&self, config: &AdaptiveLimit) -> Result<(), InvalidAdaptiveLimit> {
        config.validate()?;
        self.change_limit(|limiter| {
            let now = self.gate.capacity().usage().slots;
            match limiter {
                Some(limiter) => limiter.reconfigure(config).ok(),
                None => Limiter::new(&config.initial(now))
                    .ok()
                    .map(|new| *limiter = Some(new)),
            };
            limiter.as_ref().map_or(now, Limiter::limit)
        });
        Ok(())
    }

    fn observe(&self, sample: LimitSample, now: Instant) {
        self.change_limit(|limiter| match limiter {
            Some(limiter) => limiter.observe(sample, now),
            None => self.gate.capacity().usage().slots, // fixed meanwhile
        });
    }

    fn change_limit(&self, change: impl FnOnce(&mut Option<Limiter>) -> usize) {
        let (gate, slots) = (&self.gate, self.gate.capacity());
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = change(&mut limiter);
        // Under the lock: of two changes the later one stays.
        let has_grown = limit != slots.usage().slots && slots.set_limit(limit);
        drop(limiter);
        if has_grown {
            gate.shared().on_capacity_grown(); // wakes: a caller's code
        }
    }
}

/// A call, from when its request has a slot to its answer: the wait for the inner service to be ready counts, as that is
/// where a service may say that it is busy. One that is dropped before has no answer, and is not measured.
pub(crate) struct MeasuredCall {
    state: Arc<LayerState<SlotPool>>,
    in_flight: usize,
    began: Instant,
}

impl MeasuredCall {
    /// The call of a request that has its slot from now on.
    pub(crate) fn new(state: &Arc<LayerState<SlotPool>>) -> Self {
        Self {
            state: Arc::clone(state),
            in_flight: state.gate.capacity().usage().in_use,
            began: clock::now(),
        }
    }

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
