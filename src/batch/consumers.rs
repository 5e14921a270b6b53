//! The consumers that wait for an item, in the order in which they began to wait.
//!
//! One consumer is woken for each item. Until it polls, the item counts as its own, and further consumers are only
//! woken for further items. If the consumer is dropped without polling, the next one is woken instead. A consumer that
//! polls takes the item that is next by then, so that an urgent item that arrived after the wake-up goes first.
//!
//! A consumer gets its id when it first waits. Then it is either in `waiting` or counted in `woken`, until it is
//! removed.

use std::collections::VecDeque;
use std::task::Waker;

use super::deferred::Deferred;

#[derive(Debug, Default)]
pub(super) struct Consumers {
    /// The consumers that wait, by id, which is the order in which they began to wait.
    waiting: VecDeque<(u64, Waker)>,
    /// The number of consumers that were woken and have not polled since.
    woken: usize,
    /// The last id that was given.
    last_id: u64,
}

impl Consumers {
    /// Returns `true` if this consumer waits, and `waker` would wake the same task as its stored waker.
    pub(super) fn will_wake(&self, id: Option<u64>, waker: &Waker) -> bool {
        let found = id.and_then(|id| self.find(id).ok());
        found.is_some_and(|idx| self.waiting[idx].1.will_wake(waker))
    }

    /// Adds a new consumer that found the queue empty, and sets its id.
    #[inline]
    pub(super) fn push(&mut self, id: &mut Option<u64>, waker: Waker) {
        self.last_id += 1;
        *id = Some(self.last_id); // the largest id so far, so `waiting` stays sorted
        self.waiting.push_back((self.last_id, waker));
    }

    /// Adds a consumer that found the queue empty, at its old position if it has waited before. Returns a waker that
    /// has become unused.
    pub(super) fn wait(&mut self, id: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        let Some(id) = *id else {
            self.push(id, waker);
            return None;
        };
        match self.find(id) {
            Ok(idx) => Some(std::mem::replace(&mut self.waiting[idx].1, waker)),
            Err(idx) => {
                // The consumer was woken for an item that is gone by now.
                self.woken -= 1;
                self.waiting.insert(idx, (id, waker));
                None
            }
        }
    }

    /// Removes a consumer that took an item or was dropped. Returns its waker, if it was not woken.
    #[inline]
    pub(super) fn remove(&mut self, id: u64) -> Option<Waker> {
        if !self.waiting.is_empty()
            && let Ok(idx) = self.find(id)
        {
            return self.waiting.remove(idx).map(|(_, waker)| waker);
        }
        self.woken -= 1; // a consumer that has an id and does not wait was woken
        None
    }

    /// Returns `true` if there is no consumer to wake.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Wakes consumers until as many are woken as there are items. Consumers that have not polled since an earlier
    /// wake-up count, too.
    pub(super) fn wake<T>(&mut self, items: usize, deferred: &mut Deferred<T>) {
        // The loop ends because each round takes a consumer out.
        while self.woken < items
            && let Some((_, waker)) = self.waiting.pop_front()
        {
            self.woken += 1;
            deferred.wake(waker);
        }
    }

    /// Returns the index of a consumer in `waiting`, or as an error the index at which it would be inserted.
    fn find(&self, id: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&id, |&(id, _)| id)
    }
}
