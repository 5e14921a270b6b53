//! The discipline `fair`: service is shared among tenants, in proportion to their weights.
//!
//! This is self-clocked fair queueing. Each tenant's waiters form a flow, and each flow has a tag: the virtual time at
//! which its head will have been served if its tenant gets exactly its share. The smallest tag goes next, and virtual
//! time moves to it. With equal costs and weights this is round robin; a tenant of twice the weight is served twice as
//! often, and a request of twice the cost counts as two.
//!
//! When a flow's last waiter is served, virtual time is exactly the flow's tag. So nothing needs to be kept of tenants
//! that do not wait, unless they are charged more afterwards: see [`debts`](super::debts).
//!
//! The same machinery shares the slots among levels that have weights: [`FlowKey`] says what is a flow.

use slab::Slab;

use super::debts::Debts;
use super::{DispatchKey, FlowSnapshot, FlowState, Newcomer};
use crate::admit::account::Share;
use crate::admit::age_order::AgeOrder;
use crate::admit::flow::{FlowKey, FlowMap};
use crate::admit::heap::Heap;
use crate::admit::ordered_queue::{List, OrderedQueue};
use crate::admit::wait_queue::lanes::MAX_LOOKS;
use crate::admit::waiters::{WaiterMeta, Waiters};
use crate::admit::{Discipline, Priority, Tenant, WaitingRoomConfig};

/// Virtual time per unit of cost at weight 1. Divided by any `u32` weight it is at least 1.
const UNIT: u128 = 1 << 32;

/// The virtual time that a flow's requests take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rate {
    weight: u128,
    /// Otherwise each request counts as one.
    by_cost: bool,
}

impl Rate {
    /// That of a waiter which is in no flow with others.
    pub(super) const ONE: Self = Self {
        weight: 1,
        by_cost: false,
    };

    /// The virtual time that a request of this cost takes. Does not overflow: the cost is a `u32`.
    #[inline]
    pub(super) fn price(self, cost: u128) -> u128 {
        let cost = if self.by_cost { cost } else { 1 };
        cost * UNIT / self.weight
    }
}

/// The waiters of one flow: of one tenant, say.
#[derive(Debug)]
struct Flow {
    level: u8,
    tenant: Tenant,
    rate: Rate,
    queue: OrderedQueue,
    state: FlowState,
    /// How many of its waiters are skipped.
    skipped: usize,
}

impl Flow {
    /// What it is found by.
    fn id(&self) -> FlowKey<'_> {
        let (level, tenant) = (self.level, Some(&self.tenant));
        FlowKey { level, tenant }
    }

    /// The virtual time at which a head of this cost will have been served.
    fn tag(&self, cost: u128) -> u128 {
        self.state.start + self.rate.price(cost)
    }

    /// The key of a head of this cost.
    fn key(&self, cost: u128) -> DispatchKey {
        DispatchKey::of_tag(self.tag(cost), self.state.since)
    }
}

/// Waiters of one level of one lane, or of all levels if those have weights: flows, ordered by the tag of their heads.
#[derive(Debug)]
pub(crate) struct FairQueue {
    discipline: Discipline,
    /// Which waiter of a flow goes next.
    age_order: AgeOrder,
    by_key: FlowMap<u32>,
    flows: Slab<Flow>,
    /// The flows with waiters that are not skipped, by key.
    order: Heap<DispatchKey>,
    debts: Debts,
}

impl FairQueue {
    pub(super) fn new(discipline: Discipline, age_order: AgeOrder) -> Self {
        Self {
            discipline,
            age_order,
            by_key: FlowMap::new(),
            flows: Slab::new(),
            order: Heap::new(),
            debts: Debts::default(),
        }
    }

