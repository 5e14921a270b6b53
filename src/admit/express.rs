//! The short way in and out.
//!
//! Most rooms ask for nothing special, and most tickets say nothing special. In a room in which all ask the same and
//! are served in the order in which they come, and in which nobody rises, gets up for another or is counted by
//! tenant, nothing is to be kept of a waiter but its place in one line. Whoever waits is found in the same lists,
//! whichever way it came: what is asked of the room may change, and so may the tickets.

use super::chairs::{NONE, Wording};
use super::nanos::{NEVER, Nanos, Times};
use super::room::{State, Waiter, WaiterId, WaitingRoom};
use super::{Capacity, Priority, Ticket};

/// Somebody who may sit down by the short way.
pub(crate) struct Express {
    lane: u32,
    arrival: Nanos,
    priority: Priority,
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Looks whether there is a short way now.
    pub(super) fn look_for_express(&mut self) {
        let config = &self.config;
        let asks_more = config.displace
            || config.promote_after.is_some()
            || config.max_size_per_tenant.is_some()
            || self.tracks_oldest;
        self.express = (!asks_more).then(|| self.lanes.plain()).flatten();
    }

    /// The ticket's holder, if nothing speaks against the short way: it may sit down, and that changes nothing for
    /// others, nor when to look at their ends.
    #[inline(always)]
    pub(crate) fn express(&self, ticket: &Ticket, lane: &C::Lane, times: Times) -> Option<Express> {
        let express = self.express?;
        let may_come = !self.closed && self.has_chair();
        let (arrival, now) = (self.arrival(times), times.now);
        let next = self.ends.next();
        let is_in_time = now < next
            && (arrival == NEVER || {
                let end = self.chairs.end_of(arrival);
                self.latest <= arrival && arrival <= now && next <= end
            });
        let is_plain = may_come && is_in_time && ticket.is_plain();
        (is_plain && self.lanes.is(express, lane)).then_some(Express {
            lane: express,
            arrival,
            priority: ticket.priority,
        })
    }

    /// It sits down, and leaves a note.
    #[inline(always)]
    pub(crate) fn sit_down(
        &mut self,
        who: Express,
        demand: C::Demand,
        note: impl FnOnce(WaiterId) -> Option<W>,
    ) -> WaiterId {
        let level = self.config.levels.clamp(who.priority);
        self.seq += 1;
        let wording;
        (wording, self.latest) = match who.arrival {
            NEVER => (Wording::Undated, self.behind_all()),
            arrival => (Wording::Plain, arrival),
        };
        let (seq, at) = (self.seq, self.chairs.take(level));
        let (came, key) = ((self.latest, seq), WaiterId { at, seq });
        let state = State::Waiting(note(key));
        let waiter = Waiter { demand, state };
        let blocks = &mut self.chairs.blocks;
        let in_lane = self.lanes.push_plain(blocks, who.lane, level, at, came);
        let in_ends = match self.chairs.longest_wait {
            NEVER => NONE,
            longest => {
                let end = who.arrival.saturating_add(longest);
                self.ends.enter_found(blocks, at, (end, seq))
            }
        };
        let found = [in_lane, in_ends];
        self.chairs
            .sit_plainly(at, came, level, wording, (who.lane, found), waiter);
        self.waiting += 1;
        self.high_water.note(self.waiting);
        key
    }

    /// Takes a waiter out of wherever it was linked in, if there is a short way. Whether it gets a slot is all the
    /// same.
    #[inline]
    pub(super) fn leave_express(&mut self, at: u32) -> bool {
        let Some(lane) = self.express else {
            return false;
        };
        self.lanes.remove_plain(&mut self.chairs, lane, at);
        self.forget_plainly(at);
        true
    }

    /// Takes the head out to be served, together with what it asked for and the note that it left, if there is a
    /// short way, nothing else happens by `now`, and what it asks for is `wanted`.
    #[cfg(feature = "batch")]
    #[inline(always)]
    pub(crate) fn take_express(
        &mut self,
        now: Nanos,
        wanted: Option<impl FnOnce(&C::Demand) -> bool>,
    ) -> Option<(C::Demand, W)> {
        let lane = self.express?;
        if self.ends.next() <= now {
            return None;
        }
        let line = self.lanes.next_plain(lane)?;
        if let Some(wanted) = wanted {
            let at = line.native_head(&self.chairs.blocks)?;
            if !wanted(&self.chairs.body(at).demand) {
                return None;
            }
        }
        let at = line.pop(&mut self.chairs.blocks)?;
        self.forget_plainly(at);
        self.drain.depart();
        let Waiter { demand, state } = self.chairs.leave(at);
        self.trim_if_empty();
        match state {
            State::Waiting(note) => Some((demand, note?)),
            State::Leased(_) | State::Rejected(_) => None,
        }
    }

    #[inline(always)]
    fn forget_plainly(&mut self, at: u32) {
        self.waiting -= 1;
        self.chairs.place_mut(at).waits = false;
        if self.ends.next() < NEVER {
            self.ends.leave(&mut self.chairs, at);
        }
    }
}
