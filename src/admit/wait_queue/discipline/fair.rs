//! The discipline `fair`, which shares service among tenants in proportion to their weights.
//!
//! The algorithm is self-clocked fair queueing. The waiters of each tenant form a flow, and each flow has a tag. The
//! tag is the virtual time at which the flow's head will have been served if the tenant gets exactly its share. The
//! smallest tag goes next, and virtual time moves to it. With equal costs and weights this is round robin. A tenant of
//! twice the weight is served twice as often, and a request of twice the cost counts as two.
//!
//! When the last waiter of a flow is served, virtual time is exactly the flow's tag. So a tenant without waiters needs
//! no state, unless it is charged more afterwards (see [`debts`](super::debts)).
//!
//! The same algorithm shares the slots among levels that have weights. [`FlowKey`] defines the waiters that form a
//! flow.

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

/// The virtual time per unit of cost at weight 1. It is large enough that a unit takes at least 1 even at the largest
/// `u32` weight.
const UNIT: u128 = 1 << 32;

/// The rate at which the requests of a flow use virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rate {
    weight: u128,
    /// `true` if a request counts by its cost; otherwise each request counts as one.
    by_cost: bool,
}

impl Rate {
    /// The rate of a waiter that is alone in its flow.
    pub(super) const ONE: Self = Self {
        weight: 1,
        by_cost: false,
    };

    /// Returns the virtual time that a request of this cost takes. The product fits, because the cost is a `u32`.
    #[inline]
    pub(super) fn price(self, cost: u128) -> u128 {
        let cost = if self.by_cost { cost } else { 1 };
        cost * UNIT / self.weight
    }
}

/// The waiters of one flow, which are usually those of one tenant.
#[derive(Debug)]
struct Flow {
    level: u8,
    tenant: Tenant,
    rate: Rate,
    queue: OrderedQueue,
    state: FlowState,
    /// The number of the flow's waiters that are skipped at present.
    skipped: usize,
}

impl Flow {
    /// Returns the key by which [`FairQueue`] finds the flow.
    fn id(&self) -> FlowKey<'_> {
        let (level, tenant) = (self.level, Some(&self.tenant));
        FlowKey { level, tenant }
    }

    /// Returns the virtual time at which a head of this cost will have been served.
    fn tag(&self, cost: u128) -> u128 {
        self.state.start + self.rate.price(cost)
    }

    /// Returns the dispatch key of the flow if its head has this cost.
    fn key(&self, cost: u128) -> DispatchKey {
        DispatchKey::of_tag(self.tag(cost), self.state.since)
    }
}

/// The waiters of one level of one lane, as flows that are ordered by the tags of their heads. If levels have weights,
/// this queue has the waiters of all levels.
#[derive(Debug)]
pub(crate) struct FairQueue {
    discipline: Discipline,
    /// The order within a flow, oldest or newest first.
    age_order: AgeOrder,
    by_key: FlowMap<u32>,
    flows: Slab<Flow>,
    /// The flows that have a waiter which is not skipped, by the key of their head.
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

