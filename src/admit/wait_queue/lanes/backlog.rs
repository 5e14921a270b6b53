//! The work ahead of a newcomer, from which its wait is predicted.

use std::hash::Hash;

use super::{Group, Lanes};
use crate::admit::capacity::PoolId;
use crate::admit::wait_queue::discipline::{FlowState, Newcomer};
use crate::admit::waiters::Waiters;
use crate::admit::{Discipline, WaitingRoomConfig};

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
    /// Returns `true` if every waiting request that `pool` could serve is patient, or there is none.
    pub(crate) fn is_idle(&self, pool: PoolId) -> bool {
        let groups = self.groups_on(pool).iter();
        groups
            .map(|&group| &self.groups[group as usize])
            .all(Group::is_idle)
    }

    /// Returns the work of its own group ahead of a newcomer to `lane`.
    pub(crate) fn backlog<T>(
        &self,
        waiters: &Waiters<T>,
        newcomer: Newcomer<'_>,
        lane: u32,
        config: &WaitingRoomConfig,
    ) -> Backlog {
        let own = &self.lanes[lane as usize];
        let group = &self.groups[own.group as usize];
        let level = own.queue_of(newcomer.level);
        let queue = &own.levels[level];
        let above: usize = group.waiting[..level].iter().sum();
        let flows = group.flows();
        let in_order = group.discipline == Discipline::Fifo && flows.is_none();
        // In the order of arrival, all waiters of the newcomer's level are before it. With many lanes that is an upper
        // bound.
        if in_order || group.lanes.len() > MAX_LOOKS {
            // If the newest go first, the newcomer goes before all of its level.
            let own = match in_order && self.age_order.is_next(newcomer.key) {
                true => 0,
                false => group.waiting[level],
            };
            let ahead = above + own;
            return Backlog { ahead, flows };
        }
        let flow = FlowState {
            start: self.clock_of_newcomer(own.group, level),
            since: self.next_dispatch(),
        };
        let tag = queue.newcomer_tag(newcomer, flow, config);
        let lanes = group.lanes.iter().map(|(_, &other)| {
            let queue = &self.lanes[other as usize].levels[level];
            // Only the newcomer's own lane has its flow, because a tenant has a flow in each lane.
            let passed = match other == lane {
                true => queue.passed(newcomer, config),
                false => None,
            };
            queue.ahead(waiters, newcomer, tag, passed)
        });
        Backlog {
            ahead: above + lanes.sum::<usize>(),
            flows,
        }
    }

    /// Returns the number of waiters of other groups than that of `lane` on which a slot of `pool` would be spent
    /// first. It counts waiters at the newcomer's level and above. The waiters of a group that several pools can serve
    /// are divided by the number of these pools.
    pub(crate) fn ahead_of_others(&self, pool: PoolId, lane: u32, newcomer: Newcomer<'_>) -> f64 {
        let own = self.group(lane);
        let others = self.groups_on(pool).iter().filter(|&&group| group != own);
        others
            .map(|&group| {
                let group = &self.groups[group as usize];
                self.before(group, newcomer) as f64 / group.pools.len() as f64
            })
            .sum()
    }

    /// Returns the number of waiters of a group that go before a newcomer which goes behind all of its level.
    pub(super) fn before(&self, group: &Group, newcomer: Newcomer<'_>) -> usize {
        // If the newest go first, only the levels above go before the newcomer. If levels have weights, all levels are
        // equal.
        let levels = match (self.is_weighted, self.age_order.is_next(newcomer.key)) {
            (true, false) => group.waiting.len(),
            (true, true) => 0,
            (false, false) => usize::from(newcomer.level) + 1,
            (false, true) => usize::from(newcomer.level),
        };
        group.waiting.iter().take(levels).sum()
    }
}
