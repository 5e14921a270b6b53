//! The work ahead of a newcomer, from which its wait is predicted.

use std::hash::Hash;

use super::{Group, Lanes};
use crate::admit::Discipline;
use crate::admit::capacity::PoolId;
use crate::admit::wait_queue::discipline::{FlowState, Newcomer};
use crate::admit::waiters::Waiters;

/// The number of lanes, flows or waiters that are looked at for a prediction. The work ahead of an arrival may be an
/// estimate, and its cost must stay the same as more requests wait.
pub(crate) const MAX_LOOKS: usize = 64;

/// The work that a newcomer finds in its own group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    /// The estimated number of waiters that go before the newcomer.
    pub(crate) ahead: usize,
    /// The discipline, if the group's waiters are in flows.
    pub(crate) flows: Option<Discipline>,
}

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// Returns the work of its own group ahead of a newcomer to `lane`.
    pub(crate) fn backlog<T>(
        &self,
        waiters: &Waiters<T>,
        newcomer: Newcomer<'_>,
        lane: u32,
    ) -> Backlog {
        let group = self.group_of(lane);
        let level = self.lane(lane).queue_of(newcomer.level);
        let above: usize = group.waiting[..level].iter().sum();
        let flows = group.flows();
        let own = if group.lanes.len() <= MAX_LOOKS {
            self.ahead_in_level(waiters, newcomer, lane)
        } else {
            // All waiters of the newcomer's level are an upper bound.
            group.waiting[level]
        };
        let ahead = above + own;
        Backlog { ahead, flows }
    }

    /// Estimates the number of waiters of the newcomer's group and level that go before it.
    fn ahead_in_level<T>(&self, waiters: &Waiters<T>, newcomer: Newcomer<'_>, lane: u32) -> usize {
        let own = self.lane(lane);
        let level = own.queue_of(newcomer.level);
        let flow = FlowState {
            start: self.clock_of_newcomer(own.group, level),
            since: self.next_dispatch(),
        };
        let tag = own.levels[level].turn(newcomer, flow);
        let lanes = self.group_of(lane).lanes.iter();
        lanes
            .map(|(_, &other)| self.lane(other).levels[level].ahead(waiters, newcomer, tag))
            .sum()
    }

    /// Returns the number of waiters of other groups than that of `lane` on which a slot of `pool` would be spent
    /// first. It counts waiters at the newcomer's level and above. The waiters of a group that several pools can serve
    /// are divided by the number of these pools.
    pub(crate) fn ahead_of_others(&self, pool: PoolId, lane: u32, newcomer: Newcomer<'_>) -> f64 {
        let own = self.lane(lane).group;
        let others = self.groups_on(pool).iter().filter(|&&group| group != own);
        others
            .map(|&group| {
                let group = &self.groups[group as usize];
                self.before(group, newcomer) as f64 / group.pools.len() as f64
            })
            .sum()
    }

    /// Returns the number of waiters of a group that go before a newcomer which goes behind all of its level.
    pub(in crate::admit::wait_queue) fn before(
        &self,
        group: &Group,
        newcomer: Newcomer<'_>,
    ) -> usize {
        // If levels have weights, all levels are equal.
        let levels = match self.weights.have_levels() {
            true => group.waiting.len(),
            false => usize::from(newcomer.level) + 1,
        };
        group.waiting.iter().take(levels).sum()
    }
}

impl Group {
    /// Returns `true` if all requests that wait in the group are patient, or the group is empty.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.order.first().is_none()
            || (self.patient > 0 && self.patient == self.waiting.iter().sum::<usize>())
    }

    /// Returns the group's discipline, if its waiters are in flows.
    #[inline]
    pub(crate) fn flows(&self) -> Option<Discipline> {
        (!self.clocks.is_empty()).then_some(self.discipline)
    }
}
