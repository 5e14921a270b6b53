//! What is asked of groups for predictions and reports.

use std::hash::Hash;

use super::{Group, Lanes};
use crate::admit::Discipline;
use crate::admit::wait_queue::discipline::Newcomer;

impl Group {
    /// Returns `true` if no request waits in it, patient ones aside.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.order.first().is_none()
            || (self.patient > 0 && self.patient == self.waiting.iter().sum::<usize>())
    }

    /// Its discipline, if it is shared by flows.
    #[inline]
    pub(super) fn flows(&self) -> Option<Discipline> {
        (!self.clocks.is_empty()).then_some(self.discipline)
    }
}

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// A lane of each group in which requests wait.
    pub(crate) fn one_of_each_group(&self) -> impl Iterator<Item = u32> {
        let groups = self.groups.iter().map(|(_, group)| group);
        let occupied = groups.filter(|group| group.order.first().is_some());
        occupied.filter_map(|group| group.lanes.iter().next().map(|(_, &lane)| lane))
    }

    /// The discipline of a lane, if that is shared by flows.
    #[inline]
    pub(crate) fn flows(&self, lane: u32) -> Option<Discipline> {
        self.groups[self.group(lane) as usize].flows()
    }

    /// How many requests of the group of `lane` go before a newcomer that goes behind all of its level.
    pub(crate) fn ahead_in_group(&self, lane: u32, newcomer: Newcomer<'_>) -> usize {
        self.before(&self.groups[self.group(lane) as usize], newcomer)
    }
}
