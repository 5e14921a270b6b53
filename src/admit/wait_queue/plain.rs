//! One lane, each level of it first come, first served: the order of all waiters is that of [`ByLevel`].
//!
//! A lane would keep the same order a second time, and cost as much again. So none of its waiters is linked in it.
//!
//! [`ByLevel`]: crate::admit::by_level::ByLevel

use std::hash::Hash;

use super::WaitQueue;
use super::discipline::FlowState;
use crate::admit::{Discipline, Tenant};

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Whether this configuration needs no lane. To be asked before a waiter is linked, and only where there are no slots:
    /// the best waiter for a slot is that of a lane.
    pub(super) fn needs_no_lane(&self) -> bool {
        // All keys without a size are the same.
        size_of::<L>() == 0
            && self.base.config.discipline == Discipline::Fifo
            && self.base.config.level_weights.is_empty()
    }

    /// Adds a waiter to its lane, if it needs one.
    #[inline]
    pub(super) fn enter_lane(&mut self, idx: u32, flow: Option<FlowState>) {
        if !self.is_plain {
            self.enter_or_park(idx, flow);
        }
    }

    /// Removes a waiter from this level of its lane, if it is in one; with a slot if it `is_served`.
    #[inline]
    pub(super) fn leave_lane(&mut self, idx: u32, level: u8, is_served: bool) {
        if !self.is_plain {
            self.leave_or_unpark(idx, level, is_served);
        }
    }

    /// Removes a waiter from this level of its lane, if it is in one, to be added to another one. Returns its tenant, if
    /// others of that are to be parked or unparked once it was added.
    pub(super) fn leave_lane_to_move(&mut self, idx: u32, level: u8) -> Option<Tenant> {
        match self.is_plain {
            true => None,
            false => self.leave_to_move(idx, level),
        }
    }

    /// Hides a waiter.
    pub(super) fn skip_plain(&mut self, idx: u32) {
        let level = self.waiters.meta(idx).level;
        self.by_level.remove(&mut self.waiters, idx, level);
    }

    /// Shows a waiter that was hidden.
    pub(super) fn restore_plain(&mut self, idx: u32) {
        self.by_level.push(&mut self.waiters, idx);
    }

    /// A waiter and all that compete with it, in the order in which they would be taken.
    pub(super) fn forecast(&self, idx: u32) -> Vec<u32> {
        if !self.is_plain {
            let lane = self.waiters.meta(idx).lane;
            return self.lanes.forecast(&self.waiters, lane);
        }
        let order = self.base.age_order;
        let levels = (0..=u8::MAX).take(self.base.config.levels.count());
        levels
            .flat_map(|level| self.by_level.level(&self.waiters, level, order))
            .collect()
    }
}
