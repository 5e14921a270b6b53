//! What is to be done after the lock is released: code of callers.

use std::task::Waker;

use super::TooLarge;
use super::cancel::Registration;
use crate::admit::{RejectReason, WakeList};

/// What is to be done after the lock is released. Nearly always nothing, or one waker to wake.
pub(super) struct Deferred<T> {
    /// The first to wake.
    pub(super) wake: Option<Waker>,
    /// The rest. Boxed, so that there is little to make and to drop for each item.
    pub(super) more: Option<Box<More<T>>>,
}

/// What is rarely there to be done.
pub(super) struct More<T> {
    pub(super) wakes: WakeList<Waker>,
    /// Items that were rejected while they waited, with the reason.
    pub(super) rejected: Vec<(T, RejectReason<TooLarge>)>,
    /// Those of items that left. Dropping one drops a waker of its token's.
    registrations: Vec<Registration>,
    /// A waker that is not needed any more.
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
    /// A task has what it waits for.
    #[inline]
    pub(super) fn wake(&mut self, waker: Waker) {
        match self.wake {
            None => self.wake = Some(waker),
            Some(_) => self.more().wakes.push(waker),
        }
    }

    /// An item that had this registration left.
    #[inline]
    pub(super) fn unregister(&mut self, registration: Option<Registration>) {
        if let Some(registration) = registration {
            self.more().registrations.push(registration);
        }
    }

    /// A consumer that had this waker waits no more.
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
