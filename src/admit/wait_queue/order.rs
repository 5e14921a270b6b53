//! The two orders of waiters, and the choice between them.
//!
//! A queue keeps its waiters [by level](crate::admit::by_level::ByLevel) in any case, to find the last waiter of the
//! lowest level and the oldest waiter. If all waiters ask for one lane that is first come, first served, that order is
//! enough. This is the order `Levels`. A queue changes to the order `Lanes`, which costs several times as much, when a
//! request of another lane has to wait beside them, and back when it is empty.

use std::hash::Hash;

use super::discipline::FlowState;
use super::lane_order::LaneOrder;
use super::lanes::{NOT_BLOCKED, hash_of};
use super::{Common, Relink, WaitQueue};
use crate::admit::capacity::{Partition, PoolId, PoolSet};
use crate::admit::nanos::Nanos;
use crate::admit::waiters::WaiterId;
use crate::admit::{Discipline, WaitingRoomConfig};

/// The order of the waiters of a queue.
pub(super) enum Order<L> {
    /// The order of a single lane, in which each level is first come, first served.
    Levels(Levels<L>),
    /// The order of every other queue. It is boxed because it is much larger.
    Lanes(Box<LaneOrder<L>>),
}

/// The state of the order `Levels`, in addition to the levels of the waiters.
pub(super) struct Levels<L> {
    /// The lane that all waiters ask for, or `None` before the first one.
    pub(super) lane: Option<OnlyLane<L>>,
    /// The number of the pump that last found the lane busy.
    pub(super) blocked_in: u64,
    /// The head at the last call of [`WaitQueue::take_heads_changed`], or `None` before the first call. The inner
    /// `None` means that the queue was empty then.
    pub(super) told: Option<Option<Told>>,
}

/// The lane of all waiters.
pub(super) struct OnlyLane<L> {
    pub(super) key: L,
    /// The hash that identifies the lane in the service times.
    pub(super) hash: u32,
    pub(super) pools: PoolSet,
    pub(super) partition: Partition,
}

/// The head of the queue with its level and its arrival.
pub(super) type Told = (WaiterId, u8, Nanos);

/// The index of the only lane and of its group.
pub(super) const ONLY_LANE: u32 = 0;

impl<L> Levels<L> {
    pub(super) fn of(lane: Option<OnlyLane<L>>) -> Self {
        Self {
            lane,
            blocked_in: NOT_BLOCKED,
            told: None,
        }
    }

    /// Returns the pools that could serve the waiters.
    #[inline]
    pub(super) fn pools(&self) -> &[PoolId] {
        self.lane.as_ref().map_or(&[], |lane| &lane.pools)
    }
}

/// Returns `true` if waiters of one lane may have another order than that of their levels.
pub(super) fn needs_lanes(config: &WaitingRoomConfig, has_slots: bool) -> bool {
    config.discipline != Discipline::Fifo
        || config.promote_after.is_some()
        || !config.level_weights.is_empty()
        || config.bounds_tenants()
        || (has_slots && config.limits_slots())
}

