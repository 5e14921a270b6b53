//! The work ahead of a newcomer, by which its wait is predicted.

use std::hash::Hash;

use super::{Group, Lanes};
use crate::admit::capacity::PoolId;
use crate::admit::wait_queue::discipline::{FlowState, Newcomer};
use crate::admit::waiters::Waiters;
use crate::admit::{Discipline, WaitingRoomConfig};

/// How many lanes, flows or waiters are looked at for a prediction. The work ahead of an arrival need not be exact, and
/// must not take longer the more requests wait.
pub(crate) const MAX_LOOKS: usize = 64;

/// What a newcomer finds in its own group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    /// About how many waiters go before it.
    pub(crate) ahead: usize,
    /// Whether it is shared among flows.
    pub(crate) flows: Option<Discipline>,
}

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// Returns `true` if no request waits that `pool` could serve, patient ones aside.
    pub(crate) fn is_idle(&self, pool: PoolId) -> bool {
        let groups = self.groups_on(pool).iter();
        groups
            .map(|&group| &self.groups[group as usize])
            .all(Group::is_idle)
    }

    /// The work of its own group ahead of a newcomer to `lane`.
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
        // In the order of arrival, all of its level are before it. With many lanes that is an upper bound.
        if in_order || group.lanes.len() > MAX_LOOKS {
            // Newest first, none of its level is.
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
            // Only its own lane has its flow: a tenant has a flow in each lane.
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

    /// How many waiters of other groups than that of `lane` a slot of `pool` would be spent on first, at the newcomer's level and
    /// above. A group that several pools can serve spreads over them.
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

    /// How many waiters of a group go before a newcomer that goes behind all of its level.
    pub(super) fn before(&self, group: &Group, newcomer: Newcomer<'_>) -> usize {
        // Newest first, only those above. Where levels have weights, no level goes before another.
        let levels = match (self.is_weighted, self.age_order.is_next(newcomer.key)) {
            (true, false) => group.waiting.len(),
            (true, true) => 0,
            (false, false) => usize::from(newcomer.level) + 1,
            (false, true) => usize::from(newcomer.level),
        };
        group.waiting.iter().take(levels).sum()
    }
}
