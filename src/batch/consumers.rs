//! The consumers that wait for an item, in the order in which they began to wait.
//!
//! One consumer is woken for each item. Until it polls, the item counts as its own, and no other consumer is woken for it.
//! If it is dropped without polling, the next consumer is woken instead. A consumer that polls takes the item that is
//! next by then, so that an urgent item that arrived after the wake-up goes first.
//!
//! A consumer has no id until it first waits. Then it is either in `waiting` or counted in `woken`, until it is removed.

use std::collections::VecDeque;
use std::task::Waker;

use super::deferred::Deferred;

#[derive(Debug, Default)]
pub(super) struct Consumers {
    /// By id, which is the order in which they began to wait.
    waiting: VecDeque<(u64, Waker)>,
    /// The number of consumers that were woken and have not polled since.
    woken: usize,
    /// The last id that was given.
    last_id: u64,
}

impl Consumers {
    /// Whether this consumer waits, and `waker` would wake the same task as the waker that is kept.
    pub(super) fn will_wake(&self, id: Option<u64>, waker: &Waker) -> bool {
        let found = id.and_then(|id| self.find(id).ok());
        found.is_some_and(|idx| self.waiting[idx].1.will_wake(waker))
    }

    /// A new consumer found no item and waits. Sets its id.
    #[inline]
    pub(super) fn push(&mut self, id: &mut Option<u64>, waker: Waker) {
        self.last_id += 1;
        *id = Some(self.last_id); // the largest id: the order is kept
        self.waiting.push_back((self.last_id, waker));
    }

    /// A consumer found no item and waits, in its old place if it has waited before. Returns a waker that is not needed
    /// any more.
    pub(super) fn wait(&mut self, id: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        let Some(id) = *id else {
            self.push(id, waker);
            return None;
        };
        match self.find(id) {
            Ok(idx) => Some(std::mem::replace(&mut self.waiting[idx].1, waker)),
            Err(idx) => {
                // Woken for an item that is gone.
                self.woken -= 1;
                self.waiting.insert(idx, (id, waker));
                None
            }
        }
    }

    /// A consumer took an item, or was dropped. Returns its waker, if it was not woken.
    #[inline]
    pub(super) fn remove(&mut self, id: u64) -> Option<Waker> {
        if !self.waiting.is_empty()
            && let Ok(idx) = self.find(id)
        {
            return self.waiting.remove(idx).map(|(_, waker)| waker);
        }
        self.woken -= 1; // neither waiting nor removed before
        None
    }

    /// Whether there is no consumer to wake.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Wakes consumers until as many are woken as there are items. Those that have not polled since an earlier wake-up
    /// count.
    pub(super) fn wake<T>(&mut self, items: usize, deferred: &mut Deferred<T>) {
        // Ends because each round takes a consumer out.
        while self.woken < items
            && let Some((_, waker)) = self.waiting.pop_front()
        {
            self.woken += 1;
            deferred.wake(waker);
        }
    }

    /// The index of a consumer in `waiting`, or the one at which it would be inserted.
    fn find(&self, id: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&id, |&(id, _)| id)
    }
}
