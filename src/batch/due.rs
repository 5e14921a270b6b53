//! Whether a batch goes now.

use std::task::{Context, Poll};
use std::time::Instant;

use super::RequestQueue;
use super::worker::Terms;
use crate::gate::now;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    /// Then, if nobody leaves, and earlier if enough come.
    NotYet(Option<Instant>),
    /// There is nobody to make a batch of.
    Nobody,
}

impl<T> RequestQueue<T> {
    pub(super) fn due(&self, terms: &Terms) -> Due {
        let state = self.shared.lock();
        if state.room.is_empty() {
            return Due::Nobody;
        }
        if state.fills(terms) {
            return Due::Now;
        }
        // There are fewer than fill a batch.
        let oldest = state.room.oldest();
        drop(state);
        let end = oldest.and_then(|oldest| oldest.checked_add(terms.max_delay));
        match end {
            Some(end) if end <= now() => Due::Now,
            end => Due::NotYet(end),
        }
    }

    /// Resolves once there are enough for a full batch, or nobody will ever come.
    pub(super) fn poll_filled(&self, cx: &Context<'_>, terms: &Terms) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.shared.lock();
        let is_filled = state.fills(terms);
        let unused = if is_filled {
            Some(waker)
        } else {
            let old = state.batcher.replace((*terms, waker));
            old.map(|(_, waker)| waker)
        };
        drop(state);
        drop(unused);
        if is_filled {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}
