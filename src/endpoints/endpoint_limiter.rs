//! An endpoint's limit, where that is found by measurement.
//!
//! Not in the endpoint's state, of which decisions read one cache line per candidate: only responses get here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::{Endpoint, EndpointRef};
use crate::admit::{LimitSample, Limiter};

/// Finds an endpoint's limit. It outlives changes of the configuration; `None` once one of them has fixed the limit, while
/// requests from before still run.
#[derive(Clone)]
pub(super) struct EndpointLimiter(Arc<Mutex<Option<Limiter>>>);

impl EndpointLimiter {
    /// That of a new endpoint. `None` if its limit does not adapt.
    pub(super) fn of(endpoint: &Endpoint) -> Option<Self> {
        let limiter = Limiter::new(endpoint.limit.as_ref()?);
        let limiter = limiter.expect("a registry has no limits that make no sense");
        Some(Self(Arc::new(Mutex::new(Some(limiter)))))
    }

    /// Changes the limiter, and then the limit of `endpoint` to what the limiter says. Returns whether it is higher.
    fn change(&self, endpoint: &EndpointRef, change: impl FnOnce(&mut Limiter)) -> bool {
        let mut limiter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(limiter) = &mut *limiter else {
            return false;
        };
        change(limiter);
        let limit = u32::try_from(limiter.limit()).unwrap_or(u32::MAX);
        // Under the lock: of two changes the later one stays.
        let state = endpoint.state();
        state.cold.lease.adapt_own(&state.word, limit)
    }
}

impl EndpointRef {
    /// Whether its limit is found by measurement.
    pub(crate) fn is_adaptive(&self) -> bool {
        self.limiter().is_some()
    }

    /// Learns from a response. Returns whether the limit is higher now: waiters are to be looked at again.
    pub(crate) fn observe(&self, sample: LimitSample, now: Instant) -> bool {
        self.limiter().is_some_and(|limiter| {
            limiter.change(self, |limiter| {
                limiter.observe(sample, now);
            })
        })
    }

    /// Learns whether requests wait inside its engine, `None` if that is not known.
    #[cfg(feature = "client")]
    pub(super) fn engine_waits(&self, waits: Option<bool>) {
        if let Some(EndpointLimiter(limiter)) = self.limiter() {
            let mut limiter = limiter.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(limiter) = &mut *limiter {
                limiter.on_reading(waits);
            }
        }
    }

    /// The limiter of this endpoint as `changed`. It goes on from the limit that there is.
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
                config.initial = self.own_limit() as usize;
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
