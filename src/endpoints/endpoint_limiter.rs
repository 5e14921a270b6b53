//! The limit of an endpoint that is found by measurement.
//!
//! It is kept outside the endpoint's state, because decisions read one cache line of that per candidate, while only
//! responses need the limiter.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::{Endpoint, EndpointRef};
use crate::admit::{LimitSample, Limiter};

/// A limiter that finds an endpoint's limit, and outlives changes of the configuration.
///
/// It becomes `None` if a change has fixed the limit while requests from before still run.
#[derive(Clone)]
pub(super) struct EndpointLimiter(Arc<Mutex<Option<Limiter>>>);

impl EndpointLimiter {
    /// Makes the limiter of a new endpoint, or returns `None` if its limit does not adapt.
    pub(super) fn of(endpoint: &Endpoint) -> Option<Self> {
        let limiter = Limiter::new(endpoint.limit.as_ref()?);
        let limiter = limiter.expect("a registry has no limits that make no sense");
        Some(Self(Arc::new(Mutex::new(Some(limiter)))))
    }

    /// Changes the limiter, and then sets the limit of `endpoint` by it. Returns `true` if the limit is higher now.
    fn change(&self, endpoint: &EndpointRef, change: impl FnOnce(&mut Limiter)) -> bool {
        let mut limiter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(limiter) = &mut *limiter else {
            return false;
        };
        change(limiter);
        let limit = u32::try_from(limiter.limit()).unwrap_or(u32::MAX);
        // The limit is set under the lock, so that the later of two changes stays.
        let state = endpoint.state();
        state.cold.lease.adapt_own(&state.word, limit)
    }
}

impl EndpointRef {
    /// Returns `true` if the endpoint's limit is found by measurement.
    pub(crate) fn is_adaptive(&self) -> bool {
        self.limiter().is_some()
    }

    /// Records a response. Returns `true` if the limit is higher now, so that waiters have to be looked at again.
    pub(crate) fn observe(&self, sample: LimitSample, now: Instant) -> bool {
        self.limiter().is_some_and(|limiter| {
            limiter.change(self, |limiter| {
                limiter.observe(sample, now);
            })
        })
    }

    /// Records whether requests wait inside the endpoint's engine, or `None` if that is unknown.
    #[cfg(feature = "client")]
    pub(super) fn engine_waits(&self, waits: Option<bool>) {
        if let Some(EndpointLimiter(limiter)) = self.limiter() {
            let mut limiter = limiter.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(limiter) = &mut *limiter {
                limiter.on_reading(waits);
            }
        }
    }

    /// Returns the limiter of this endpoint after its configuration has `changed`. It continues from the current limit.
    pub(super) fn changed_limiter(&self, changed: &Endpoint) -> Option<EndpointLimiter> {
        let Some(mut config) = changed.limit else {
            if let Some(EndpointLimiter(limiter)) = self.limiter() {
                *limiter.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            return None;
        };
        let limiter = match self.limiter() {
            Some(limiter) => limiter.clone(),
            None => {
                match self.own_limit() {
                    0 => {} // no slots yet, so it begins as configured
                    limit => config.initial = limit as usize,
                }
                EndpointLimiter::of(&changed.clone().limit(config))?
            }
        };
        limiter.change(self, |limiter| {
            let changed = limiter.reconfigure(&config);
            debug_assert_eq!(changed, Ok(()), "a registry has checked it");
        });
        Some(limiter)
    }
}