    /// Adds a waiter to its flow, and returns `true` if the head may be another now. `state` is the flow's state if it
    /// has to /// be opened.
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
        // The flow's tag depends on the cost of its head, so only a new head moves the flow.
        self.reorder_if(is_head, waiters, index)
    }

    /// Removes a waiter that got a slot, and returns the virtual time at which its service ends. `dispatch` is the
    /// number of this dispatch.
    pub(super) fn serve<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, dispatch: u64) -> u128 {
        let meta = waiters.meta(idx);
        let flow = &mut self.flows[meta.flow as usize];
        // The service of the flow's next waiter begins at that time.
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

    /// Removes a waiter, and returns `true` if the head may be another now. If the flow gets a new head, its key
    /// changes with the cost of that head.
    pub(super) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        let index = waiters.meta(idx).flow;
        let was_head = self.flows[index as usize].queue.remove(waiters, idx);
        self.reorder_if(was_head, waiters, index)
    }

    pub(super) fn skip<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        // The count rises first, because a flow with a skipped waiter stays open.
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

    /// Returns the waiter of a flow that goes next.
    #[inline]
    fn head_of<T>(&self, flow: &Flow, waiters: &Waiters<T>) -> Option<u32> {
        self.age_order.head(&flow.queue, waiters)
    }

    /// Sets the order within all flows, oldest or newest first.
    pub(super) fn set_age_order<T>(&mut self, waiters: &Waiters<T>, age_order: AgeOrder) {
        self.age_order = age_order;
        let flows: Vec<_> = self.flows.iter().map(|(index, _)| index as u32).collect();
        // This is called only while all waiters are visible, so every flow stays open.
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
            // The newcomer would open a flow, which begins now or after its debt.
            let start = self.debts.start(key, state.start);
            let tag = start + self.rate(key, config).price(newcomer.cost);
            return Some(DispatchKey::of_tag(tag, state.since));
        };
        let flow = &self.flows[index as usize];
        // If the oldest go first, only a requeued request goes before others of its flow.
        let head = self.head_of(flow, waiters);
        let key = |key| self.age_order.key(key);
        let is_first = head.is_none_or(|head| key(newcomer.key) < key(waiters.meta(head).key()));
        is_first.then(|| flow.key(newcomer.cost))
    }

    /// Estimates the number of waiters that go before a newcomer whose turn is due at `tag`, except those of the flow
    /// `passed`. Every waiter is taken to cost as much as the head of its flow, and only the first [`MAX_LOOKS`] flows
    /// are looked at.
    pub(super) fn ahead<T>(&self, waiters: &Waiters<T>, tag: u128, passed: Option<u32>) -> usize {
        let due = |flow: &Flow| {
            let head = self.head_of(flow, waiters)?;
            let price = flow.rate.price(waiters.meta(head).cost());
            // The number of times that the flow is served before `tag`, if all its waiters cost as much as its head.
            let turns = tag.saturating_sub(flow.state.start) / price;
            // The minimum keeps the number in range before it is narrowed.
            Some(turns.min(flow.queue.len() as u128) as usize)
        };
        let looks = self.flows.len().min(MAX_LOOKS);
        let flows = self.flows.iter().take(looks);
        let flows = flows.filter(|&(index, _)| Some(index as u32) != passed);
        let ahead: usize = flows.filter_map(|(_, flow)| due(flow)).sum();
        // The flows that were not looked at are taken to have as many on average.
        ahead * self.flows.len() / looks.max(1)
    }

    /// Returns the newcomer's flow, if the newcomer goes before all of it.
    pub(super) fn passed(&self, newcomer: Newcomer<'_>, config: &WaitingRoomConfig) -> Option<u32> {
        let key = self.key_of_newcomer(newcomer, config);
        let own = self.by_key.get(key).copied();
        own.filter(|_| self.age_order.is_next(newcomer.key))
    }

    /// Returns the virtual time at which a newcomer's turn is due, behind the waiters of its flow. `state` is the state
    /// of its flow if that has to be opened.
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
        // The waiters before the newcomer are taken to cost as much as the newcomer.
        start + price * (before as u128 + 1)
    }

    /// Charges a tenant by moving its flow later, and returns `true` if the head may be another now. A tenant without a
    /// flow gets a debt, which delays the next flow that it opens.
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
        // The debt is recorded too, because all waiters of the flow may leave without being served.
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
            // All waiters of the flow may be skipped.
            let key = flow.key(waiters.meta(*line.first()?).cost());
            Some(FlowSnapshot::new(key, flow.rate, line))
        })
    }

    pub(super) fn has_debts(&self) -> bool {
        !self.debts.is_empty()
    }

    /// Rebuilds the flows in as little memory as they need. This is called only while all waiters are visible.
    pub(super) fn trim<T>(&mut self, waiters: &mut Waiters<T>) {
        let old = std::mem::replace(self, Self::new(self.discipline, self.age_order));
        self.debts = old.debts;
        self.debts.trim();
        for (_, flow) in old.flows {
            let index = self.flows.insert(flow) as u32;
            self.by_key.insert(self.flows[index as usize].id(), index);
            // The flows have new indices now, to which their waiters have to refer.
            for idx in self.flows[index as usize].queue.to_vec(waiters) {
                waiters.meta_mut(idx).flow = index;
            }
            self.reorder(waiters, index);
        }
    }

    /// Ranks a flow anew if its first waiter came or left, or if the newest go first, because then any waiter may be
    /// the head. Returns `true` if the head may be another now.
    #[inline]
    fn reorder_if<T>(&mut self, is_first: bool, waiters: &Waiters<T>, index: u32) -> bool {
        let may_change = is_first || self.age_order == AgeOrder::NewestFirst;
        if may_change {
            self.reorder(waiters, index);
        }
        may_change
    }

    /// Ranks a flow by its head, or closes it with its last waiter.
    fn reorder<T>(&mut self, waiters: &Waiters<T>, index: u32) {
        let flow = &self.flows[index as usize];
        match self.head_of(flow, waiters) {
            Some(head) => self.order.set(index, flow.key(waiters.meta(head).cost())),
            None => {
                self.order.remove(index);
                // A skipped waiter needs the flow's state when it is restored, so the flow stays open.
                if flow.skipped == 0 {
                    let flow = self.flows.remove(index as usize);
                    self.by_key.remove(flow.id());
                }
            }
        }
    }
}
