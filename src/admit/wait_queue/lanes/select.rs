//! Selection of the best waiter that a slot can serve.
//!
//! Keys of two disciplines are not comparable, because one is an arrival, one a share and one a deadline. So the best
//! waiter of each discipline is found first. Of these, the one of the highest level goes first, and within a level the
//! one that arrived first. If levels have weights, simply the one that arrived first goes first, because levels are
//! equal then.

use std::hash::Hash;

use super::{Group, LaneHead, Lanes, NOT_BLOCKED, Rank};
use crate::admit::Discipline;
use crate::admit::capacity::PoolId;
use crate::admit::ordered_queue::ArrivalKey;
use crate::admit::wait_queue::discipline::{FlowState, Newcomer};
use crate::admit::waiters::Waiters;

/// The groups of lanes that a pump considers, which is one round of handing out slots.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope {
    /// The groups that a slot of the pool can serve.
    Pool(PoolId),
    /// The groups that a slot of the pool can serve, and the group of the request that found the slot. That group
    /// counts even if its lane does not name the pool.
    Claim(PoolId, u32),
    /// Every group of the queue.
    All,
}

impl Scope {
    /// Returns `true` if the pump hands out one slot of `pool`, and ends when that is granted.
    pub(crate) fn is_about(self, pool: PoolId) -> bool {
        match self {
            Self::Pool(one) | Self::Claim(one, _) => one == pool,
            Self::All => false,
        }
    }
}

/// The best waiter of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) idx: u32,
    pub(crate) group: u32,
}

