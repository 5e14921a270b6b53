//! One lock, and what a change under it has to tell others once the lock is released.
//!
//! Rules for everything that is changed under such a lock:
//!
//! 1. After each change, and before the lock is released, [`publish`](WithLock::publish) writes the atomic word that
//!    others read without the lock, and collects what is left to do in [`Deferred`](WithLock::Deferred).
//! 2. Code of a caller never runs under the lock. Wakers are cloned before the lock is taken. They are woken or
//!    dropped, and demands and items are dropped, after it is released: a destructor may take the same lock.
//! 3. A panic under the lock does not poison it, and loses no wake-up that was collected before.
//! 4. What depends on the lock's order (timers, leases to give back) is done after.

use crate::sync::MutexGuard;

/// State behind a lock, with an atomic word beside it.
pub(crate) trait WithLock: Sized {
    /// What is behind the lock.
    type State;
    /// What is left to do without the lock: wakers to wake, values to drop.
    type Deferred: Default;

    /// Takes the lock for a look that changes nothing that others read without it.
    fn lock(&self) -> MutexGuard<'_, Self::State>;

    /// Writes the atomic word and collects the wakers to wake. Called under the lock, after each change.
    fn publish(&self, state: &mut Self::State, deferred: &mut Self::Deferred);

    /// Wakes and drops what was collected. Called without the lock.
    fn finish(&self, deferred: &mut Self::Deferred);

    /// Takes the lock for a change.
    #[inline]
    fn change(&self) -> Change<'_, Self> {
        let guard = self.lock();
        let after = AfterUnlock {
            host: self,
            deferred: Self::Deferred::default(),
        };
        Change { guard, after }
    }

    /// Runs `act` under the lock, publishes, releases the lock, and then does what is left to do.
    #[inline]
    fn with_lock<R>(
        &self,
        act: impl FnOnce(&Self, &mut Self::State, &mut Self::Deferred) -> R,
    ) -> R {
        let mut change = self.change();
        let (state, deferred) = change.parts();
        act(self, state, deferred)
    }
}

/// The state, to be changed. Dropping it publishes the change, releases the lock and then does what is left to do; also if
/// the change panicked.
pub(crate) struct Change<'a, H: WithLock> {
    // In this order: fields are dropped from the first to the last.
    guard: MutexGuard<'a, H::State>,
    after: AfterUnlock<'a, H>,
}

/// What is dropped after the lock was released.
struct AfterUnlock<'a, H: WithLock> {
    host: &'a H,
    deferred: H::Deferred,
}

impl<H: WithLock> Change<'_, H> {
    /// The state, and what is to be done once the lock is released.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut H::State, &mut H::Deferred) {
        (&mut self.guard, &mut self.after.deferred)
    }
}

impl<H: WithLock> Drop for Change<'_, H> {
    #[inline]
    fn drop(&mut self) {
        let AfterUnlock { host, deferred } = &mut self.after;
        host.publish(&mut self.guard, deferred);
    }
}

impl<H: WithLock> Drop for AfterUnlock<'_, H> {
    #[inline]
    fn drop(&mut self) {
        self.host.finish(&mut self.deferred);
    }
}
