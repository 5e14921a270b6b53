//! The order in which the waiters of a full room, or of a full partition, lose their places.
//!
//! The lowest level goes first. If flows share the slots, they also share the places of their level, or the places of
//! all levels if levels have weights. The flow with the most waiters for its weight loses a place first, and gives up
//! its latest waiter. A flow that stays within its share of the places therefore keeps all of them. Shares are by
//! weight over the flows that wait, so while the others exceed theirs, one of the others has the most for its weight.

use std::cmp::{Ordering, Reverse};

use slab::Slab;

use crate::admit::flow::{FlowKey, FlowMap};
use crate::admit::heap::Heap;
use crate::admit::ordered_queue::{ArrivalKey, List, OrderedQueue};
use crate::admit::waiters::Waiters;
use crate::admit::{Discipline, Tenant, WaitingRoomConfig};

/// The waiters that share a number of places, in the order in which they lose them.
#[derive(Debug)]
pub(super) struct EvictionOrder {
    /// The discipline, which defines the waiters that form a flow.
    discipline: Discipline,
    /// The waiters by level, or all of them in one entry if levels have weights.
    levels: Box<[Level]>,
}

/// The waiters of one level.
#[derive(Debug)]
enum Level {
    /// The waiters of a level without shares, of which the latest goes first.
    Arrivals(OrderedQueue),
    Flows(Flows),
}

/// The flows of one level that have waiters.
#[derive(Debug)]
struct Flows {
    list: List,
    by_key: FlowMap<u32>,
    flows: Slab<Flow>,
    /// The flows by their claim, with the largest claim first.
    order: Heap<Reverse<Claim>>,
}

/// The waiters of one flow.
#[derive(Debug)]
struct Flow {
    level: u8,
    tenant: Tenant,
    weight: u32,
    queue: OrderedQueue,
}

/// The places of a flow in relation to its weight. Of equal claims, that of the flow with the latest waiter is larger.
#[derive(Debug, Clone, Copy)]
struct Claim {
    places: u32,
    weight: u32,
    latest: ArrivalKey,
}

impl Claim {
    /// Compares places by weight. The comparison is exact, because the products fit into 64 bits.
    fn cmp_places(&self, other: &Self) -> Ordering {
        let product = |places: u32, weight: u32| u64::from(places) * u64::from(weight);
        product(self.places, other.weight).cmp(&product(other.places, self.weight))
    }
}

impl Ord for Claim {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_latest = || self.latest.cmp(&other.latest);
        self.cmp_places(other).then_with(by_latest)
    }
}

impl PartialOrd for Claim {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Claim {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Claim {}

impl EvictionOrder {
    /// Creates an empty order for lanes of this discipline. `list` names the links that its queues use.
    pub(super) fn new(list: List, discipline: Discipline, config: &WaitingRoomConfig) -> Self {
        let has_flows = config.has_flows_by(discipline);
        let count = match has_flows && !config.level_weights.is_empty() {
            true => 1,
            false => config.levels.count(),
        };
        let level = |_| match has_flows {
            true => Level::Flows(Flows::new(list)),
            false => Level::Arrivals(OrderedQueue::new(list)),
        };
        Self {
            discipline,
            levels: (0..count).map(level).collect(),
        }
    }

    /// Creates an empty order for the room itself, or returns `None` without shares, because the order by level is
    /// enough then.
    pub(super) fn of_room(config: &WaitingRoomConfig) -> Option<Box<Self>> {
        let order = || Box::new(Self::new(List::Room, config.discipline, config));
        config.has_flows().then(order)
    }

    /// Adds a waiter at its level.
    pub(super) fn push<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        idx: u32,
        config: &WaitingRoomConfig,
    ) {
        let level = waiters.meta(idx).level;
        let nth = self.nth(level);
        match &mut self.levels[nth] {
            Level::Arrivals(queue) => {
                queue.push(waiters, idx);
            }
            Level::Flows(flows) => flows.push(waiters, idx, self.discipline, config),
        }
    }

    /// Removes a waiter from this level.
    pub(super) fn remove<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        idx: u32,
        level: u8,
        config: &WaitingRoomConfig,
    ) {
        let nth = self.nth(level);
        match &mut self.levels[nth] {
            Level::Arrivals(queue) => {
                queue.remove(waiters, idx);
            }
            Level::Flows(flows) => flows.remove(waiters, idx, level, self.discipline, config),
        }
    }

    /// Returns the waiter that loses its place first.
    pub(super) fn last(&self) -> Option<u32> {
        self.levels.iter().rev().find_map(Level::last)
    }

