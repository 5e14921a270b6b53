//! How the queue's lock is taken.
//!
//! It is held for a twentieth of a microsecond. Whoever goes to sleep for that has to be woken, which takes far longer,
//! and whoever looks again at once draws the lock's memory, and soon all that is behind it, away from the one who
//! works there. So whoever finds it taken pauses for a while first, in which the other gets something done, then for
//! longer, and only after the longest pause sleeps.

use crate::sync::{Mutex, MutexGuard};

/// Takes the lock, whether or not somebody panicked while holding it.
#[cfg(not(loom))]
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    try_lock(mutex).unwrap_or_else(|| wait_for(mutex))
}

/// Under `loom` nobody looks twice.
#[cfg(loom)]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// In instructions that take some ten nanoseconds, or a few more: about ten microseconds in all.
#[cfg(not(loom))]
const PAUSES: [u32; 4] = [48, 96, 192, 384];

#[cfg(not(loom))]
#[cold]
fn wait_for<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for pause in PAUSES {
        (0..pause).for_each(|_| std::hint::spin_loop());
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
    }
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(not(loom))]
#[inline]
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    use std::sync::TryLockError;
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
