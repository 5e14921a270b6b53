//! Work that is done after the lock is released, because it runs code of callers.

use std::task::Waker;

use super::TooLarge;
use crate::admit::{RejectReason, WakeList};
use crate::on_cancel::OnCancel;

/// Work that is done after the lock is released. It is nearly always empty, or one waker to wake.
pub(super) struct Deferred<T> {
    /// The first waker to wake.
    pub(super) wake: Option<Waker>,
    /// All other work. It is boxed, so that there is little to make and to drop for each item.
    pub(super) more: Option<Box<More<T>>>,
}

/// The work that is rarely there to be done.
pub(super) struct More<T> {
    pub(super) wakes: WakeList<Waker>,
    /// The items that were rejected while they waited, with the reason.
    pub(super) rejected: Vec<(T, RejectReason<TooLarge>)>,
    /// The registrations of items that left. Dropping a registration takes a waker out of its token.
    registrations: Vec<OnCancel>,
    /// A waker that has become unused, which is dropped without the lock.
    pub(super) unused: Option<Waker>,
}

impl<T> Default for Deferred<T> {
    #[inline]
    fn default() -> Self {
        Self {
            wake: None,
            more: None,
        }
    }
}

impl<T> Deferred<T> {
    /// Adds the waker of a task that has the item or the place that it waits for.
    #[inline]
    pub(super) fn wake(&mut self, waker: Waker) {
        match self.wake {
            None => self.wake = Some(waker),
            Some(_) => self.more().wakes.push(waker),
        }
    }

    /// Adds the registration of an item that left, to be dropped.
    #[inline]
    pub(super) fn unregister(&mut self, registration: Option<OnCancel>) {
        if let Some(registration) = registration {
            self.more().registrations.push(registration);
        }
    }

    /// Adds the waker of a consumer that has stopped waiting, to be dropped.
    #[inline]
    pub(super) fn discard(&mut self, waker: Option<Waker>) {
        if waker.is_some() {
            self.more().unused = waker;
        }
    }

    #[cold]
    pub(super) fn more(&mut self) -> &mut More<T> {
        self.more.get_or_insert_with(|| {
            Box::new(More {
                wakes: WakeList::new(),
                rejected: Vec::new(),
                registrations: Vec::new(),
                unused: None,
            })
        })
    }
}