    #[inline]
    fn key_of<'a>(&self, meta: &'a WaiterMeta, config: &WaitingRoomConfig) -> FlowKey<'a> {
        FlowKey::new(meta.level, meta.tenant(), self.discipline, config)
    }

    #[inline]
    fn key_of_newcomer<'a>(
        &self,
        newcomer: Newcomer<'a>,
        config: &WaitingRoomConfig,
    ) -> FlowKey<'a> {
        FlowKey::new(newcomer.level, newcomer.tenant, self.discipline, config)
    }

    #[inline]
    fn rate(&self, key: FlowKey<'_>, config: &WaitingRoomConfig) -> Rate {
        Rate {
            weight: key.weight(config).into(),
            by_cost: self.discipline == Discipline::Fair,
        }
    }

    pub(super) fn push<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        idx: u32,
        state: FlowState,
        config: &WaitingRoomConfig,
    ) -> bool {
        let key = self.key_of(waiters.meta(idx), config);
        let index = match self.by_key.get(key) {
            Some(&index) => index,
            None => {
                let start = self.debts.start(key, state.start);
                let flow = Flow {
                    level: key.level,
                    tenant: key.tenant_name().clone(),
                    rate: self.rate(key, config),
                    queue: OrderedQueue::new(List::Lane),
                    state: FlowState { start, ..state },
                    skipped: 0,
                };
                let index = self.flows.insert(flow) as u32;
                self.by_key.insert(key, index);
                index
            }
        };
        waiters.meta_mut(idx).flow = index;
        let is_head = self.flows[index as usize].queue.push(waiters, idx);
        // The flow's tag depends on the cost of its head.
        self.reorder_if(is_head, waiters, index)
    }

    /// Removes a waiter that got a slot, and returns the virtual time at which its service ends.
    pub(super) fn serve<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, dispatch: u64) -> u128 {
        let meta = waiters.meta(idx);
        let flow = &mut self.flows[meta.flow as usize];
        // The next waiter of the flow is served from then on.
        let start = flow.tag(meta.cost());
        flow.state = FlowState {
            start,
            since: dispatch,
        };
        let index = meta.flow;
        flow.queue.remove(waiters, idx);
        self.reorder(waiters, index);
        start
    }

    /// Removes a waiter, and says whether the head may be another now: the key of its flow depends on the cost of the
    /// flow's head.
    pub(super) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        let index = waiters.meta(idx).flow;
        let was_head = self.flows[index as usize].queue.remove(waiters, idx);
        self.reorder_if(was_head, waiters, index)
    }

    pub(super) fn skip<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        // First: a flow with a skipped waiter is not closed.
        self.flows[waiters.meta(idx).flow as usize].skipped += 1;
        self.remove(waiters, idx)
    }

    pub(super) fn restore<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        let index = waiters.meta(idx).flow;
        let flow = &mut self.flows[index as usize];
        flow.skipped -= 1;
        let is_head = flow.queue.push(waiters, idx);
        self.reorder_if(is_head, waiters, index)
    }

    pub(super) fn head<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        let &(_, flow) = self.order.first()?;
        self.head_of(&self.flows[flow as usize], waiters)
    }

    /// The waiter of a flow that goes next.
    #[inline]
    fn head_of<T>(&self, flow: &Flow, waiters: &Waiters<T>) -> Option<u32> {
        self.age_order.head(&flow.queue, waiters)
    }

    /// Sets which waiter of each flow goes next.
    pub(super) fn set_age_order<T>(&mut self, waiters: &Waiters<T>, age_order: AgeOrder) {
        self.age_order = age_order;
        let flows: Vec<_> = self.flows.iter().map(|(index, _)| index as u32).collect();
        // No waiter is skipped at that time, so no flow closes.
        flows
            .into_iter()
            .for_each(|index| self.reorder(waiters, index));
    }

    pub(super) fn head_key(&self) -> DispatchKey {
        self.order
            .first()
            .map_or(DispatchKey::LAST, |&(key, _)| key)
    }

    pub(super) fn newcomer_key<T>(
        &self,
        waiters: &Waiters<T>,
        newcomer: Newcomer<'_>,
        state: FlowState,
        config: &WaitingRoomConfig,
    ) -> Option<DispatchKey> {
        let key = self.key_of_newcomer(newcomer, config);
        let Some(&index) = self.by_key.get(key) else {
            // A flow of its own, which begins now.
            let start = self.debts.start(key, state.start);
            let tag = start + self.rate(key, config).price(newcomer.cost);
            return Some(DispatchKey::of_tag(tag, state.since));
        };
        let flow = &self.flows[index as usize];
        // Oldest first, only a requeued request goes before others of its flow.
        let head = self.head_of(flow, waiters);
        let key = |key| self.age_order.key(key);
        let is_first = head.is_none_or(|head| key(newcomer.key) < key(waiters.meta(head).key()));
        is_first.then(|| flow.key(newcomer.cost))
    }

    /// About how many waiters go before a newcomer whose turn is due at `tag`: by the prices of the heads, and of many flows
    /// by the first ones.
    pub(super) fn ahead<T>(&self, waiters: &Waiters<T>, tag: u128, passed: Option<u32>) -> usize {
        let due = |flow: &Flow| {
            let head = self.head_of(flow, waiters)?;
            let price = flow.rate.price(waiters.meta(head).cost());
            // How often the flow is served before `tag`, if all its waiters cost as much as its head.
            let turns = tag.saturating_sub(flow.state.start) / price;
            // At most the queue's length, before it is narrowed.
            Some(turns.min(flow.queue.len() as u128) as usize)
        };
        let looks = self.flows.len().min(MAX_LOOKS);
        let flows = self.flows.iter().take(looks);
        let flows = flows.filter(|&(index, _)| Some(index as u32) != passed);
        let ahead: usize = flows.filter_map(|(_, flow)| due(flow)).sum();
        // As many per flow among those that were not looked at.
        ahead * self.flows.len() / looks.max(1)
    }

    /// The newcomer's flow, if the newcomer goes before all of it.
    pub(super) fn passed(&self, newcomer: Newcomer<'_>, config: &WaitingRoomConfig) -> Option<u32> {
        let key = self.key_of_newcomer(newcomer, config);
        let own = self.by_key.get(key).copied();
        own.filter(|_| self.age_order.is_next(newcomer.key))
    }

    /// The virtual time at which a newcomer's turn is due, behind the waiters of its flow; `state` as in `push`.
    pub(super) fn newcomer_tag(
        &self,
        newcomer: Newcomer<'_>,
        state: FlowState,
        config: &WaitingRoomConfig,
    ) -> u128 {
        let key = self.key_of_newcomer(newcomer, config);
        let own = self.by_key.get(key);
        let own = own.map(|&index| &self.flows[index as usize]);
        let price = self.rate(key, config).price(newcomer.cost);
        let before = |own: &Flow| match self.age_order.is_next(newcomer.key) {
            true => 0,
            false => own.queue.len(),
        };
        let (start, before) = match own {
            Some(own) => (own.state.start, before(own)),
            None => (self.debts.start(key, state.start), 0),
        };
        // Those before it are taken to cost what it costs.
        start + price * (before as u128 + 1)
    }

    /// Moves a tenant's flow later; if it has none, the next one that begins. Says whether the head may be another now.
    pub(super) fn charge<T>(
        &mut self,
        waiters: &Waiters<T>,
        share: &Share,
        cost: u32,
        clock: u128,
        config: &WaitingRoomConfig,
    ) -> bool {
        if self.discipline != Discipline::Fair {
            return false; // each request counts as one
        }
        let level = config.levels.clamp(Priority(share.level)).0;
        let key = FlowKey::new(level, &share.tenant, self.discipline, config);
        let price = self.rate(key, config).price(cost.into());
        let Some(&index) = self.by_key.get(key) else {
            let start = self.debts.start(key, clock) + price;
            self.debts.set(key, start, clock);
            return false;
        };
        let flow = &mut self.flows[index as usize];
        flow.state.start += price;
        // Its waiters may all leave without being served.
        self.debts.set(key, flow.state.start, clock);
        self.reorder(waiters, index);
        true
    }

    pub(super) fn inherit_debts(&mut self, old: &Self, old_clock: u128, clock: u128) {
        self.debts.inherit(&old.debts, old_clock, clock);
    }

    pub(super) fn flow_state<T>(&self, waiters: &Waiters<T>, idx: u32) -> FlowState {
        self.flows[waiters.meta(idx).flow as usize].state
    }

    pub(super) fn snapshot<T>(&self, waiters: &Waiters<T>) -> impl Iterator<Item = FlowSnapshot> {
        self.flows.iter().filter_map(|(_, flow)| {
            let line = self.age_order.to_vec(&flow.queue, waiters);
            // A flow may have nothing but skipped waiters.
            let key = flow.key(waiters.meta(*line.first()?).cost());
            Some(FlowSnapshot::new(key, flow.rate, line))
        })
    }

    pub(super) fn has_debts(&self) -> bool {
        !self.debts.is_empty()
    }

    /// Rebuilds the flows in as much memory as they need. No waiter is skipped at that time.
    pub(super) fn trim<T>(&mut self, waiters: &mut Waiters<T>) {
        let old = std::mem::replace(self, Self::new(self.discipline, self.age_order));
        self.debts = old.debts;
        self.debts.trim();
        for (_, flow) in old.flows {
            let index = self.flows.insert(flow) as u32;
            self.by_key.insert(self.flows[index as usize].id(), index);
            // Flows have new indices.
            for idx in self.flows[index as usize].queue.to_vec(waiters) {
                waiters.meta_mut(idx).flow = index;
            }
            self.reorder(waiters, index);
        }
    }

    /// Ranks a flow anew if its first waiter came or left, or the head may be any. Says whether the head may be another now.
    #[inline]
    fn reorder_if<T>(&mut self, is_first: bool, waiters: &Waiters<T>, index: u32) -> bool {
        let may_change = is_first || self.age_order == AgeOrder::NewestFirst;
        if may_change {
            self.reorder(waiters, index);
        }
        may_change
    }

    /// Ranks a flow by its head, or closes it if none of its waiters is left.
    fn reorder<T>(&mut self, waiters: &Waiters<T>, index: u32) {
        let flow = &self.flows[index as usize];
        match self.head_of(flow, waiters) {
            Some(head) => self.order.set(index, flow.key(waiters.meta(head).cost())),
            None => {
                self.order.remove(index);
                // A skipped waiter needs the flow's state when it is restored.
                if flow.skipped == 0 {
                    let flow = self.flows.remove(index as usize);
                    self.by_key.remove(flow.id());
                }
            }
        }
    }
}
