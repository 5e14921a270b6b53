//! Waiters by level, each level in the order of arrival.

use super::age_order::AgeOrder;
use super::ordered_queue::{List, OrderedQueue};
use super::waiters::Waiters;

/// One queue for each level: finds the waiter that goes first, the one that is evicted first, and the one that arrived first.
#[derive(Debug)]
pub(crate) struct ByLevel {
    /// Level 0 is the most urgent.
    levels: Box<[Level]>,
}

/// The waiters of one level. Patient ones are apart, because they are never evicted, and no queue is standing for them.
#[derive(Debug)]
struct Level {
    bounded: OrderedQueue,
    patient: OrderedQueue,
}

impl Level {
    #[inline]
    fn queue_mut(&mut self, is_patient: bool) -> &mut OrderedQueue {
        match is_patient {
            true => &mut self.patient,
            false => &mut self.bounded,
        }
    }

    fn len(&self) -> usize {
        self.bounded.len() + self.patient.len()
    }

    /// The waiter that goes next.
    #[inline]
    fn next<T>(&self, waiters: &Waiters<T>, order: AgeOrder) -> Option<u32> {
        let bounded = order.head(&self.bounded, waiters);
        // Nearly always there is none.
        if self.patient.len() == 0 {
            return bounded;
        }
        let both = bounded
            .into_iter()
            .chain(order.head(&self.patient, waiters));
        both.min_by_key(|&idx| order.key(waiters.meta(idx).key()))
    }
}

impl ByLevel {
    pub(crate) fn new(list: List, levels: usize) -> Self {
        let level = |_| Level {
            bounded: OrderedQueue::new(list),
            patient: OrderedQueue::new(list),
        };
        Self {
            levels: (0..levels).map(level).collect(),
        }
    }

    /// Adds a waiter at its level.
    #[inline]
    pub(crate) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        let meta = waiters.meta(idx);
        let (level, is_patient) = (meta.level, meta.is_patient);
        self.levels[usize::from(level)]
            .queue_mut(is_patient)
            .push(waiters, idx);
    }

    /// Removes a waiter from this level.
    #[inline]
    pub(crate) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, level: u8) {
        let is_patient = waiters.meta(idx).is_patient;
        self.levels[usize::from(level)]
            .queue_mut(is_patient)
            .remove(waiters, idx);
    }

    /// How many wait at this level.
    pub(crate) fn count(&self, level: u8) -> usize {
        let level = self.levels.get(usize::from(level));
        level.map_or(0, Level::len)
    }

    /// How many wait at this level and those above.
    pub(crate) fn count_above(&self, level: u8) -> usize {
        let levels = self.levels.iter().take(usize::from(level) + 1);
        levels.map(Level::len).sum()
    }

    /// The waiter of the first level that has one that goes next.
    #[inline]
    pub(crate) fn next<T>(&self, waiters: &Waiters<T>, order: AgeOrder) -> Option<u32> {
        let mut levels = self.levels.iter();
        levels.find_map(|level| level.next(waiters, order))
    }

    /// The waiter that arrived first, whatever its level.
    pub(crate) fn oldest<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        let patient = self.levels.iter().filter_map(|level| level.patient.head());
        let both = patient.chain(self.oldest_bounded(waiters));
        both.min_by_key(|&idx| waiters.meta(idx).key())
    }

    /// The waiter that arrived first of those that are not patient.
    pub(crate) fn oldest_bounded<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        let heads = self.levels.iter().filter_map(|level| level.bounded.head());
        heads.min_by_key(|&idx| waiters.meta(idx).key())
    }

    /// Returns the waiter without a deadline that entered the room first, whatever its level. None that is patient: its queue
    /// may well be standing.
    pub(crate) fn first_silent<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        let levels = self.levels.iter();
        let first = levels.filter_map(|level| level.bounded.first_silent(waiters));
        first.min_by_key(|&idx| waiters.meta(idx).entry_key())
    }

    /// The waiter that is evicted first: the latest of the lowest level that has one that is not patient.
    pub(crate) fn lowest_and_latest(&self) -> Option<u32> {
        // The lowest level is the last.
        self.levels
            .iter()
            .rev()
            .find_map(|level| level.bounded.tail())
    }

    /// All waiters of a level, in this order.
    pub(crate) fn level<T>(&self, waiters: &Waiters<T>, level: u8, order: AgeOrder) -> Vec<u32> {
        let level = &self.levels[usize::from(level)];
        let mut all = order.to_vec(&level.bounded, waiters);
        if level.patient.len() > 0 {
            all.extend(level.patient.to_vec(waiters));
            all.sort_unstable_by_key(|&idx| order.key(waiters.meta(idx).key()));
        }
        all
    }
}
