//! Who goes next, of those whom a slot can serve.
//!
//! Turns of two disciplines are not comparable: one counts arrivals, another shares, a third deadlines. So each
//! discipline names its best of those whom a slot can serve, and of these, within a level, the one who came first
//! goes first.

use std::hash::Hash;

use super::super::Discipline;
use super::super::capacity::PoolId;
use super::super::chairs::Chairs;
use super::{Group, Head, Lanes, NOT_BLOCKED, Rank};

/// The groups that a pump looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope {
    /// Those that a slot that came back can serve.
    Pool(PoolId),
    /// Those, and the one of an arrival that found the slot.
    Claim(PoolId, u32),
    All,
}

impl Scope {
    /// Whether one slot of `pool` is all that it is about.
    pub(crate) fn is_about(self, pool: PoolId) -> bool {
        match self {
            Self::Pool(one) | Self::Claim(one, _) => one == pool,
            Self::All => false,
        }
    }
}

/// The best waiter that a pump has not yet found blocked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Best {
    pub(crate) at: u32,
    pub(crate) group: u32,
}

/// The number of no pump, for which every group is asked.
pub(crate) const NO_PUMP: u64 = u64::MAX;

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// The best waiter of all.
    #[inline]
    pub(crate) fn first<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        match self.alone {
            Some(lane) => self.lanes[lane as usize].first(chairs),
            None => Some(self.best(chairs, Scope::All, NO_PUMP)?.at),
        }
    }

    /// The best waiter of the groups in `scope` that pump number `pump` has not found busy.
    #[inline]
    pub(crate) fn best<T>(&self, chairs: &Chairs<T>, scope: Scope, pump: u64) -> Option<Best> {
        if let Some(lane) = self.alone {
            return self.best_alone(chairs, lane, scope, pump);
        }
        match scope {
            // Nearly every release is about a pool that one group waits for.
            Scope::Pool(pool) => match *self.groups_on(pool) {
                [only] if self.groups[only as usize].blocked_in == pump => None,
                [only] => self.best_in(only),
                ref groups => self.best_of(chairs, groups.iter().copied(), pump),
            },
            Scope::Claim(pool, group) => {
                let groups = self.groups_on(pool).iter().copied();
                self.best_of(chairs, groups.chain(std::iter::once(group)), pump)
            }
            Scope::All => {
                let groups = self.groups.iter().map(|(group, _)| group as u32);
                self.best_of(chairs, groups, pump)
            }
        }
    }

    /// The best waiters of the disciplines that `best` is not of, over all groups that pump number `pump` has
    /// not found busy.
    pub(crate) fn rivals(&self, best: Best, pump: u64) -> Vec<Best> {
        let all = self.groups.iter().map(|(group, _)| group as u32);
        let bests = self.bests_of(all, pump).into_iter().flatten();
        bests
            .filter(|&(_, group)| group != best.group)
            .filter_map(|(_, group)| self.best_in(group))
            .collect()
    }

    /// Notes that pump number `pump` found the group busy.
    pub(crate) fn block(&mut self, group: u32, pump: u64) {
        self.groups[group as usize].blocked_in = pump;
        self.blocked_in = pump;
    }

    /// Clears the way for groups that pump number `pump` found busy just before `pool` got a free slot, if
    /// their heads go before `best`. Says whether there was one.
    ///
    /// Each gets one second look, or a group that is busy beside a free slot of its pools would be asked
    /// for ever.
    #[inline]
    pub(crate) fn unblock_better<T>(
        &mut self,
        chairs: &Chairs<T>,
        pool: PoolId,
        best: Best,
        pump: u64,
    ) -> bool {
        if self.blocked_in != pump {
            return false;
        }
        let mut any = false;
        for nth in 0..self.groups_on(pool).len() {
            let index = self.groups_on(pool)[nth];
            let group = &self.groups[index as usize];
            if group.blocked_in == pump
                && group.looked_again_in != pump
                && self.goes_before(chairs, index, best.group)
            {
                let group = &mut self.groups[index as usize];
                group.blocked_in = NOT_BLOCKED;
                group.looked_again_in = pump;
                any = true;
            }
        }
        any
    }

    /// Notes that a waiter of the group is served.
    #[inline]
    pub(crate) fn progress(&mut self, group: u32) {
        self.groups[group as usize].looked_again_in = NOT_BLOCKED;
    }

    fn best_of<T>(
        &self,
        chairs: &Chairs<T>,
        groups: impl Iterator<Item = u32>,
        pump: u64,
    ) -> Option<Best> {
        let bests = self.bests_of(groups, pump).into_iter().flatten();
        let before = |a, b| self.goes_before(chairs, a, b);
        let of_each = bests.map(|(_, group)| group);
        let group = of_each.reduce(|a, b| if before(b, a) { b } else { a })?;
        self.best_in(group)
    }

    #[inline]
    fn best_in(&self, group: u32) -> Option<Best> {
        let at = self.head_of(&self.groups[group as usize])?.at;
        Some(Best { at, group })
    }

    /// The best waiter of the only lane.
    #[inline]
    fn best_alone<T>(
        &self,
        chairs: &Chairs<T>,
        lane: u32,
        scope: Scope,
        pump: u64,
    ) -> Option<Best> {
        let lane = &self.lanes[lane as usize];
        let group = lane.group;
        let is_in_scope = match scope {
            Scope::Pool(pool) => self.groups_on(pool).contains(&group),
            Scope::Claim(..) | Scope::All => true,
        };
        if !is_in_scope || self.groups[group as usize].blocked_in == pump {
            return None;
        }
        let at = lane.first(chairs)?;
        Some(Best { at, group })
    }

    /// The group with the best waiter of each discipline.
    #[inline]
    fn bests_of(
        &self,
        groups: impl Iterator<Item = u32>,
        pump: u64,
    ) -> [Option<(&Rank, u32)>; Discipline::COUNT] {
        let mut bests: [Option<(&Rank, u32)>; Discipline::COUNT] = [None; Discipline::COUNT];
        for index in groups {
            let group = &self.groups[index as usize];
            if group.blocked_in == pump {
                continue;
            }
            let Some((rank, _)) = group.order.first() else {
                continue;
            };
            let best = &mut bests[group.discipline as usize];
            if best.is_none_or(|(least, _)| rank < least) {
                *best = Some((rank, index));
            }
        }
        bests
    }

    /// The best waiter of a group.
    #[inline]
    fn head_of(&self, group: &Group) -> Option<&Head> {
        let (_, member) = group.order.first()?;
        let lane = group.lanes[*member as usize];
        self.lanes[lane as usize].head.as_ref()
    }

    /// Whether the best waiter of group `a` goes before that of group `b`.
    fn goes_before<T>(&self, chairs: &Chairs<T>, a: u32, b: u32) -> bool {
        let [a, b] = [a, b].map(|group| &self.groups[group as usize]);
        if a.discipline == b.discipline {
            let ranks = a.best_rank().zip(b.best_rank());
            return ranks.is_some_and(|(first, second)| first < second);
        }
        let [Some(first), Some(second)] = [a, b].map(|group| self.head_of(group)) else {
            return false;
        };
        let key = |head: &Head| (head.level, chairs.place(head.at).came());
        key(first) < key(second)
    }
}
