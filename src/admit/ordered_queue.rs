//! A queue of waiters in the order of arrival, with removal from anywhere in O(1).
//!
//! Nearly all waiters are pushed at an end, so they are in a linked list. Its links are a vector beside the slab of
//! waiters. They take so few bytes that the neighbours of a waiter that leaves are found in the CPU's cache. A few
//! waiters belong between two others, because they were promoted or requeued. These are kept in a tree, where a removal
//! is O(log n), until they are the first or the last.

use std::collections::BTreeMap;

use super::nanos::Nanos;
use super::waiters::{NONE, Waiters};

/// The key of the order of arrival, which is the instant and then the sequence number. Each waiter has a different key.
pub(crate) type ArrivalKey = (Nanos, u64);

/// The links that a queue uses. A waiter is in at most one queue of each kind.
#[derive(Debug, Clone, Copy)]
pub(crate) enum List {
    Level,
    Lane,
    Room,
    Partition,
    Timeout,
}

impl List {
    pub(crate) const COUNT: usize = 5;
}

/// The neighbours of a waiter in the list of a queue, or `NONE` at an end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    prev: u32,
    next: u32,
}

/// A queue of waiters, ordered by their keys.
#[derive(Debug)]
pub(crate) struct OrderedQueue {
    links: List,
    /// The waiters with the smallest and the largest key, or `NONE` if the queue is empty. All others are in the list
    /// that begins and ends with them, or between them in the tree.
    head: u32,
    tail: u32,
    out_of_order: BTreeMap<ArrivalKey, u32>,
    len: usize,
}

impl OrderedQueue {
    pub(crate) const fn new(links: List) -> Self {
        Self {
            links,
            head: NONE,
            tail: NONE,
            out_of_order: BTreeMap::new(),
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a waiter. Returns `true` if it is the head now.
    #[inline]
    pub(crate) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        self.len += 1;
        self.place(waiters, idx)
    }

    /// Puts a waiter at an end of the list or into the tree. Returns `true` if it is the head now.
    #[inline(always)]
    fn place<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        let key = waiters.meta(idx).key();
        if self.tail != NONE && waiters.meta(self.tail).key() > key {
            return self.place_before_tail(waiters, key, idx);
        }
        let links = links_with(waiters, self.links, idx);
        let link = Link {
            prev: self.tail,
            next: NONE,
        };
        links[idx as usize] = link;
        self.tail = idx;
        match link.prev {
            NONE => self.head = idx,
            prev => links[prev as usize].next = idx,
        }
        // The waiter is the head if there is no waiter before it.
        link.prev == NONE
    }