/// Returns `true` if a lane in this partition needs an order of its own.
pub(super) fn has_own_rules(partition: Partition) -> bool {
    partition.max_size.is_some()
        || partition
            .discipline
            .is_some_and(|own| own != Discipline::Fifo)
}

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Creates the order that these waiters need, without linking them yet.
    pub(super) fn order_for(&self, relinks: &[Relink<L>]) -> Order<L> {
        let base = &self.common.base;
        let mut others = relinks.iter().skip(1);
        let first = relinks.first();
        if needs_lanes(&base.config, base.has_slots)
            || first.is_some_and(|first| {
                has_own_rules(first.partition) || others.any(|other| other.key != first.key)
            })
        {
            return Order::Lanes(self.new_lanes());
        }
        let lane = first.map(|first| OnlyLane {
            key: first.key.clone(),
            hash: self.hash_of(&first.key),
            pools: first.pools.clone(),
            partition: first.partition,
        });
        Order::Levels(Levels::of(lane))
    }

    /// Creates lanes without waiters. Their clocks continue from those of the present lanes.
    fn new_lanes(&self) -> Box<LaneOrder<L>> {
        let old = match &self.order {
            Order::Levels(_) => None,
            Order::Lanes(order) => Some(&order.lanes),
        };
        Box::new(LaneOrder::new(&self.common.base, old, &self.lane_hasher))
    }

    /// Returns the lane with this key. Calls `ask` for its pools and its partition if the lane is unknown.
    #[inline]
    pub(crate) fn lane<E>(
        &mut self,
        key: L,
        ask: impl FnOnce(&L) -> Result<(PoolSet, Partition), E>,
    ) -> Result<u32, E> {
        match &mut self.order {
            Order::Levels(levels) => match &levels.lane {
                Some(only) if only.key == key => Ok(ONLY_LANE),
                _ => self.another_lane(key, ask),
            },
            Order::Lanes(order) => order.lanes.find_or_open(key, ask),
        }
    }

    /// Makes this lane the only one if the queue is empty. Otherwise changes the order to `Lanes` and opens the lane
    /// there.
    #[cold]
    fn another_lane<E>(
        &mut self,
        key: L,
        ask: impl FnOnce(&L) -> Result<(PoolSet, Partition), E>,
    ) -> Result<u32, E> {
        let (pools, partition) = ask(&key)?;
        if self.common.base.counters.waiting == 0 && !has_own_rules(partition) {
            let hash = self.hash_of(&key);
            let lane = OnlyLane {
                key,
                hash,
                pools,
                partition,
            };
            self.order = Order::Levels(Levels::of(Some(lane)));
            return Ok(ONLY_LANE);
        }
        let relinks = self.relinks();
        let order = Order::Lanes(self.new_lanes());
        self.rebuild_as(order, relinks, self.common.base.clock.now);
        match &mut self.order {
            Order::Lanes(order) => order.lanes.find_or_open(key, |_| Ok((pools, partition))),
            Order::Levels(_) => unreachable!("it was rebuilt"),
        }
    }

    /// Returns the hash that identifies the lane with this key in the service times. The lane need not be open.
    pub(crate) fn hash_of(&self, key: &L) -> u32 {
        hash_of(&self.lane_hasher, key)
    }

    /// Returns the hash that identifies an open lane in the service times.
    #[inline]
    pub(crate) fn hash(&self, lane: u32) -> u32 {
        match &self.order {
            Order::Levels(levels) => levels.lane.as_ref().map_or(0, |lane| lane.hash),
            Order::Lanes(order) => order.lanes.lane(lane).hash,
        }
    }

    /// Links a waiter in its lane, and in every other index from which it has to be found. `flow` is the state of its
    /// tenant's flow, if it had one before a reconfiguration.
    #[inline]
    pub(super) fn link(&mut self, idx: u32, lane: u32, flow: Option<FlowState>, now: Nanos) {
        match &mut self.order {
            Order::Levels(_) => self.common.link(idx),
            Order::Lanes(order) => order.link(&mut self.common, idx, lane, flow, now),
        }
    }

    /// Ends a wait, and keeps the waiter's entry. If the waiter `is_served`, it leaves with a slot.
    #[inline]
    pub(crate) fn unlink(&mut self, idx: u32, is_served: bool) {
        self.common.waiters.meta_mut(idx).waits = false;
        match &mut self.order {
            Order::Levels(_) => self.common.unlink(idx),
            Order::Lanes(order) => order.unlink(&mut self.common, idx, is_served),
        }
    }
}

impl<L> Levels<L> {
    /// Returns `true` if the head has changed since the last call.
    pub(super) fn take_head_changed<T>(&mut self, common: &Common<T>) -> bool {
        let head = common.next_by_level().map(|idx| {
            let meta = common.waiters.meta(idx);
            (common.waiters.id(idx), meta.level, meta.limits.arrival)
        });
        self.told.replace(head) != Some(head)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::admit::{Priority, Ticket};

    /// Returns `true` if a queue has the order `Lanes` while two lanes wait, and `true` if it still has it afterwards.
    fn has_lanes(config: WaitingRoomConfig) -> [bool; 2] {
        let now = Instant::now();
        let mut queue = WaitQueue::new(config, now);
        let ticket = || Ticket::new(Priority(0), now);
        let ids = ["a", "b"].map(|lane| queue.push(ticket(), lane, now, |_| ()).unwrap().id);
        let has_lanes = |queue: &WaitQueue<_, _>| matches!(queue.order, Order::Lanes(_));
        let before = has_lanes(&queue);
        for id in ids {
            queue.pop(id);
        }
        [before, has_lanes(&queue)]
    }

    #[test]
    fn an_empty_queue_returns_to_levels_if_they_suffice() {
        let config = WaitingRoomConfig::default();
        assert_eq!(has_lanes(config.clone()), [true, false]);
        assert_eq!(has_lanes(config.discipline(Discipline::Fair)), [true, true]);
    }

    #[test]
    fn a_reservation_that_was_never_made_ends_without_effect() {
        let mut queue = WaitQueue::<(), ()>::new(WaitingRoomConfig::default(), Instant::now());
        queue.unreserve();
        assert!(queue.has_room());
    }
}
