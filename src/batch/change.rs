//! A change of the queue's state: the lock, and what is left to do once it is released.
//!
//! The rules are those of [`WithLock`]. This is a guard and not a closure, so that an item is moved once on its way in or
//! out. A panic needs no more than the guard's destructor, because no code of a caller runs under the lock.
//!
//! [`WithLock`]: crate::gate::with_lock::WithLock

use super::deferred::Deferred;
use super::shared::Shared;
use super::state::State;
use crate::admit::wake_list::wake;
use crate::sync::MutexGuard;

/// The state, to be changed. Dropping it publishes the change, releases the lock and then does what is left to do.
pub(super) struct Change<'a, T> {
    // In this order: fields are dropped from the first to the last.
    guard: MutexGuard<'a, State<T>>,
    unlocked: Unlocked<'a, T>,
}

/// What is dropped after the lock was released.
struct Unlocked<'a, T> {
    shared: &'a Shared<T>,
    deferred: Deferred<T>,
}

impl<'a, T> Change<'a, T> {
    #[inline]
    pub(super) fn new(shared: &'a Shared<T>) -> Self {
        Self {
            guard: shared.lock(),
            unlocked: Unlocked {
                shared,
                deferred: Deferred::default(),
            },
        }
    }

    /// The state, and what is to be done once the lock is released.
    #[inline]
    pub(super) fn parts(&mut self) -> (&mut State<T>, &mut Deferred<T>) {
        (&mut self.guard, &mut self.unlocked.deferred)
    }
}

impl<T> Drop for Change<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let (state, deferred) = (&mut *self.guard, &mut self.unlocked.deferred);
        self.unlocked.shared.publish(state);
        if !state.has_no_waiters() {
            state.notify(deferred);
        }
        state.trim();
    }
}

impl<T> Drop for Unlocked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(first) = self.deferred.wake.take() {
            wake(first);
        }
        if let Some(more) = self.deferred.more.take() {
            self.shared.finish(*more);
        }
    }
}
