//! One lock, and what a change under it has to tell others once the lock is released.
//!
//! Rules for everything that is changed under such a lock:
//!
//! 1. After each change, and before the lock is released, [`publish`](WithLock::publish) writes the atomic word that
//!    others read without the lock, and collects what is left to do in [`Deferred`](WithLock::Deferred).
//! 2. Code of a caller never runs under the lock. Wakers are cloned before the lock is taken. They are woken or
//!    dropped, and demands and items are dropped, after it is released: a destructor may take the same lock.
//! 3. A panic under the lock does not poison it, and loses no wake-up that was collected before.
//! 4. What depends on the lock's order (timers, leases to give back) is returned from the closure and done after.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::sync::MutexGuard;

/// State behind a lock, with an atomic word beside it.
pub(crate) trait WithLock {
    /// What is behind the lock.
    type State;
    /// What is left to do without the lock: wakers to wake, values to drop.
    type Deferred: Default;

    /// Takes the lock for a look that changes nothing that others read without it.
    fn lock(&self) -> MutexGuard<'_, Self::State>;

    /// Writes the atomic word and collects the wakers to wake. Called under the lock, after each change.
    fn publish(&self, state: &mut Self::State, deferred: &mut Self::Deferred);

    /// Wakes and drops what was collected. Called without the lock.
    fn finish(&self, deferred: Self::Deferred);

    /// Runs `act` under the lock, publishes, releases the lock, and then does what is left to do.
    fn with_lock<R>(
        &self,
        act: impl FnOnce(&Self, &mut Self::State, &mut Self::Deferred) -> R,
    ) -> R {
        let mut deferred = Self::Deferred::default();
        let mut state = self.lock();
        // A capacity may panic; waiters that were answered before are woken all the same.
        let result = catch_unwind(AssertUnwindSafe(|| act(self, &mut state, &mut deferred)));
        self.publish(&mut state, &mut deferred);
        drop(state);
        self.finish(deferred);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}
