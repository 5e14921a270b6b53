//! What is asked of groups for predictions and reports.

use std::hash::Hash;

use super::Lanes;
use crate::admit::Discipline;

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// A lane of each group in which requests wait.
    pub(crate) fn one_of_each_group(&self) -> impl Iterator<Item = u32> {
        let groups = self.groups.iter().map(|(_, group)| group);
        let occupied = groups.filter(|group| group.order.first().is_some());
        occupied.filter_map(|group| group.lanes.iter().next().map(|(_, &lane)| lane))
    }

    /// Whether a lane is shared among tenants.
    #[inline]
    pub(crate) fn is_fair(&self, lane: u32) -> bool {
        self.groups[self.group(lane) as usize].discipline == Discipline::Fair
    }

    /// How many requests wait in the group of `lane`, at this level and above.
    pub(crate) fn waiting_above(&self, lane: u32, level: u8) -> usize {
        let group = &self.groups[self.group(lane) as usize];
        group.waiting.iter().take(usize::from(level) + 1).sum()
    }
}
