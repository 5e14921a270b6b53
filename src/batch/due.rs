//! When a batch goes.

use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::RequestQueue;
use super::state::State;
use super::worker::Terms;

/// The sooner, the less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Now,
    /// If nobody leaves before.
    At(Instant),
    /// When enough have come: the clock does not reach to the end of their delay.
    Filled,
    /// There is nobody to make a batch of.
    Nobody,
}

/// What the one who makes batches is to be woken for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// A batch is due sooner than it was; or never will be, for nobody waits, and nobody will come.
    Sooner(Terms, Due),
    /// Nobody waits, and nobody will come.
    Deserted,
}

/// Who makes batches, while there is nothing to do.
#[derive(Debug)]
pub(super) struct Batcher {
    until: Until,
    pub(super) waker: Waker,
}

impl<T> RequestQueue<T> {
    pub(super) fn due(&self, terms: &Terms) -> Due {
        // Whose wait has ended makes no batch due.
        self.shared
            .with_lock(|_, state, deferred| state.advance_if_timed(deferred));
        self.shared.lock().due(terms)
    }

    /// Resolves once it is time. There is room for one who waits for that.
    pub(super) fn poll_until(&self, cx: &Context<'_>, until: Until) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.shared.lock();
        let (poll, unused) = if state.is_time(until) {
            (Poll::Ready(()), Some(waker))
        } else {
            let old = state.batcher.replace(Batcher { until, waker });
            (Poll::Pending, old.map(|batcher| batcher.waker))
        };
        drop(state);
        drop(unused);
        poll
    }
}

impl<T> State<T> {
    fn due(&self, terms: &Terms) -> Due {
        let queue = &self.queue;
        let Some(oldest) = queue.oldest() else {
            return Due::Nobody;
        };
        let most = terms.max_count.min(queue.config().max_size);
        // Nobody else can join, or nobody will.
        if queue.len() >= most || self.cost >= terms.budget.into() || queue.is_closed() {
            return Due::Now;
        }
        let end = oldest.checked_add(terms.max_delay);
        end.map_or(Due::Filled, Due::At)
    }

    fn is_time(&self, until: Until) -> bool {
        let is_deserted = self.queue.is_closed() && self.queue.is_empty();
        is_deserted
            || match until {
                Until::Sooner(terms, than) => self.due(&terms) < than,
                Until::Deserted => false,
            }
    }

    /// The batcher's waker, if it is time.
    pub(super) fn call_batcher(&mut self) -> Option<Waker> {
        let until = self.batcher.as_ref()?.until;
        if !self.is_time(until) {
            return None;
        }
        self.batcher.take().map(|batcher| batcher.waker)
    }
}
