//! What is behind the queue's lock: the room, and who waits for something to happen in it.

use std::task::Waker;
use std::time::Instant;

use super::TooLarge;
use super::cancel::Registration;
use super::capacity::Fetched;
use super::consumers::Consumers;
use super::due::Batcher;
use super::selection::{Choice, Selection};
use super::summary::Summary;
use crate::admit::{Aside, Key, Rejected, RoomConfig, WaitingRoom, Woken};
use crate::gate::now;
use crate::gate::timer::{Alarm, Call};
use crate::gate::wishes::Wishes;

pub(super) struct State<T> {
    pub(super) room: WaitingRoom<Fetched, Entry<T>>,
    /// What all who wait cost together.
    pub(super) cost: u128,
    pub(super) consumers: Consumers,
    /// Who waits for a chair.
    pub(super) standing: Wishes,
    /// Who waits until a batch is due.
    pub(super) batcher: Option<Batcher>,
    pub(super) alarm: Alarm,
}

/// What waits on a chair.
pub(super) struct Entry<T> {
    pub(super) item: T,
    key: Key,
    cost: u64,
    /// How many went before it because it did not fit.
    overtaken: u32,
    /// What takes it out when its token is cancelled.
    pub(super) registration: Option<Registration>,
}

impl<T> Entry<T> {
    #[inline]
    pub(super) fn new(item: T, key: Key, cost: u64) -> Self {
        Self {
            item,
            key,
            cost,
            overtaken: 0,
            registration: None,
        }
    }
}

impl<T> State<T> {
    pub(super) fn new(config: RoomConfig, notes_arrivals: bool) -> Self {
        let mut room = WaitingRoom::new(config, now());
        if notes_arrivals {
            room.note_arrivals();
        }
        Self {
            room,
            cost: 0,
            consumers: Consumers::default(),
            standing: Wishes::default(),
            batcher: None,
            alarm: Alarm::default(),
        }
    }

    /// Whose wait has ended by now is not taken.
    pub(super) fn keep_time(&mut self, ended: &mut Woken<Entry<T>>) {
        if self.room.is_timed() {
            self.room.keep_time(now(), ended);
        }
    }

    /// The best of those whose wait has not ended, by what the time is if that matters.
    #[inline]
    pub(super) fn take_best(
        &mut self,
        now: Option<Instant>,
        ended: &mut Woken<Entry<T>>,
    ) -> Option<Entry<T>> {
        if let Some(now) = now {
            self.room.keep_time(now, ended);
        }
        let best = self.room.head()?;
        self.take(best)
    }

    /// Those who join a batch.
    pub(super) fn select(&mut self, mut selection: Selection) -> Vec<Entry<T>> {
        let mut batch = Vec::new();
        let mut passed: Vec<(Aside, u32)> = Vec::new();
        while let Some(best) = self.room.head()
            && let Some(entry) = self.room.note_mut(best)
        {
            match selection.look(entry.cost, entry.overtaken) {
                Choice::Take => batch.extend(self.take(best)),
                Choice::Pass => passed.push((self.room.set_aside(best), selection.taken)),
                Choice::End => break,
            }
        }
        for (aside, taken_before) in passed {
            if let Some(entry) = self.room.note_mut(aside.key()) {
                entry.overtaken += selection.taken - taken_before;
            }
            self.room.put_back(aside);
        }
        batch
    }

    fn take(&mut self, key: Key) -> Option<Entry<T>> {
        let entry = self.room.take(key);
        self.cost -= u128::from(entry.as_ref().map_or(0, |entry| entry.cost));
        entry
    }

    /// The waiter's entry, if it still waits.
    pub(super) fn cancel(&mut self, key: Key) -> Option<Entry<T>> {
        if !self.room.waits(key) {
            return None;
        }
        let (_, entry) = self.room.cancel(key);
        let entry = entry?;
        self.cost -= u128::from(entry.cost);
        Some(entry)
    }

    pub(super) fn entry_mut(&mut self, key: Key) -> Option<&mut Entry<T>> {
        self.room.waits(key).then(|| self.room.note_mut(key))?
    }

    /// Why the waits ended that did.
    #[cold]
    pub(super) fn reasons(
        &mut self,
        ended: Woken<Entry<T>>,
    ) -> Vec<(Entry<T>, Rejected<TooLarge>)> {
        let mut rejected = Vec::new();
        for entry in ended {
            self.cost -= u128::from(entry.cost);
            if let Some(Err(why)) = self.room.collect(entry.key) {
                rejected.push((entry, why));
            }
        }
        rejected
    }

    /// A consumer has what it came for, or has gone.
    pub(super) fn gone(&mut self, number: &mut Option<u64>) -> Option<Waker> {
        let number = number.take()?;
        self.consumers.leave(number)
    }

    /// Whether nobody waits for anything to happen.
    pub(super) fn concerns_nobody(&self) -> bool {
        self.consumers.none_waits() && self.standing.is_empty() && self.batcher.is_none()
    }

    /// Wakes whoever waited for what is so now.
    pub(super) fn tell(&mut self, wakers: &mut Woken<Waker>) {
        let is_closed = self.room.is_closed();
        let nothing_will_come = is_closed && self.room.is_empty();
        let requests = if nothing_will_come {
            usize::MAX
        } else {
            self.room.len()
        };
        self.consumers.wake(requests, wakers);
        if !self.standing.is_empty() && (self.room.has_chair() || is_closed) {
            self.standing.tell_all(wakers);
        }
        if let Some(waker) = self.call_batcher() {
            wakers.push(waker);
        }
    }

    pub(super) fn summary(&self) -> Summary {
        Summary::new(self.room.len(), self.room.is_closed(), self.room.is_timed())
    }

    /// What the timer is to be told.
    #[inline]
    pub(super) fn call_timer(&mut self) -> Option<Call> {
        self.alarm.call(self.room.next_end())
    }
}
