//! Waiters of one level in the order of arrival.
//!
//! Nearly everyone stands behind those who came before: they are a list. A waiter that rose from a lower
//! level, that had a slot before and comes back, or that was set aside, arrived before most of those whom it
//! joins. Searching its place among them would be O(n). So these are kept apart, in a tree, and the first of all is the first of
//! the list or the first of the tree.

use std::collections::BTreeMap;

use super::chairs::{Came, Chairs, Link, NONE};

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

/// Waiters of one level in the order of arrival, whenever they joined it.
#[derive(Debug)]
pub(crate) struct Line<const LINK: usize> {
    native: List<LINK>,
    /// Those who rose, those who came back, and those who were set aside.
    others: BTreeMap<Came, u32>,
}

impl<const LINK: usize> Line<LINK> {
    pub(crate) fn new() -> Self {
        Self {
            native: List::EMPTY,
            others: BTreeMap::new(),
        }
    }

    pub(crate) fn push<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        if place.is_last() {
            self.native.push(chairs, at);
        } else {
            self.others.insert(place.came(), at);
        }
    }

    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        if place.is_last() {
            self.native.remove(chairs, at);
        } else {
            self.others.remove(&place.came());
        }
    }

    /// Who came first.
    pub(crate) fn head<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let native = self.native.head;
        match self.others.first_key_value() {
            Some((&came, &at)) if native == NONE || came < chairs.place(native).came() => Some(at),
            _ => (native != NONE).then_some(native),
        }
    }

    /// Who came last.
    pub(crate) fn tail<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let native = self.native.tail;
        match self.others.last_key_value() {
            Some((&came, &at)) if native == NONE || came > chairs.place(native).came() => Some(at),
            _ => (native != NONE).then_some(native),
        }
    }

    /// Everyone, in the order of arrival.
    pub(crate) fn in_order<T>(&self, chairs: &Chairs<T>) -> Vec<u32> {
        let follow = |at: u32| (at != NONE).then_some(at);
        let native = std::iter::successors(follow(self.native.head), |&at| {
            follow(chairs.link(at, LINK).next)
        });
        let mut all: Vec<u32> = native.chain(self.others.values().copied()).collect();
        all.sort_unstable_by_key(|&at| chairs.place(at).came());
        all
    }
}

/// Waiters of all levels, each level in the order of arrival.
#[derive(Debug)]
pub(crate) struct ByLevel<const LINK: usize>(Box<[Line<LINK>]>);

impl<const LINK: usize> ByLevel<LINK> {
    pub(crate) fn new(levels: usize) -> Self {
        Self((0..levels).map(|_| Line::new()).collect())
    }

    #[inline]
    pub(crate) fn push<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let level = usize::from(chairs.place(at).level);
        self.0[level].push(chairs, at);
    }

    #[inline]
    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let level = usize::from(chairs.place(at).level);
        self.0[level].remove(chairs, at);
    }

    /// Who has to go first if somebody must.
    pub(crate) fn lowest_and_latest<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let mut lowest_first = self.0.iter().rev();
        lowest_first.find_map(|line| line.tail(chairs))
    }

    /// Who came first, whatever their level.
    pub(crate) fn first<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let heads = self.0.iter().filter_map(|line| line.head(chairs));
        heads.min_by_key(|&at| chairs.place(at).came())
    }

    /// Everyone, the latest of the lowest level first.
    pub(crate) fn latest_first<T>(&self, chairs: &Chairs<T>) -> Vec<u32> {
        let lowest_first = self.0.iter().rev();
        lowest_first
            .flat_map(|line| line.in_order(chairs).into_iter().rev())
            .collect()
    }
}
