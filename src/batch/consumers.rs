//! Who waits for something to dequeue.
//!
//! One consumer is woken for each request, in the order in which they came. Until it looks, a request is as good
//! as its own: nobody else is woken for it. If it never looks, because it was dropped, the next one is woken
//! instead. Whoever looks takes what is best by then, so that it is never too late for what is urgent.

use std::collections::VecDeque;
use std::task::Waker;

use crate::admit::WakeList;

#[derive(Debug, Default)]
pub(super) struct Consumers {
    /// By number, and so in the order in which they came.
    waiting: VecDeque<(u64, Waker)>,
    /// How many were woken and have not looked yet.
    woken: usize,
    /// The last number that was given.
    last: u64,
}

impl Consumers {
    /// Whether this consumer would be woken by `waker`.
    pub(super) fn knows(&self, number: Option<u64>, waker: &Waker) -> bool {
        let found = number.and_then(|number| self.find(number).ok());
        found.is_some_and(|at| self.waiting[at].1.will_wake(waker))
    }

    /// A new one has looked in vain, and is to be woken by `waker`.
    #[inline]
    pub(super) fn come(&mut self, number: &mut Option<u64>, waker: Waker) {
        self.last += 1;
        *number = Some(self.last);
        self.waiting.push_back((self.last, waker));
    }

    /// It has looked in vain, and is to be woken by `waker`. Gives back a waker that is no longer of use.
    pub(super) fn wait(&mut self, number: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        let Some(number) = *number else {
            self.come(number, waker);
            return None;
        };
        match self.find(number) {
            Ok(at) => Some(std::mem::replace(&mut self.waiting[at].1, waker)),
            Err(at) => {
                self.woken -= 1;
                self.waiting.insert(at, (number, waker));
                None
            }
        }
    }

    /// It has looked and taken something, or has gone.
    #[inline]
    pub(super) fn leave(&mut self, number: u64) -> Option<Waker> {
        if !self.waiting.is_empty()
            && let Ok(at) = self.find(number)
        {
            return self.waiting.remove(at).map(|(_, waker)| waker);
        }
        self.woken -= 1;
        None
    }

    /// Whether there is nobody to wake.
    pub(super) fn none_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Wakes as many as there are `requests`, those included who were woken and have not looked yet.
    pub(super) fn wake(&mut self, requests: usize, woken: &mut WakeList<Waker>) {
        while self.woken < requests
            && let Some((_, waker)) = self.waiting.pop_front()
        {
            self.woken += 1;
            woken.push(waker);
        }
    }

    fn find(&self, number: u64) -> Result<usize, usize> {
        self.waiting
            .binary_search_by_key(&number, |&(number, _)| number)
    }
}
