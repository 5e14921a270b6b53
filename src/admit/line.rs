//! Waiters of one level in the order of arrival.
//!
//! A waiter that rose from a lower level arrived before most of those whom it joins. Searching its place
//! among them would be O(n). But those who rose from the same level rise in the order in which they came,
//! so a list for each origin stays sorted by appending, and the first of all is the least of their heads.

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
        chairs.place_mut(at).links[LINK] = Link {
            prev: self.tail,
            next: NONE,
        };
        match self.tail {
            NONE => self.head = at,
            tail => chairs.place_mut(tail).links[LINK].next = at,
        }
        self.tail = at;
    }

    fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let Link { prev, next } = chairs.place(at).links[LINK];
        match prev {
            NONE => self.head = next,
            prev => chairs.place_mut(prev).links[LINK].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => chairs.place_mut(next).links[LINK].prev = prev,
        }
    }
}

/// Waiters of one level in the order of arrival, wherever they rose from.
#[derive(Debug)]
pub(crate) struct Line<const LINK: usize> {
    native: List<LINK>,
    /// Those who rose by one level, by two, and so on.
    risen: Vec<List<LINK>>,
}

impl<const LINK: usize> Line<LINK> {
    pub(crate) fn new() -> Self {
        Self {
            native: List::EMPTY,
            risen: Vec::new(),
        }
    }

    pub(crate) fn push<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        self.list_of(chairs, at).push(chairs, at);
    }

    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        self.list_of(chairs, at).remove(chairs, at);
    }

    /// Who came first.
    pub(crate) fn head<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        if self.risen.is_empty() {
            return (self.native.head != NONE).then_some(self.native.head);
        }
        self.lists()
            .map(|list| list.head)
            .filter(|&at| at != NONE)
            .min_by_key(|&at| chairs.place(at).seq)
    }

    /// Who came last.
    pub(crate) fn tail<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        self.lists()
            .map(|list| list.tail)
            .filter(|&at| at != NONE)
            .max_by_key(|&at| chairs.place(at).seq)
    }

    /// Everyone, in the order of arrival.
    pub(crate) fn in_order<T>(&self, chairs: &Chairs<T>) -> Vec<u32> {
        let follow = |at: u32| (at != NONE).then_some(at);
        let mut all: Vec<u32> = self
            .lists()
            .flat_map(|list| {
                std::iter::successors(follow(list.head), |&at| {
                    follow(chairs.place(at).links[LINK].next)
                })
            })
            .collect();
        all.sort_unstable_by_key(|&at| chairs.place(at).seq);
        all
    }

    fn lists(&self) -> impl Iterator<Item = &List<LINK>> {
        std::iter::once(&self.native).chain(&self.risen)
    }

    fn list_of<T>(&mut self, chairs: &Chairs<T>, at: u32) -> &mut List<LINK> {
        match chairs.place(at).risen() {
            0 => &mut self.native,
            risen => {
                if self.risen.len() < risen {
                    self.risen.resize(risen, List::EMPTY);
                }
                &mut self.risen[risen - 1]
            }
        }
    }
}
