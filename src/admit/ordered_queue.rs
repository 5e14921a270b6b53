//! A queue of waiters in the order of a key, with removal from anywhere in O(1).
//!
//! Nearly all waiters are pushed in the order of their keys, so they are kept in a deque. A removed waiter leaves a dead
//! entry behind. It is dropped when it comes to an end of the deque, or with all others once more than half of the entries
//! are dead: so a removal is O(1) amortised and touches no neighbour. The few waiters that are pushed out of order
//! (promoted, requeued, with an early deadline) are kept in a tree, where a removal is O(log n). The head is the first of
//! the deque or the first of the tree.

use std::collections::{BTreeMap, VecDeque};

use super::nanos::Nanos;

/// The order of arrival: the instant, then the sequence number.
pub(crate) type ArrivalKey = (Nanos, u64);

/// Indices of waiters, in the order of their keys.
///
/// A key contains the waiter's sequence number, so no two are equal. The caller knows which entries are dead:
/// `is_alive(key, idx)` is `false` for a waiter that was removed, and for one that has moved to another queue.
#[derive(Debug)]
pub(crate) struct OrderedQueue<K> {
    /// Sorted by key. The first and the last entry are alive, so `head` and `tail` need not look.
    in_order: VecDeque<(K, u32)>,
    /// How many entries of `in_order` are dead.
    dead: usize,
    out_of_order: BTreeMap<K, u32>,
}

/// Dead entries are dropped together once there are more than 32, and more of them than living ones.
const SWEEP_ABOVE: usize = 32;

impl<K: Ord + Copy> OrderedQueue<K> {
    pub(crate) const fn new() -> Self {
        Self {
            in_order: VecDeque::new(),
            dead: 0,
            out_of_order: BTreeMap::new(),
        }
    }

    /// Adds a waiter, and says whether it is the head now.
    #[inline]
    pub(crate) fn push(&mut self, key: K, idx: u32) -> bool {
        let is_in_order = self.in_order.back().is_none_or(|(last, _)| *last < key);
        if is_in_order {
            self.in_order.push_back((key, idx));
            // Behind another it cannot be the head; before one in the tree it may be.
            return self.in_order.len() == 1 && self.head() == Some(idx);
        }
        self.out_of_order.insert(key, idx);
        self.head() == Some(idx)
    }

    /// Adds a waiter that was removed from this queue before, and says whether it is the head now.
    pub(crate) fn restore(&mut self, key: K, idx: u32) -> bool {
        match self.in_order.binary_search_by_key(&key, |(key, _)| *key) {
            // Its dead entry is still there, and alive again: the caller says so from now on.
            Ok(_) => {
                self.dead -= 1;
                self.head() == Some(idx)
            }
            Err(_) => self.push(key, idx),
        }
    }

    /// Removes the waiter with this key, which is not alive any more.
    #[inline]
    pub(crate) fn remove(&mut self, key: K, is_alive: impl Fn(&K, u32) -> bool) {
        if !self.out_of_order.is_empty() && self.out_of_order.remove(&key).is_some() {
            return;
        }
        // It is in the deque. Its entry dies in place, at most to be popped right below.
        self.dead += 1;
        let is_dead =
            |entry: Option<&(K, u32)>| entry.is_some_and(|(key, idx)| !is_alive(key, *idx));
        // Both loops end at a living entry, or with the deque; each entry is popped once.
        while is_dead(self.in_order.front()) {
            self.in_order.pop_front();
            self.dead -= 1;
        }
        while is_dead(self.in_order.back()) {
            self.in_order.pop_back();
            self.dead -= 1;
        }
        // A sweep of n entries comes after n / 2 removals.
        if self.dead > SWEEP_ABOVE && self.dead > self.in_order.len() / 2 {
            self.in_order.retain(|(key, idx)| is_alive(key, *idx));
            self.dead = 0;
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.out_of_order.is_empty()
    }

    /// The head: the waiter with the smallest key.
    #[inline]
    pub(crate) fn head(&self) -> Option<u32> {
        Some(self.first()?.1)
    }

    /// The head, with its key.
    #[inline]
    pub(crate) fn first(&self) -> Option<(K, u32)> {
        let in_order = self.in_order.front().copied();
        // Nearly always: spares the comparison.
        if self.out_of_order.is_empty() {
            return in_order;
        }
        let other = self.out_of_order.first_key_value();
        let other = other.map(|(key, idx)| (*key, *idx));
        in_order
            .into_iter()
            .chain(other)
            .min_by_key(|(key, _)| *key)
    }

    /// The waiter with the largest key.
    pub(crate) fn tail(&self) -> Option<u32> {
        let in_order = self.in_order.back().copied();
        let other = self.out_of_order.last_key_value();
        let other = other.map(|(key, idx)| (*key, *idx));
        let last = in_order
            .into_iter()
            .chain(other)
            .max_by_key(|(key, _)| *key);
        last.map(|(_, idx)| idx)
    }

    /// All waiters, in order. O(n log n).
    pub(crate) fn to_vec(&self, is_alive: impl Fn(&K, u32) -> bool) -> Vec<u32> {
        let in_order = self.in_order.iter().copied();
        let in_order = in_order.filter(|(key, idx)| is_alive(key, *idx));
        // The tree has no dead entries.
        let others = self.out_of_order.iter().map(|(key, idx)| (*key, *idx));
        let mut all: Vec<(K, u32)> = in_order.chain(others).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter().map(|(_, idx)| idx).collect()
    }

    /// Gives back memory that the present waiters do not need.
    pub(crate) fn trim(&mut self) {
        self.in_order.shrink_to_fit();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
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
            let mut queue = OrderedQueue::<ArrivalKey>::new();
            let mut model: Vec<ArrivalKey> = Vec::new();
            for (seq, op) in (0u64..).zip(ops) {
                match op {
                    Op::Push(early) => {
                        // Mostly in order: an early one is before some that were pushed already.
                        let key = (seq.saturating_sub(early * (early % 2)), seq);
                        model.push(key);
                        model.sort_unstable();
                        let is_first = queue.push(key, seq as u32);
                        prop_assert_eq!(is_first, model[0] == key);
                    }
                    Op::Remove(which) | Op::Skip(which) if !model.is_empty() => {
                        let key = model.remove(which.index(model.len()));
                        let alive = |_: &ArrivalKey, idx: u32| model.iter().any(|key| key.1 as u32 == idx);
                        queue.remove(key, alive);
                        if matches!(op, Op::Skip(_)) {
                            model.push(key);
                            model.sort_unstable();
                            prop_assert_eq!(queue.restore(key, key.1 as u32), model[0] == key);
                        }
                    }
                    Op::Remove(_) | Op::Skip(_) => {}
                }
                let seqs: Vec<u32> = model.iter().map(|key| key.1 as u32).collect();
                prop_assert_eq!(queue.head(), seqs.first().copied());
                prop_assert_eq!(queue.tail(), seqs.last().copied());
                prop_assert_eq!(queue.is_empty(), seqs.is_empty());
                let alive = |_: &ArrivalKey, idx: u32| seqs.contains(&idx);
                prop_assert_eq!(queue.to_vec(alive), seqs.clone());
                prop_assert!(queue.in_order.len() <= SWEEP_ABOVE + 2 * model.len() + 1);
            }
        }
    }
}
