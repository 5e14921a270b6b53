//! Queries for a scheduler: the best waiter for a slot, and the waiters that were found busy.

use std::hash::Hash;

use super::lanes::{Head, NO_PUMP, NOT_BLOCKED, Scope};
use super::order::{ONLY_LANE, Order};
use super::{Common, WaitQueue};
use crate::admit::Tenant;
use crate::admit::capacity::{PoolId, PoolSet};
use crate::admit::nanos::{NEVER, Nanos};
use crate::admit::wait_queue::Newcomer;
use crate::admit::waiters::{NONE, WaiterMeta};

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Returns the best waiter in `scope` of those that pump number `pump` has not found busy.
    #[inline(always)]
    pub(crate) fn best(&self, scope: Scope, pump: u64) -> Option<Head> {
        let levels = match &self.order {
            Order::Levels(levels) => levels,
            Order::Lanes(order) => return order.lanes.best(&self.common.waiters, scope, pump),
        };
        let is_in_scope = match scope {
            Scope::Pool(pool) => levels.pools().contains(&pool),
            Scope::Claim(..) | Scope::All => true,
        };
        if !is_in_scope || levels.blocked_in == pump {
            return None;
        }
        let idx = self.common.next_by_level()?;
        let group = ONLY_LANE;
        Some(Head { idx, group })
    }

    /// Returns the waiter that goes next.
    #[inline]
    pub(super) fn head(&self) -> Option<u32> {
        match &self.order {
            Order::Levels(_) => self.common.next_by_level(),
            // The head counts even if its group is busy.
            Order::Lanes(order) => {
                let best = order
                    .lanes
                    .best(&self.common.waiters, Scope::All, NO_PUMP)?;
                Some(best.idx)
            }
        }
    }

    /// Returns `true` if a waiter goes before all others of its lane. A parked waiter only has to go before all others
    /// of its tenant and lane.
    pub(super) fn is_next_of_lane(&self, idx: u32) -> bool {
        let Common { waiters, .. } = &self.common;
        match &self.order {
            Order::Levels(_) => self.common.next_by_level() == Some(idx),
            Order::Lanes(order) => match waiters.meta(idx).is_parked {
                true => order.is_next_of_tenant(waiters, idx),
                false => {
                    let head = order.lanes.lane(waiters.meta(idx).lane).head;
                    head.is_some_and(|head| head.idx == idx)
                }
            },
        }
    }

    /// Returns the scope of a slot of `pool` that a request of `lane` has leased. It includes the lane's own group,
    /// even if the capacity has not named the pool for it.
    #[inline]
    pub(crate) fn claim(&self, pool: PoolId, lane: u32) -> Scope {
        match &self.order {
            Order::Levels(_) => Scope::Claim(pool, ONLY_LANE),
            Order::Lanes(order) => Scope::Claim(pool, order.lanes.lane(lane).group),
        }
    }

    /// Returns `true` if a newcomer to `lane` would go before `best`.
    pub(crate) fn newcomer_goes_before(
        &self,
        newcomer: Newcomer<'_>,
        lane: u32,
        best: Head,
    ) -> bool {
        let waiters = &self.common.waiters;
        match &self.order {
            Order::Levels(_) => {
                let best = waiters.meta(best.idx);
                (newcomer.level, newcomer.key) < (best.level, best.key())
            }
            Order::Lanes(order) => {
                let lanes = &order.lanes;
                lanes.newcomer_goes_before(waiters, newcomer, lane, best)
            }
        }
    }

    /// Returns the best waiters of other disciplines than that of `best`.
    pub(crate) fn heads_of_other_disciplines(&self, best: Head, pump: u64) -> Vec<Head> {
        match &self.order {
            Order::Levels(_) => Vec::new(),
            Order::Lanes(order) => order.lanes.heads_of_other_disciplines(best, pump),
        }
    }

    /// Records that pump number `pump` found a group busy.
    #[inline]
    pub(crate) fn block(&mut self, group: u32, pump: u64) {
        match &mut self.order {
            Order::Levels(levels) => levels.blocked_in = pump,
            Order::Lanes(order) => order.lanes.block(group, pump),
        }
    }

    /// Unblocks groups that were found busy just before a slot of `pool` was released, if their heads go before `best`.
    /// Returns `true` if there was such a group.
    #[inline]
    pub(crate) fn unblock_better(&mut self, pool: PoolId, best: Head, pump: u64) -> bool {
        match &mut self.order {
            // All waiters are in one group, so its head is `best` already.
            Order::Levels(_) => false,
            Order::Lanes(order) => {
                let lanes = &mut order.lanes;
                lanes.unblock_better(&self.common.waiters, pool, best, pump)
            }
        }
    }

    /// Records that a waiter of a group is served.
    #[inline]
    pub(crate) fn on_progress(&mut self, group: u32) {
        if let Order::Lanes(order) = &mut self.order {
            // The group may be unblocked again.
            order.lanes.groups[group as usize].looked_again_in = NOT_BLOCKED;
        }
    }

    /// Returns the lane of a waiter.
    #[inline]
    pub(crate) fn lane_of(&self, idx: u32) -> u32 {
        match self.common.waiters.meta(idx).lane {
            NONE => ONLY_LANE,
            lane => lane,
        }
    }

    /// Returns the pools that could serve a lane.
    #[inline]
    pub(crate) fn pools(&self, lane: u32) -> &[PoolId] {
        match &self.order {
            Order::Levels(levels) => levels.pools(),
            Order::Lanes(order) => &order.lanes.group_of(lane).pools,
        }
    }

    /// Returns the pools that could serve a waiter. The waiter may have been unlinked in the present event.
    #[inline]
    pub(crate) fn pools_of(&self, idx: u32) -> &[PoolId] {
        // Its lane is still open then, because lanes are only closed when another one is opened.
        self.pools(self.lane_of(idx))
    }

    /// Returns the lanes that have waiters, and the waiter that goes next in each.
    pub(crate) fn heads(&self) -> Vec<(L, &WaiterMeta)> {
        let Common { waiters, .. } = &self.common;
        match &self.order {
            Order::Levels(levels) => {
                let lane = levels.lane.as_ref().map(|lane| lane.key.clone());
                let head = self.common.next_by_level().map(|idx| waiters.meta(idx));
                lane.zip(head).into_iter().collect()
            }
            Order::Lanes(order) => {
                let lanes = order.lanes.lanes.iter();
                let heads = lanes.filter_map(|(_, lane)| {
                    let idx = lane.head?.idx;
                    Some((lane.key.clone(), waiters.meta(idx)))
                });
                heads.collect()
            }
        }
    }

    /// Returns the number of waiters that the same pools can serve, for each set of pools that has waiters.
    pub(crate) fn waiting_for(&self) -> Vec<(PoolSet, usize)> {
        match &self.order {
            Order::Levels(levels) => {
                let waiting = self.common.base.counters.waiting;
                let lane = levels.lane.iter().filter(|_| waiting > 0);
                lane.map(|lane| (lane.pools.clone(), waiting)).collect()
            }
            Order::Lanes(order) => {
                let groups = order.lanes.groups.iter().map(|(_, group)| group);
                let waiting = groups.map(|group| (group.pools.clone(), group.waiting.iter().sum()));
                waiting.filter(|&(_, waiting)| waiting > 0).collect()
            }
        }
    }

    /// Returns `true` if the head of any lane may have changed since the last call.
    pub(crate) fn take_heads_changed(&mut self) -> bool {
        match &mut self.order {
            Order::Levels(levels) => levels.take_head_changed(&self.common),
            Order::Lanes(order) => std::mem::take(&mut order.lanes.heads_changed),
        }
    }

    /// Returns the time at which the next waiter is promoted, or `NEVER` if all of them keep their levels.
    #[inline]
    pub(crate) fn next_promotion(&self) -> Nanos {
        match &self.order {
            Order::Levels(_) => NEVER,
            Order::Lanes(order) => order.next_promotion(),
        }
    }

    /// Returns `true` if the tenant may have one more slot.
    #[inline]
    pub(crate) fn may_lease(&self, tenant: &Tenant) -> bool {
        match &self.order {
            Order::Levels(_) => true,
            Order::Lanes(order) => order.may_lease(&self.common.base, tenant),
        }
    }

    /// Records that a request of this tenant has a slot from now on.
    #[inline]
    pub(crate) fn on_leased(&mut self, tenant: &Tenant) {
        if let Order::Lanes(order) = &mut self.order {
            order.on_leased(&mut self.common, tenant);
        }
    }

    /// Records that a request of this tenant gave its slot back. Returns `true` if a parked waiter entered its lane for
    /// it.
    pub(crate) fn on_tenant_released(&mut self, tenant: &Tenant) -> bool {
        self.common.base.leases.remove(tenant);
        match &mut self.order {
            // The limit was lifted after the slot was granted, so all waiters are in their lanes.
            Order::Levels(_) => false,
            Order::Lanes(order) => order.settle_tenant(&mut self.common, tenant, None),
        }
    }
}
