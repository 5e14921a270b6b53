//! The limit of an endpoint that is found by measurement.

use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use super::EndpointRef;
use crate::admit::{LimitSample, Limiter};

impl EndpointRef {
    /// Returns `true` if the endpoint's limit is found by measurement.
    pub(crate) fn is_adaptive(&self) -> bool {
        self.config().limit.is_some()
    }

    /// Records a response. Returns `true` if the limit is higher now, so that waiters have to be looked at again.
    pub(crate) fn observe(&self, sample: LimitSample, now: Instant) -> bool {
        self.lock_limiter().as_mut().is_some_and(|limiter| {
            limiter.observe(sample, now);
            self.adapt(limiter)
        })
    }

    /// Records whether requests wait inside the endpoint's engine, or `None` if that is unknown.
    #[cfg(feature = "client")]
    pub(super) fn engine_waits(&self, waits: Option<bool>) {
        if let Some(limiter) = &mut *self.lock_limiter() {
            limiter.on_reading(waits);
        }
    }

    /// Applies the configuration to the limiter, which continues from the current limit.
    pub(super) fn reconfigure_limiter(&self) {
        let mut limiter = self.lock_limiter();
        let Some(config) = self.config().limit else {
            *limiter = None;
            return;
        };
        let changed = match (&mut *limiter, self.own_limit()) {
            (Some(limiter), _) => limiter.reconfigure(&config),
            // No slots yet, so it begins as configured.
            (None, 0) => Limiter::new(&config).map(|new| *limiter = Some(new)),
            (None, own) => {
                Limiter::new(&config.initial(own as usize)).map(|new| *limiter = Some(new))
            }
        };
        debug_assert_eq!(changed, Ok(()), "a registry has checked it");
        limiter.as_ref().map(|limiter| self.adapt(limiter));
    }

    /// Sets the limit by the measurements. Returns `true` if it is higher now. The lock is held meanwhile, so that the
    /// later of two changes stays.
    fn adapt(&self, limiter: &Limiter) -> bool {
        let limit = u32::try_from(limiter.limit()).unwrap_or(u32::MAX);
        let state = self.state();
        state.cold.lease.adapt_own(&state.word, limit)
    }

    fn lock_limiter(&self) -> MutexGuard<'_, Option<Limiter>> {
        let limiter = self.state().cold.limiter.lock();
        limiter.unwrap_or_else(PoisonError::into_inner)
    }
}