    /// Returns the waiter that loses its place to an arrival of this level and tenant. It has a lower level, or its
    /// flow has more places for its weight than the arrival's flow would have.
    pub(super) fn displaced_by(
        &self,
        level: u8,
        tenant: &Tenant,
        config: &WaitingRoomConfig,
    ) -> Option<u32> {
        let nth = self.nth(level);
        let lower = self.levels[nth + 1..].iter().rev().find_map(Level::last);
        if lower.is_some() {
            return lower;
        }
        match &self.levels[nth] {
            Level::Arrivals(_) => None, // among equals, the first to arrive stays
            Level::Flows(flows) => {
                flows.displaced_by(FlowKey::new(level, tenant, self.discipline, config), config)
            }
        }
    }

    /// Gives back the memory that the present waiters can do without.
    pub(super) fn trim<T>(&mut self, waiters: &Waiters<T>) {
        for level in &mut self.levels {
            if let Level::Flows(flows) = level {
                flows.trim(waiters);
            }
        }
    }

    /// Returns the index of a level's entry.
    fn nth(&self, level: u8) -> usize {
        usize::from(level).min(self.levels.len() - 1)
    }
}

impl Level {
    fn last(&self) -> Option<u32> {
        match self {
            Self::Arrivals(queue) => queue.tail(),
            Self::Flows(flows) => flows.last(),
        }
    }
}

impl Flows {
    fn new(list: List) -> Self {
        Self {
            list,
            by_key: FlowMap::new(),
            flows: Slab::new(),
            order: Heap::new(),
        }
    }

    fn push<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        idx: u32,
        discipline: Discipline,
        config: &WaitingRoomConfig,
    ) {
        let meta = waiters.meta(idx);
        let key = FlowKey::new(meta.level, meta.tenant(), discipline, config);
        let index = match self.by_key.get(key) {
            Some(&index) => index,
            None => {
                let index = self.flows.insert(Flow {
                    level: key.level,
                    tenant: key.tenant_name().clone(),
                    weight: key.weight(config),
                    queue: OrderedQueue::new(self.list),
                }) as u32;
                self.by_key.insert(key, index);
                index
            }
        };
        self.flows[index as usize].queue.push(waiters, idx);
        self.rank(waiters, index);
    }

    fn remove<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        idx: u32,
        level: u8,
        discipline: Discipline,
        config: &WaitingRoomConfig,
    ) {
        let key = FlowKey::new(level, waiters.meta(idx).tenant(), discipline, config);
        // The flow is always found, because every waiter that was pushed is in its flow.
        let Some(&index) = self.by_key.get(key) else {
            return;
        };
        self.flows[index as usize].queue.remove(waiters, idx);
        self.rank(waiters, index);
    }

    /// Ranks a flow anew after one of its waiters came or left, and drops it with its last waiter.
    fn rank<T>(&mut self, waiters: &Waiters<T>, index: u32) {
        let flow = &self.flows[index as usize];
        let Some(tail) = flow.queue.tail() else {
            self.order.remove(index);
            let flow = self.flows.remove(index as usize);
            let tenant = Some(&flow.tenant);
            self.by_key.remove(FlowKey {
                level: flow.level,
                tenant,
            });
            return;
        };
        let claim = Claim {
            places: flow.queue.len() as u32, // indices of waiters are as large
            weight: flow.weight,
            latest: waiters.meta(tail).key(),
        };
        self.order.set(index, Reverse(claim));
    }

    /// Returns the latest waiter of the flow with the largest claim.
    fn last(&self) -> Option<u32> {
        let &(_, index) = self.order.first()?;
        self.flows[index as usize].queue.tail()
    }

    fn displaced_by(&self, key: FlowKey<'_>, config: &WaitingRoomConfig) -> Option<u32> {
        let &(Reverse(largest), _) = self.order.first()?;
        let own = self.by_key.get(key);
        let places = own.map_or(0, |&index| self.flows[index as usize].queue.len());
        let arrival = Claim {
            places: places as u32 + 1,
            weight: key.weight(config),
            // The same waiter on both sides, because only places and weights are compared below.
            latest: largest.latest,
        };
        // The flow that gives up a waiter is always another one, because the arrival's own flow has more places with
        // the arrival than without.
        match largest.cmp_places(&arrival) {
            Ordering::Greater => self.last(),
            _ => None,
        }
    }

    fn trim<T>(&mut self, waiters: &Waiters<T>) {
        let old = std::mem::replace(self, Self::new(self.list));
        for (_, flow) in old.flows {
            let index = self.flows.insert(flow) as u32;
            let flow = &self.flows[index as usize];
            let (level, tenant) = (flow.level, Some(&flow.tenant));
            self.by_key.insert(FlowKey { level, tenant }, index);
            self.rank(waiters, index);
        }
    }
}