/// A pump number that is never given, for a look at all groups, busy ones included.
pub(crate) const NO_PUMP: u64 = u64::MAX;

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// Returns the best waiter of the groups in `scope`, without those that pump number `pump` has found busy.
    #[inline]
    pub(crate) fn best<T>(&self, waiters: &Waiters<T>, scope: Scope, pump: u64) -> Option<Head> {
        match scope {
            Scope::Pool(pool) => {
                let groups = self.groups_on(pool).iter().copied();
                self.best_of(waiters, groups, pump)
            }
            Scope::Claim(pool, group) => {
                let groups = self.groups_on(pool).iter().copied();
                // A group that the pool serves is looked at twice, which is harmless.
                self.best_of(waiters, groups.chain(std::iter::once(group)), pump)
            }
            Scope::All => {
                let groups = self.groups.iter().map(|(group, _)| group as u32);
                self.best_of(waiters, groups, pump)
            }
        }
    }

    /// Returns `true` if a newcomer to `lane` would go before `best`.
    pub(crate) fn newcomer_goes_before<T>(
        &self,
        waiters: &Waiters<T>,
        newcomer: Newcomer<'_>,
        lane: u32,
        best: Head,
    ) -> bool {
        let own = &self.lanes[lane as usize];
        let level = own.queue_of(newcomer.level);
        // The rank of `best` is the rank of its group.
        let other = &self.groups[best.group as usize];
        if self.groups[own.group as usize].discipline != other.discipline {
            // The keys of two disciplines are not comparable, so the level and the arrival decide.
            let best = waiters.meta(best.idx);
            return self.key_between(newcomer.level, newcomer.key)
                < self.key_between(best.level, best.key());
        }
        let flow = FlowState {
            start: self.clock_of_newcomer(own.group, level),
            since: self.next_dispatch(),
        };
        // If the key is `None`, another waiter of the newcomer's own flow goes first, and that one goes after `best`.
        let key = own.levels[level].newcomer_key(waiters, newcomer, flow);
        key.zip(other.best_rank())
            .is_some_and(|(key, best)| (level as u64, key) < *best)
    }

    /// Returns the best waiter of each discipline but that of `best`, over all groups that pump number `pump` has not
    /// found busy.
    pub(crate) fn heads_of_other_disciplines(&self, best: Head, pump: u64) -> Vec<Head> {
        let all = self.groups.iter().map(|(group, _)| group as u32);
        let heads = self.best_groups(all, pump).into_iter().flatten();
        heads
            // The best waiter of that discipline is `best` itself.
            .filter(|&(_, group)| group != best.group)
            .filter_map(|(_, group)| self.head_in(group))
            .collect()
    }

    /// Records that pump number `pump` found the group busy.
    pub(crate) fn block(&mut self, group: u32, pump: u64) {
        self.groups[group as usize].blocked_in = pump;
        self.blocked_in = pump;
    }

    /// Unblocks the groups that pump number `pump` found busy just before a slot of `pool` was released, if their heads
    /// go before `best`. Returns `true` if there was such a group.
    ///
    /// Each group is unblocked once until one of its waiters is served. Otherwise a capacity that answers `Busy` beside
    /// a free slot would be asked without end.
    #[inline]
    pub(crate) fn unblock_better<T>(
        &mut self,
        waiters: &Waiters<T>,
        pool: PoolId,
        best: Head,
        pump: u64,
    ) -> bool {
        // In nearly all cases, this pump has found every group available.
        if self.blocked_in != pump {
            return false;
        }
        let mut any = false;
        // The loop goes by index, because groups are changed on the way.
        for nth in 0..self.groups_on(pool).len() {
            let index = self.groups_on(pool)[nth];
            let group = &self.groups[index as usize];
            if group.blocked_in == pump
                && group.looked_again_in != pump
                && self.goes_before(waiters, index, best.group)
            {
                let group = &mut self.groups[index as usize];
                group.blocked_in = NOT_BLOCKED;
                group.looked_again_in = pump;
                any = true;
            }
        }
        any
    }

    /// Returns the best waiter of these groups, over all disciplines.
    #[inline]
    fn best_of<T>(
        &self,
        waiters: &Waiters<T>,
        groups: impl Iterator<Item = u32>,
        pump: u64,
    ) -> Option<Head> {
        let mut groups = groups.filter(|&group| self.groups[group as usize].blocked_in != pump);
        let first = groups.next()?;
        // In nearly all cases there is only one group, which spares the comparison.
        let Some(second) = groups.next() else {
            return self.head_in(first);
        };
        let groups = [first, second].into_iter().chain(groups);
        let best = self.best_groups(groups, pump).into_iter().flatten();
        let of_each = best.map(|(_, group)| group);
        let group = of_each.reduce(|a, b| {
            if self.goes_before(waiters, b, a) {
                b
            } else {
                a
            }
        })?;
        self.head_in(group)
    }

    #[inline]
    fn head_in(&self, group: u32) -> Option<Head> {
        let idx = self.head_of(&self.groups[group as usize])?.idx;
        Some(Head { idx, group })
    }

    /// Returns, for each discipline, the group with the best waiter and the rank of that waiter.
    #[inline]
    fn best_groups(
        &self,
        groups: impl Iterator<Item = u32>,
        pump: u64,
    ) -> [Option<(&Rank, u32)>; Discipline::COUNT] {
        let mut best: [Option<(&Rank, u32)>; Discipline::COUNT] = [None; Discipline::COUNT];
        for index in groups {
            let group = &self.groups[index as usize];
            if group.blocked_in == pump {
                continue;
            }
            let Some(rank) = group.best_rank() else {
                // A group without a rank is empty.
                continue;
            };
            // The array has one entry for each variant of `Discipline`.
            let best = &mut best[group.discipline as usize];
            if best.is_none_or(|(least, _)| rank < least) {
                *best = Some((rank, index));
            }
        }
        best
    }

    #[inline]
    fn head_of(&self, group: &Group) -> Option<&LaneHead> {
        let (_, member) = group.order.first()?;
        self.lane(group.lanes[*member as usize]).head.as_ref()
    }

    /// Returns the key by which waiters of two disciplines are ordered.
    fn key_between(&self, level: u8, key: ArrivalKey) -> (u8, ArrivalKey) {
        match self.weights.have_levels() {
            true => (0, key),
            false => (level, key),
        }
    }

    /// Returns `true` if the best waiter of group `a` goes before that of group `b`.
    fn goes_before<T>(&self, waiters: &Waiters<T>, a: u32, b: u32) -> bool {
        let [a, b] = [a, b].map(|group| &self.groups[group as usize]);
        if a.discipline == b.discipline {
            let ranks = a.best_rank().zip(b.best_rank());
            return ranks.is_some_and(|(first, second)| first < second);
        }
        let [Some(first), Some(second)] = [a, b].map(|group| self.head_of(group)) else {
            // If either group is empty, there is nothing to compare.
            return false;
        };
        let key = |head: &LaneHead| self.key_between(head.level, waiters.meta(head.idx).key());
        key(first) < key(second)
    }
}

impl Group {
    /// Returns the rank of the group's best waiter.
    fn best_rank(&self) -> Option<&Rank> {
        self.order.first().map(|(rank, _)| rank)
    }
}
