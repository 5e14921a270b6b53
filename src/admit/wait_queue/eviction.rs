//! The order in which the waiters of a full room, or of a full partition, lose their places.
//!
//! The lowest level goes first. If flows share the slots, they also share the places of their level, or the places of
//! all levels if levels have weights. The flow with the most waiters for its weight loses a place first, and gives up
//! its latest waiter. A flow that stays within its share of the places therefore keeps all of them. Shares are by
//! weight over the flows that wait, so while the others exceed theirs, one of the others has the most for its weight.
//! Without shares, all waiters of a level are one flow.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use crate::admit::flow::{FlowTable, FlowWeights};
use crate::admit::ordered_queue::{ArrivalKey, List, OrderedQueue};
use crate::admit::room_base::RoomBase;
use crate::admit::waiters::Waiters;
use crate::admit::{Discipline, Tenant};

/// The waiters that share a number of places, in the order in which they lose them.
#[derive(Debug)]
pub(super) struct EvictionOrder {
    /// The links that the queues use.
    list: List,
    /// The discipline, which defines the waiters that form a flow.
    discipline: Discipline,
    weights: Arc<FlowWeights>,
    /// The flows by level, or all of them in one entry if levels have weights. Those with the largest claim are first.
    levels: Box<[FlowTable<Reverse<Claim>, Flow>]>,
    /// The number of waiters.
    len: usize,
}

/// The waiters of one flow.
#[derive(Debug)]
struct Flow {
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

impl Flow {
    fn claim<T>(&self, waiters: &Waiters<T>) -> Option<Reverse<Claim>> {
        Some(Reverse(Claim {
            places: self.queue.len() as u32, // indices of waiters are as large
            weight: self.weight,
            latest: waiters.meta(self.queue.tail()?).key(),
        }))
    }
}

impl EvictionOrder {
    /// Creates an empty order for lanes of this discipline. `list` names the links that its queues use.
    pub(super) fn new(list: List, discipline: Discipline, base: &RoomBase) -> Self {
        let count = match discipline {
            Discipline::Fifo | Discipline::Fair if base.weights.have_levels() => 1,
            _ => base.config.levels.count(),
        };
        Self {
            list,
            discipline,
            weights: Arc::clone(&base.weights),
            levels: (0..count).map(|_| FlowTable::default()).collect(),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a waiter at its level.
    pub(super) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        self.len += 1;
        let meta = waiters.meta(idx);
        let key = self.weights.key(meta.level, meta.tenant(), self.discipline);
        let nth = self.nth(meta.level);
        let flows = &mut self.levels[nth];
        let index = flows.find(key).unwrap_or_else(|| {
            let (weight, queue) = (self.weights.of(key), OrderedQueue::new(self.list));
            flows.insert(key, Flow { weight, queue })
        });
        flows[index].queue.push(waiters, idx);
        rank(flows, waiters, index);
    }

    pub(super) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        let meta = waiters.meta(idx);
        let nth = self.nth(meta.level);
        let flows = &mut self.levels[nth];
        let key = self.weights.key(meta.level, meta.tenant(), self.discipline);
        // The flow is always found, because every waiter that was pushed is in its flow.
        if let Some(index) = flows.find(key) {
            self.len -= 1;
            flows[index].queue.remove(waiters, idx);
            rank(flows, waiters, index);
        }
    }

    /// Returns the waiter that loses its place first.
    pub(super) fn last(&self) -> Option<u32> {
        self.levels.iter().rev().find_map(last)
    }

    /// Returns the waiter that loses its place to an arrival of this level and tenant. It has a lower level, or its
    /// flow has more places for its weight than the arrival's flow would have.
    pub(super) fn displaced_by(&self, level: u8, tenant: &Tenant) -> Option<u32> {
        let nth = self.nth(level);
        let lower = self.levels[nth + 1..].iter().rev().find_map(last);
        if lower.is_some() {
            return lower;
        }
        let flows = &self.levels[nth];
        let (Reverse(largest), _) = flows.first()?;
        let key = self.weights.key(level, tenant, self.discipline);
        let places = flows.find(key).map_or(0, |index| flows[index].queue.len());
        let arrival = Claim {
            places: places as u32 + 1,
            weight: self.weights.of(key),
            // The same waiter on both sides, because only places and weights are compared below.
            latest: largest.latest,
        };
        // The flow that gives up a waiter is always another one, because the arrival's own flow has more places with
        // the arrival than without. So in a level of one flow, the first to arrive stays.
        last(flows).filter(|_| largest.cmp_places(&arrival).is_gt())
    }

    /// Gives back the memory that the present waiters can do without.
    pub(super) fn trim<T>(&mut self, waiters: &Waiters<T>) {
        for flows in &mut self.levels {
            flows.trim(|_, flow| flow.claim(waiters));
        }
    }

    /// Returns the index of a level's entry.
    fn nth(&self, level: u8) -> usize {
        usize::from(level).min(self.levels.len() - 1)
    }
}

/// Ranks a flow anew after one of its waiters came or left, and drops it with its last waiter.
fn rank<T>(flows: &mut FlowTable<Reverse<Claim>, Flow>, waiters: &Waiters<T>, index: u32) {
    match flows[index].claim(waiters) {
        Some(claim) => flows.set_rank(index, claim),
        None => flows.remove(index),
    }
}

/// Returns the latest waiter of the flow with the largest claim.
fn last(flows: &FlowTable<Reverse<Claim>, Flow>) -> Option<u32> {
    let (_, index) = flows.first()?;
    flows[index].queue.tail()
}
