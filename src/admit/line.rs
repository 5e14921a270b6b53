//! Waiters of one level in the order of arrival.
//!
//! A waiter that rose from a lower level arrived before most of those whom it joins. Searching its place
//! among them would be O(n). So those who rose are kept apart, in a tree, and the first of all is the first
//! of those who came to this level or the first of those who rose to it.

use std::collections::BTreeMap;

use super::chairs::{Chairs, Link, NONE};

/// A doubly linked list of chairs, through their `LINK`.
#[derive(Debug, Clone, Copy)]
struct List<const LINK: usize> {
    head: u32,
    tail: u32,
}

impl<const LINK: usize> List<LINK> {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    fn push<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        *chairs.link_mut(at, LINK) = Link {
            prev: self.tail,
            next: NONE,
        };
        match self.tail {
            NONE => self.head = at,
            tail => chairs.link_mut(tail, LINK).next = at,
        }
        self.tail = at;
    }

    fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let Link { prev, next } = chairs.link(at, LINK);
        match prev {
            NONE => self.head = next,
            prev => chairs.link_mut(prev, LINK).next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => chairs.link_mut(next, LINK).prev = prev,
        }
    }
}

/// Waiters of one level in the order of arrival, wherever they rose from.
#[derive(Debug)]
pub(crate) struct Line<const LINK: usize> {
    native: List<LINK>,
    /// Those who rose, by sequence number. They rise in the order of their tickets' arrivals, which need
    /// not be the order in which they came to this room.
    risen: BTreeMap<u64, u32>,
}

impl<const LINK: usize> Line<LINK> {
    pub(crate) fn new() -> Self {
        Self {
            native: List::EMPTY,
            risen: BTreeMap::new(),
        }
    }

    pub(crate) fn push<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        if place.risen() == 0 {
            self.native.push(chairs, at);
        } else {
            self.risen.insert(place.seq, at);
        }
    }

    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        if place.risen() == 0 {
            self.native.remove(chairs, at);
        } else {
            self.risen.remove(&place.seq);
        }
    }

    /// Who came first.
    pub(crate) fn head<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let native = self.native.head;
        match self.risen.first_key_value() {
            Some((&seq, &at)) if native == NONE || seq < chairs.place(native).seq => Some(at),
            _ => (native != NONE).then_some(native),
        }
    }

    /// Who came last.
    pub(crate) fn tail<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let native = self.native.tail;
        match self.risen.last_key_value() {
            Some((&seq, &at)) if native == NONE || seq > chairs.place(native).seq => Some(at),
            _ => (native != NONE).then_some(native),
        }
    }

    /// Everyone, in the order of arrival.
    pub(crate) fn in_order<T>(&self, chairs: &Chairs<T>) -> Vec<u32> {
        let follow = |at: u32| (at != NONE).then_some(at);
        let native = std::iter::successors(follow(self.native.head), |&at| {
            follow(chairs.link(at, LINK).next)
        });
        let mut all: Vec<u32> = native.chain(self.risen.values().copied()).collect();
        all.sort_unstable_by_key(|&at| chairs.place(at).seq);
        all
    }
}
