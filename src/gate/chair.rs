//! Chairs reserved ahead of a request.
//!
//! Tower's contract is that `poll_ready` reserves what `call` needs. Reserving a slot that way lets a clone
//! that was readied and then idles hold up everyone; a chair costs nobody a slot.

use std::fmt;
use std::task::{Context, Poll};

use super::Gate;
use super::shared::Shared;
use crate::admit::Capacity;
use crate::sync::Arc;

/// A chair kept for a request that has not arrived. Dropping it frees the chair.
#[must_use = "a chair that is dropped is free again"]
pub struct Reservation<C: Capacity> {
    shared: Option<Arc<Shared<C>>>,
}

impl<C: Capacity> Reservation<C> {
    /// Leaves the chair to the arrival that unreserves it under the lock.
    pub(super) fn hand_over(mut self) {
        self.shared = None;
    }
}

impl<C: Capacity> Drop for Reservation<C> {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.locked(|_, state, _| state.room.unreserve());
        }
    }
}

impl<C: Capacity> fmt::Debug for Reservation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}

/// The wish for a chair. It keeps no place in a line: whoever asks first when one is free gets it, so that
/// one who asked and then idles holds up nobody.
pub struct Reserve<C: Capacity> {
    shared: Arc<Shared<C>>,
    /// Its number among the wishes, once it had to wait.
    wish: Option<u64>,
}

impl<C: Capacity> Reserve<C> {
    pub(super) fn new(gate: &Gate<C>) -> Self {
        Self {
            shared: Arc::clone(&gate.shared),
            wish: None,
        }
    }

    /// Waits until a chair is free and reserves it. `None` if nobody will ever sit: the gate is closed, or
    /// has no chairs.
    pub fn poll_reserve(&mut self, cx: &mut Context<'_>) -> Poll<Option<Reservation<C>>> {
        let waker = cx.waker().clone();
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        if state.room.is_closed() || state.room.config().max_size == 0 {
            return Poll::Ready(None);
        }
        if state.room.reserve() {
            let shared = Some(Arc::clone(&self.shared));
            return Poll::Ready(Some(Reservation { shared }));
        }
        let old = state.reservation_waiters.note(&mut self.wish, waker);
        drop(guard);
        drop(old);
        Poll::Pending
    }
}

impl<C: Capacity> Drop for Reserve<C> {
    fn drop(&mut self) {
        if let Some(wish) = self.wish {
            let waker = self.shared.lock().reservation_waiters.withdraw(wish);
            drop(waker);
        }
    }
}

impl<C: Capacity> fmt::Debug for Reserve<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").finish_non_exhaustive()
    }
}
