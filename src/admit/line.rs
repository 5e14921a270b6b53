//! Waiters of one level in order.
//!
//! Nearly everyone stands behind those who came before: they are a list. A waiter that rose from a lower
//! level, or that had a slot before and comes back, belongs before most of those whom it joins. Searching its
//! place among them would be O(n). So these are kept apart, in a tree, and the first of all is the first of
//! the list or the first of the tree.

use std::collections::BTreeMap;

use super::chairs::{Came, Chairs, Link, NONE};

/// What a line is ordered by. No two waiters have the same.
pub(crate) trait Key: Ord {
    #[inline]
    fn of<T>(chairs: &Chairs<T>, at: u32) -> Self;
}

/// In the order of arrival.
impl Key for Came {
    #[inline]
    fn of<T>(chairs: &Chairs<T>, at: u32) -> Self {
        chairs.place(at).came()
    }
}

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

    #[inline]
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

    #[inline]
    fn remove<T>(&mut self, chairs: &mut Chairs<T>, Link { prev, next }: Link) {
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

/// Waiters of one level in the order of their keys, whenever they joined it.
#[derive(Debug)]
pub(crate) struct Line<const LINK: usize, K = Came> {
    native: List<LINK>,
    /// Those who stood before somebody in the list when they joined.
    others: BTreeMap<K, u32>,
}

impl<const LINK: usize, K: Key> Line<LINK, K> {
    pub(crate) fn new() -> Self {
        Self {
            native: List::EMPTY,
            others: BTreeMap::new(),
        }
    }

    /// Lines up `at`, and says whether it is first.
    #[inline]
    pub(crate) fn push<T>(&mut self, chairs: &mut Chairs<T>, at: u32) -> bool {
        let tail = self.native.tail;
        if tail == NONE || K::of(chairs, tail) < K::of(chairs, at) {
            self.native.push(chairs, at);
        } else {
            *chairs.link_mut(at, LINK) = Link::APART;
            self.others.insert(K::of(chairs, at), at);
        }
        self.head(chairs) == Some(at)
    }

    #[inline]
    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        match chairs.link(at, LINK) {
            Link::APART => _ = self.others.remove(&K::of(chairs, at)),
            link => self.native.remove(chairs, link),
        }
    }

    /// Who comes first.
    #[inline]
    pub(crate) fn head<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let native = self.native.head;
        match self.others.first_key_value() {
            Some((key, &at)) if native == NONE || *key < K::of(chairs, native) => Some(at),
            _ => (native != NONE).then_some(native),
        }
    }

    /// Who comes last.
    pub(crate) fn tail<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let native = self.native.tail;
        match self.others.last_key_value() {
            Some((key, &at)) if native == NONE || *key > K::of(chairs, native) => Some(at),
            _ => (native != NONE).then_some(native),
        }
    }

    /// Everyone, in order.
    pub(crate) fn in_order<T>(&self, chairs: &Chairs<T>) -> Vec<u32> {
        let follow = |at: u32| (at != NONE).then_some(at);
        let native = std::iter::successors(follow(self.native.head), |&at| {
            follow(chairs.link(at, LINK).next)
        });
        let mut all: Vec<u32> = native.chain(self.others.values().copied()).collect();
        all.sort_by_key(|&at| K::of(chairs, at));
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
}
