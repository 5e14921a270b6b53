//! Who waits for a chair rather than for a slot.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::admit::WakeList;

/// ReservationWaiters for a chair, each with a number of its own. They keep no place in a line.
#[derive(Debug, Default)]
pub(crate) struct ReservationWaiters {
    wakers: BTreeMap<u64, Waker>,
    /// The last number that was given.
    last: u64,
}

impl ReservationWaiters {
    /// Notes who is to be told. Gives back the waker that it replaces, to be dropped without the lock.
    pub(crate) fn note(&mut self, wish: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        let number = *wish.get_or_insert_with(|| {
            self.last += 1;
            self.last
        });
        self.wakers.insert(number, waker)
    }

    /// Whoever had this wish has it no longer.
    pub(crate) fn withdraw(&mut self, wish: u64) -> Option<Waker> {
        self.wakers.remove(&wish)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    /// Everyone is to look whether there is a chair.
    pub(crate) fn tell_all(&mut self, woken: &mut WakeList<Waker>) {
        let all = std::mem::take(&mut self.wakers);
        all.into_values().for_each(|waker| woken.push(waker));
    }
}
