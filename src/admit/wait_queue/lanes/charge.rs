//! Charges for service whose amount becomes known while or after a request is served.

use std::hash::Hash;

use super::Lanes;
use crate::admit::Account;
use crate::admit::waiters::Waiters;

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// Returns `true` if a tenant has a debt in any lane. This takes O(lanes).
    pub(crate) fn have_debts(&self) -> bool {
        let mut levels = self.lanes.iter().flat_map(|(_, lane)| &lane.levels);
        levels.any(|queue| queue.debts().is_some_and(|debts| !debts.is_empty()))
    }

    /// Charges a tenant this many units of cost, in the lane and level in which it was served. Negative units are a
    /// repayment. A lane that is not open ignores charges.
    pub(crate) fn charge<T>(&mut self, waiters: &Waiters<T>, account: &Account<L>, units: i128) {
        let Some((index, level)) = self.queue_of_account(account) else {
            return;
        };
        let clock = self.clock_of_newcomer(self.lane(index).group, level);
        let queue = &mut self.lanes[index as usize].levels[level];
        if queue.charge(waiters, &account.share, units, clock) {
            self.refresh(waiters, index, level);
        }
    }

    /// Returns the lane of an account, and the index of its queue there.
    fn queue_of_account(&self, account: &Account<L>) -> Option<(u32, usize)> {
        let &index = self.by_key.get(account.lane.as_ref()?)?;
        Some((index, self.queue_of(index, account.share.level)))
    }

    /// Returns `true` if a request that competes with the account's tenant waits, in its level. Slots used while no
    /// other request was waiting do not count against a tenant.
    pub(crate) fn is_contested(&self, account: &Account<L>) -> bool {
        let Some((index, level)) = self.queue_of_account(account) else {
            return false;
        };
        let group = self.lane(index).group;
        let pools = self.groups[group as usize].pools.iter();
        let competitors = pools.flat_map(|&pool| self.served_by(pool));
        // The group itself is added, because a group without pools is missing from every pool's list.
        std::iter::once(&self.groups[group as usize])
            .chain(competitors)
            .any(|group| group.waiting[level] > 0)
    }

    /// Takes over the debts of tenants from the old lanes, for those lanes that still have waiters.
    pub(crate) fn inherit_debts(&mut self, old: &Self) {
        if !old.has_fair {
            return;
        }
        for (_, lane) in &mut self.lanes {
            let Some(&old_lane) = old.by_key.get(&lane.key) else {
                continue;
            };
            let old_lane = &old.lanes[old_lane as usize];
            let levels = lane.levels.iter_mut().zip(&old_lane.levels).enumerate();
            for (level, (queue, old_queue)) in levels {
                let clock = |of: &super::Group| of.clocks.get(level).copied();
                let old_clock = clock(&old.groups[old_lane.group as usize]);
                let clock = clock(&self.groups[lane.group as usize]);
                if let (Some(old_clock), Some(clock)) = (old_clock, clock) {
                    queue.inherit_debts(old_queue, old_clock, clock);
                }
            }
        }
    }
}
