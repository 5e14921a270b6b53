//! Waiters by level, each level in the order of arrival.

use super::ordered_queue::{List, OrderedQueue};
use super::waiters::Waiters;

/// The queues of all levels. They yield the waiter that goes first, the one that is evicted first, and the one that
/// arrived first.
#[derive(Debug)]
pub(crate) struct ByLevel {
    /// The queues of the waiters that are not patient. Level 0 is the most urgent.
    bounded: Box<[OrderedQueue]>,
    /// The queues of patient waiters. They are apart because patient waiters are never evicted.
    patient: Box<[OrderedQueue]>,
    /// The number of patient waiters. It is nearly always 0, which saves a look at their queues.
    patients: usize,
}

impl ByLevel {
    pub(crate) fn new(list: List, levels: usize) -> Self {
        let queues = || (0..levels).map(|_| OrderedQueue::new(list)).collect();
        Self {
            bounded: queues(),
            patient: queues(),
            patients: 0,
        }
    }

    #[inline]
    pub(crate) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        let meta = waiters.meta(idx);
        let level = usize::from(meta.level);
        if meta.is_patient {
            self.patients += 1;
            self.patient[level].push(waiters, idx);
        } else {
            self.bounded[level].push(waiters, idx);
        }
    }

    #[inline]
    pub(crate) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        let meta = waiters.meta(idx);
        let level = usize::from(meta.level);
        if self.patients > 0 && meta.is_patient {
            self.patients -= 1;
            self.patient[level].remove(waiters, idx);
        } else {
            self.bounded[level].remove(waiters, idx);
        }
    }

    pub(crate) fn count(&self, level: u8) -> usize {
        let queues = [&self.bounded, &self.patient].into_iter();
        let queues = queues.filter_map(|queues| queues.get(usize::from(level)));
        queues.map(OrderedQueue::len).sum()
    }

    pub(crate) fn count_above(&self, level: u8) -> usize {
        let above = usize::from(level) + 1;
        let queues = [&self.bounded, &self.patient].into_iter();
        let queues = queues.flat_map(|queues| queues.iter().take(above));
        queues.map(OrderedQueue::len).sum()
    }

    /// Returns the waiter that goes next, which is one of the first level that has waiters.
    #[inline]
    pub(crate) fn next<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        if self.patients > 0 {
            return self.next_of_both(waiters);
        }
        self.bounded.iter().find_map(OrderedQueue::head)
    }

    #[cold]
    fn next_of_both<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        let mut levels = self.bounded.iter().zip(&self.patient);
        levels.find_map(|(bounded, patient)| {
            let heads = [bounded, patient].map(OrderedQueue::head);
            let heads = heads.into_iter().flatten();
            heads.min_by_key(|&idx| waiters.meta(idx).key())
        })
    }

    /// Returns the waiter that arrived first, whatever its level.
    pub(crate) fn oldest<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        let patient = self.patient.iter().filter_map(OrderedQueue::head);
        let bounded = self.bounded.iter().filter_map(OrderedQueue::head);
        let both = patient.chain(bounded);
        both.min_by_key(|&idx| waiters.meta(idx).key())
    }

    /// Returns the waiter of a level that arrived first.
    pub(crate) fn oldest_of<T>(&self, waiters: &Waiters<T>, level: u8) -> Option<u32> {
        let queues = [&self.bounded, &self.patient].into_iter();
        let queues = queues.filter_map(|queues| queues.get(usize::from(level)));
        let heads = queues.filter_map(OrderedQueue::head);
        heads.min_by_key(|&idx| waiters.meta(idx).key())
    }

    /// Returns the waiter that is evicted first. This is the latest of the lowest level that has waiters other than
    /// patient ones.
    pub(crate) fn lowest_and_latest(&self) -> Option<u32> {
        // The lowest level is the last one in the list.
        self.bounded.iter().rev().find_map(OrderedQueue::tail)
    }

    /// Returns all waiters of a level, in the order of arrival.
    pub(crate) fn level<T>(&self, waiters: &Waiters<T>, level: u8) -> Vec<u32> {
        let level = usize::from(level);
        let mut all = self.bounded[level].to_vec(waiters);
        let patient = &self.patient[level];
        if patient.len() > 0 {
            all.extend(patient.to_vec(waiters));
            all.sort_unstable_by_key(|&idx| waiters.meta(idx).key());
        }
        all
    }
}