    /// Puts a waiter that goes before the tail at the front of the list, or into the tree. Returns `true` if it is the
    /// head now.
    #[cold]
    #[inline(never)]
    fn place_before_tail<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        key: ArrivalKey,
        idx: u32,
    ) -> bool {
        if key > waiters.meta(self.head).key() {
            // A walk would be needed to find its position in the list, so it goes into the tree.
            self.out_of_order.insert(key, idx);
            return false;
        }
        let links = links_with(waiters, self.links, idx);
        let next = self.head;
        self.join(links, NONE, idx);
        self.join(links, idx, next);
        true
    }

    /// Removes a waiter. Returns `true` if it was the head.
    #[inline]
    pub(crate) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        self.len -= 1;
        // The check saves the search in nearly all removals.
        match self.out_of_order.is_empty() {
            true => self.cut(waiters, idx).prev == NONE,
            false => self.remove_beside_tree(waiters, idx),
        }
    }

    /// Takes a waiter out of the list, and returns its last neighbours.
    #[inline]
    fn cut<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> Link {
        let links = &mut waiters.links[self.links as usize];
        // The waiter's own links stay as they are, because the next push writes both.
        let link = links[idx as usize];
        self.join(links, link.prev, link.next);
        link
    }

    /// Removes a waiter while others are in the tree. Returns `true` if it was the head.
    #[cold]
    #[inline(never)]
    fn remove_beside_tree<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        if self.out_of_order.remove(&waiters.meta(idx).key()).is_some() {
            return false;
        }
        let Link { prev, next } = self.cut(waiters, idx);
        // An end of the list is gone, so the first or the last waiter of the tree may be an end of the queue now.
        if prev == NONE
            && let Some((_, idx)) = self.out_of_order.pop_first()
        {
            // It goes back into the tree if it is not.
            self.place(waiters, idx);
        }
        if next == NONE
            && let Some((_, idx)) = self.out_of_order.pop_last()
        {
            self.place(waiters, idx);
        }
        prev == NONE
    }

    /// Makes two waiters neighbours. If one of them is `NONE`, the other becomes an end of the list.
    #[inline]
    fn join(&mut self, links: &mut [Link], prev: u32, next: u32) {
        match prev {
            NONE => self.head = next,
            _ => links[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            _ => links[next as usize].prev = prev,
        }
    }

    /// Returns the head, which is the waiter with the smallest key.
    #[inline]
    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Returns the waiter with the largest key.
    pub(crate) fn tail(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// Returns the waiters in the list, in order.
    fn in_list<T>(&self, waiters: &Waiters<T>) -> impl Iterator<Item = u32> {
        let links = &waiters.links[self.links as usize];
        let next = |&idx: &u32| Some(links[idx as usize].next).filter(|&next| next != NONE);
        std::iter::successors(self.head(), next)
    }

    pub(crate) fn to_vec<T>(&self, waiters: &Waiters<T>) -> Vec<u32> {
        let mut all: Vec<u32> = self
            .in_list(waiters)
            .chain(self.out_of_order.values().copied())
            .collect();
        all.sort_unstable_by_key(|&idx| waiters.meta(idx).key());
        all
    }
}

/// Returns the links of a list, with those of a waiter that may be pushed for the first time.
#[inline]
fn links_with<T>(waiters: &mut Waiters<T>, list: List, idx: u32) -> &mut [Link] {
    let links = &mut waiters.links[list as usize];
    // A waiter has links from its first push on, so the vector grows with the slab.
    if links.len() <= idx as usize {
        grow(links, idx);
    }
    links
}

#[cold]
#[inline(never)]
fn grow(links: &mut Vec<Link>, idx: u32) {
    let unlinked = Link {
        prev: NONE,
        next: NONE,
    };
    links.resize(idx as usize + 1, unlinked);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admit::Priority;
    use crate::admit::nanos::NEVER;
    use crate::admit::waiters::{MILLISECOND, WaitBounds, WaitLimits, WaiterMeta};
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Op {
        Push(u64),
        Remove(prop::sample::Index),
        Skip(prop::sample::Index),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            5 => (0u64..8).prop_map(Op::Push),
            3 => any::<prop::sample::Index>().prop_map(Op::Remove),
            1 => any::<prop::sample::Index>().prop_map(Op::Skip),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn order_and_ends_are_those_of_a_sorted_list(ops in prop::collection::vec(op(), 1..400)) {
            let mut waiters = Waiters::new(WaitBounds::max_wait(NEVER));
            let mut queue = OrderedQueue::new(List::Level);
            let mut model: Vec<(ArrivalKey, u32)> = Vec::new();
            for (seq, op) in (0u64..).zip(ops) {
                match op {
                    Op::Push(early) => {
                        // The waiters are mostly in order, but an early one belongs before some that were pushed
                        // already.
                        let since = seq.saturating_sub(early * (early % 2));
                        let key = (since * MILLISECOND, seq);
                        let limits = WaitLimits { arrival: key.0, deadline: NEVER };
                        let priority = Priority::HIGHEST;
                        let meta = WaiterMeta::new(key, priority, limits, &mut priority.into());
                        let idx = waiters.insert(meta, |_| ()).idx;
                        model.push((key, idx));
                        model.sort_unstable();
                        prop_assert_eq!(queue.push(&mut waiters, idx), model[0].1 == idx);
                    }
                    Op::Remove(which) | Op::Skip(which) if !model.is_empty() => {
                        let (key, idx) = model.remove(which.index(model.len()));
                        let was_head = queue.head() == Some(idx);
                        prop_assert_eq!(queue.remove(&mut waiters, idx), was_head);
                        if matches!(op, Op::Skip(_)) {
                            model.push((key, idx));
                            model.sort_unstable();
                            prop_assert_eq!(queue.push(&mut waiters, idx), model[0].1 == idx);
                        } else {
                            waiters.remove(idx);
                        }
                    }
                    Op::Remove(_) | Op::Skip(_) => {}
                }
                let order: Vec<u32> = model.iter().map(|(_, idx)| *idx).collect();
                prop_assert_eq!(queue.len(), order.len());
                prop_assert_eq!(queue.head(), order.first().copied());
                prop_assert_eq!(queue.tail(), order.last().copied());
                prop_assert_eq!(queue.to_vec(&waiters), order);
            }
        }
    }
}
