//! A lock whose changes are published to other threads when the lock is released.
//!
//! All state behind such a lock follows these rules:
//!
//! 1. After each change, and before the lock is released, [`publish`](WithLock::publish) writes the atomic word that
//!    others read without the lock. It also collects the remaining work in [`Deferred`](WithLock::Deferred).
//! 2. A caller's code always runs without the lock, because a destructor may take the same lock. So wakers are cloned
//!    before the lock is taken, and wakers, demands and items are woken or dropped after it is released.
//! 3. A panic under the lock leaves the state usable, and wake-ups that were collected before the panic still happen.
//! 4. Work that depends on the order of locks, such as timers and leases to give back, is done after the release.

use crate::sync::MutexGuard;

/// State behind a lock, with an atomic word beside it.
pub(crate) trait WithLock: Sized {
    /// The state behind the lock.
    type State;
    /// The work to do after the lock is released: wakers to wake and values to drop.
    type Deferred: Default;

    /// Takes the lock for a look that leaves all published state as it is.
    fn lock(&self) -> MutexGuard<'_, Self::State>;

    /// Writes the atomic word and collects the wakers to wake. Called under the lock, after each change.
    fn publish(&self, state: &mut Self::State, deferred: &mut Self::Deferred);

    /// Wakes the collected wakers and drops the collected values. Called without the lock.
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

    /// Runs `act` under the lock, publishes the change, releases the lock, and then finishes the deferred work.
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

/// A guard through which the state is changed.
///
/// Dropping it publishes the change, releases the lock and then finishes the deferred work, even if the change
/// panicked.
pub(crate) struct Change<'a, H: WithLock> {
    // The order matters: fields are dropped from the first to the last, so the lock is released before `after` runs.
    guard: MutexGuard<'a, H::State>,
    after: AfterUnlock<'a, H>,
}

/// The deferred work. It is a field of its own, so that it is dropped after the lock was released.
struct AfterUnlock<'a, H: WithLock> {
    host: &'a H,
    deferred: H::Deferred,
}

impl<H: WithLock> Change<'_, H> {
    /// Returns the state, and the list of work to do once the lock is released.
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
