//! Queries about groups, for predictions and reports.

use std::hash::Hash;

use super::{Group, Lanes};
use crate::admit::Discipline;
use crate::admit::wait_queue::discipline::Newcomer;

impl Group {
    /// Returns `true` if all requests that wait in the group are patient, or the group is empty.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.order.first().is_none()
            || (self.patient > 0 && self.patient == self.waiting.iter().sum::<usize>())
    }

    /// Returns the group's discipline, if its waiters are in flows.
    #[inline]
    pub(super) fn flows(&self) -> Option<Discipline> {
        (!self.clocks.is_empty()).then_some(self.discipline)
    }
}

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// Returns a lane of each group in which requests wait.
    pub(crate) fn one_of_each_group(&self) -> impl Iterator<Item = u32> {
        let groups = self.groups.iter().map(|(_, group)| group);
        let occupied = groups.filter(|group| group.order.first().is_some());
        occupied.filter_map(|group| group.lanes.iter().next().map(|(_, &lane)| lane))
    }

    /// Returns the discipline of a lane, if its waiters are in flows.
    #[inline]
    pub(crate) fn flows(&self, lane: u32) -> Option<Discipline> {
        self.groups[self.group(lane) as usize].flows()
    }

    /// Returns the number of waiters in the group of `lane` that go before a newcomer which goes behind all of its
    /// level.
    pub(crate) fn ahead_in_group(&self, lane: u32, newcomer: Newcomer<'_>) -> usize {
        self.before(&self.groups[self.group(lane) as usize], newcomer)
    }
}
