//! Queries for predictions and reports: the work ahead of a request, and the flows that share it.

use std::hash::Hash;

use super::lanes::{Backlog, Group};
use super::order::{ONLY_LANE, Order};
use super::{Common, Newcomer, WaitQueue};
use crate::admit::capacity::PoolId;
use crate::admit::{Account, Discipline, Tenant};

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Returns `true` if every request that waits for a slot of `pool` is patient, or there is none. Parked waiters do
    /// not wait for the pool's slots but for those of their tenant.
    #[inline]
    pub(crate) fn is_idle(&self, pool: PoolId) -> bool {
        match &self.order {
            Order::Levels(levels) => {
                self.common.base.counters.placed() == 0 || !levels.pools().contains(&pool)
            }
            Order::Lanes(order) => order.lanes.served_by(pool).all(Group::is_idle),
        }
    }

    /// Returns the work ahead of a newcomer to `lane` that the same pools can serve.
    pub(crate) fn backlog(&self, newcomer: Newcomer<'_>, lane: u32) -> Backlog {
        let Common { waiters, .. } = &self.common;
        match &self.order {
            Order::Levels(_) => Backlog {
                ahead: self.ahead_by_level(newcomer),
                flows: None,
            },
            Order::Lanes(order) => {
                let lanes = &order.lanes;
                lanes.backlog(waiters, newcomer, lane)
            }
        }
    }

    /// Returns the number of waiters in the group of `lane` that go before a newcomer which goes behind all of its
    /// level.
    pub(crate) fn ahead_in_group(&self, lane: u32, newcomer: Newcomer<'_>) -> usize {
        match &self.order {
            Order::Levels(_) => self.ahead_by_level(newcomer),
            Order::Lanes(order) => order.lanes.before(order.lanes.group_of(lane), newcomer),
        }
    }

    /// Returns the number of waiters that go before a newcomer, which goes behind all of its level.
    fn ahead_by_level(&self, newcomer: Newcomer<'_>) -> usize {
        self.common.by_level.count_above(newcomer.level)
    }

    /// Returns the number of waiters of other groups than that of `lane` on which a slot of `pool` would be spent
    /// first.
    pub(crate) fn ahead_of_others(&self, pool: PoolId, lane: u32, newcomer: Newcomer<'_>) -> f64 {
        match &self.order {
            Order::Levels(_) => 0.0,
            Order::Lanes(order) => order.lanes.ahead_of_others(pool, lane, newcomer),
        }
    }

    /// Returns a lane of each group in which requests wait.
    pub(crate) fn one_of_each_group(&self) -> Vec<u32> {
        match &self.order {
            Order::Levels(_) if self.common.base.counters.waiting == 0 => Vec::new(),
            Order::Levels(_) => vec![ONLY_LANE],
            Order::Lanes(order) => {
                let groups = order.lanes.groups.iter().map(|(_, group)| group);
                let occupied = groups.filter(|group| group.order.first().is_some());
                let first = |group: &Group| group.lanes.iter().next().map(|(_, &lane)| lane);
                occupied.filter_map(first).collect()
            }
        }
    }

    /// Returns the discipline of a waiter's lane if its waiters are in flows. The waiter may have been unlinked in the
    /// present event.
    #[inline]
    pub(crate) fn flows_of(&self, idx: u32) -> Option<Discipline> {
        match &self.order {
            Order::Levels(_) => None,
            Order::Lanes(order) => {
                let lane = self.common.waiters.meta(idx).lane;
                order.lanes.group_of(lane).flows()
            }
        }
    }

    /// Returns `true` if a newcomer to the lane would have to wait for others of its tenant.
    #[inline]
    pub(crate) fn waits_for_its_tenant(&self, tenant: &Tenant, lane: u32) -> bool {
        match &self.order {
            Order::Levels(_) => false,
            Order::Lanes(order) => order.waits_for_its_tenant(&self.common.base, tenant, lane),
        }
    }

    /// Returns `true` if tenants have shares in any lane, so that charges have an effect.
    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        match &self.order {
            Order::Levels(_) => false,
            Order::Lanes(order) => order.lanes.has_fair,
        }
    }

    /// Charges a tenant this many units of cost, in the lane and level in which it was served. Negative units are a
    /// repayment. Returns `true` if tenants take turns in that lane.
    pub(crate) fn charge(&mut self, account: &Account<L>, units: i128) -> bool {
        let Common { waiters, .. } = &self.common;
        let Order::Lanes(order) = &mut self.order else {
            return false;
        };
        order.lanes.charge(waiters, account, units);
        account.lane.as_ref().is_some_and(|lane| {
            let open = order.lanes.by_key.get(lane);
            // A lane that is not open counts as one of the room's discipline.
            let discipline = open.map_or(order.lanes.discipline, |&lane| {
                order.lanes.group_of(lane).discipline
            });
            discipline == Discipline::Fair
        })
    }
    /// Returns `true` if a request waits that competes with the account's tenant for the same slots.
    pub(crate) fn is_contested(&self, account: &Account<L>) -> bool {
        match &self.order {
            Order::Levels(_) => false,
            Order::Lanes(order) => order.lanes.is_contested(account),
        }
    }

    /// Returns the key of an open lane in which tenants have shares.
    pub(crate) fn fair_lane(&self, lane: u32) -> Option<&L> {
        match &self.order {
            Order::Levels(_) => None,
            Order::Lanes(order) => {
                let is_fair = order.lanes.group_of(lane).discipline == Discipline::Fair;
                is_fair.then(|| &order.lanes.lane(lane).key)
            }
        }
    }
}
