//! Waiters in order, whenever they joined.
//!
//! Nearly everyone stands behind those who came before: they are a list. A waiter that rose from a lower
//! level, that had a slot before and comes back, or whose deadline is near, belongs before most of those whom
//! it joins. Searching its place among them would be O(n). So these are kept apart, in a tree, and the first of
//! all is the first of the list or the first of the tree.

use std::collections::BTreeMap;

use super::blocks::{Blocks, List};
use super::chairs::{Came, Chairs, NONE};

/// What a line is ordered by. No two waiters have the same.
pub(crate) trait Key: Ord + Copy {
    fn of<T>(chairs: &Chairs<T>, at: u32) -> Self;
}

/// In the order of arrival.
impl Key for Came {
    #[inline]
    fn of<T>(chairs: &Chairs<T>, at: u32) -> Self {
        chairs.place(at).came()
    }
}

/// Waiters in the order of their keys.
#[derive(Debug)]
pub(crate) struct Line<const LIST: usize, K = Came> {
    native: List,
    /// The key of whom the list was last given: all who are in it come before.
    latest: Option<K>,
    /// Those who joined too late for the list.
    others: BTreeMap<K, u32>,
}

impl<const LIST: usize, K: Key> Line<LIST, K> {
    pub(crate) fn new() -> Self {
        Self {
            native: List::EMPTY,
            latest: None,
            others: BTreeMap::new(),
        }
    }

    /// Lines up `at`, and says whether it is first.
    #[inline]
    pub(crate) fn push<T>(&mut self, chairs: &mut Chairs<T>, at: u32) -> bool {
        let key = K::of(chairs, at);
        let alone = self.native.is_empty();
        let number = self.push_found(&mut chairs.blocks, at, key);
        chairs.set_found(at, LIST, number);
        let may_be_first = alone || number == NONE;
        may_be_first && self.head(chairs) == Some(at)
    }

    /// Lines up `at`, whose key is this, and says where it is found.
    #[inline(always)]
    pub(crate) fn push_found(&mut self, blocks: &mut Blocks, at: u32, key: K) -> u32 {
        if self.native.is_empty() || self.latest < Some(key) {
            self.latest = Some(key);
            return self.native.push(blocks, at);
        }
        self.others.insert(key, at);
        NONE
    }

    /// Who comes first, if that is found without a look at the others.
    #[cfg(feature = "batch")]
    #[inline(always)]
    pub(crate) fn native_head(&self, blocks: &Blocks) -> Option<u32> {
        match self.others.is_empty() {
            true => self.native.head(blocks),
            false => None,
        }
    }

    /// Takes out the [native head](Self::native_head).
    #[cfg(feature = "batch")]
    #[inline(always)]
    pub(crate) fn pop(&mut self, blocks: &mut Blocks) -> Option<u32> {
        match self.others.is_empty() {
            true => self.native.pop(blocks),
            false => None,
        }
    }

    #[cfg(feature = "batch")]
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.native.is_empty() && self.others.is_empty()
    }

    #[inline]
    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        match chairs.found(at, LIST) {
            NONE => _ = self.others.remove(&K::of(chairs, at)),
            number => self.native.remove(&mut chairs.blocks, number),
        }
    }

    /// Who comes first.
    #[inline]
    pub(crate) fn head<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let native = self.native.head(&chairs.blocks);
        match self.others.first_key_value() {
            Some((key, &at)) if native.is_none_or(|native| *key < K::of(chairs, native)) => {
                Some(at)
            }
            _ => native,
        }
    }

    /// Who comes last.
    pub(crate) fn tail<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let native = self.native.tail(&chairs.blocks);
        match self.others.last_key_value() {
            Some((key, &at)) if native.is_none_or(|native| *key > K::of(chairs, native)) => {
                Some(at)
            }
            _ => native,
        }
    }

    /// Everyone, in order.
    pub(crate) fn in_order<T>(&self, chairs: &Chairs<T>) -> Vec<u32> {
        let native = self.native.iter(&chairs.blocks);
        let mut all: Vec<u32> = native.chain(self.others.values().copied()).collect();
        all.sort_by_key(|&at| K::of(chairs, at));
        all
    }
}

/// Waiters of all levels, each level in the order of arrival.
#[derive(Debug)]
pub(crate) struct ByLevel<const LIST: usize>(Box<[Line<LIST>]>);

impl<const LIST: usize> ByLevel<LIST> {
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

    /// Who came first, whatever their level.
    pub(crate) fn first<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let heads = self.0.iter().filter_map(|line| line.head(chairs));
        heads.min_by_key(|&at| chairs.place(at).came())
    }

    /// Who has to go first if somebody must.
    pub(crate) fn lowest_and_latest<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let mut lowest_first = self.0.iter().rev();
        lowest_first.find_map(|line| line.tail(chairs))
    }
}
