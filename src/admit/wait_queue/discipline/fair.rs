//! The discipline `fair`: service is shared among tenants, in proportion to their weights.
//!
//! This is self-clocked fair queueing. Each tenant's waiters form a flow, and each flow has a tag: the virtual time at
//! which its head will have been served if its tenant gets exactly its share. The smallest tag goes next, and virtual
//! time moves to it. With equal costs and weights this is round robin; a tenant of twice the weight is served twice as
//! often, and a request of twice the cost counts as two.
//!
//! When a flow's last waiter is served, virtual time is exactly the flow's tag. So nothing needs to be kept of tenants
//! that do not wait, unless they are charged more afterwards: see [`debts`](super::debts).

use std::collections::HashMap;

use slab::Slab;

use super::debts::Debts;
use super::{DispatchKey, FlowSnapshot, FlowState, Newcomer};
use crate::admit::ordered_queue::{List, OrderedQueue};
use crate::admit::wait_queue::heap::Heap;
use crate::admit::wait_queue::lanes::MAX_LOOKS;
use crate::admit::waiters::Waiters;
use crate::admit::{Tenant, WaitingRoomConfig};

/// Virtual time per unit of cost at weight 1. Divided by any `u32` weight it is at least 1.
const UNIT: u128 = 1 << 32;

/// The virtual time that a request of this cost takes. Does not overflow: the cost is a `u32`.
pub(super) fn price(cost: u128, weight: u128) -> u128 {
    cost * UNIT / weight
}

/// The tenant's weight: 1 if none is configured, and at least 1.
fn weight(config: &WaitingRoomConfig, tenant: &Tenant) -> u128 {
    config
        .weights
        .get(tenant)
        .map_or(1, |&weight| u128::from(weight.max(1)))
}

/// The waiters of one tenant.
#[derive(Debug)]
struct Flow {
    tenant: Tenant,
    weight: u128,
    queue: OrderedQueue,
    state: FlowState,
    /// How many of its waiters are skipped.
    skipped: usize,
}

impl Flow {
    /// The virtual time at which a head of this cost will have been served.
    fn tag(&self, cost: u128) -> u128 {
        self.state.start + price(cost, self.weight)
    }

    /// The key of a head of this cost.
    fn key(&self, cost: u128) -> DispatchKey {
        DispatchKey::of_tag(self.tag(cost), self.state.since)
    }
}

/// Waiters of one level of one lane: flows, ordered by the tag of their heads.
#[derive(Debug)]
pub(crate) struct FairQueue {
    by_tenant: HashMap<Tenant, u32>,
    flows: Slab<Flow>,
    /// The flows with waiters that are not skipped, by key.
    order: Heap<DispatchKey>,
    debts: Debts,
}

impl FairQueue {
    pub(super) fn new() -> Self {
        Self {
            by_tenant: HashMap::new(),
            flows: Slab::new(),
            order: Heap::new(),
            debts: Debts::default(),
        }
    }

    pub(super) fn push<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        idx: u32,
        state: FlowState,
        config: &WaitingRoomConfig,
    ) -> bool {
        let tenant = waiters.meta(idx).tenant();
        let index = match self.by_tenant.get(tenant) {
            Some(&index) => index,
            None => {
                let start = self.debts.start(tenant, state.start);
                let flow = Flow {
                    tenant: tenant.clone(),
                    weight: weight(config, tenant),
                    queue: OrderedQueue::new(List::Lane),
                    state: FlowState { start, ..state },
                    skipped: 0,
                };
                let index = self.flows.insert(flow) as u32;
                self.by_tenant.insert(tenant.clone(), index);
                index
            }
        };
        waiters.meta_mut(idx).flow = index;
        let is_head = self.flows[index as usize].queue.push(waiters, idx);
        // The flow's tag depends on the cost of its head.
        if is_head {
            self.reorder(waiters, index);
        }
        is_head
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
        if was_head {
            self.reorder(waiters, index);
        }
        was_head
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
        if is_head {
            self.reorder(waiters, index);
        }
        is_head
    }

    pub(super) fn head(&self) -> Option<u32> {
        let &(_, flow) = self.order.first()?;
        self.flows[flow as usize].queue.head()
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
        let Some(&index) = self.by_tenant.get(newcomer.tenant) else {
            // A flow of its own, which begins now.
            let start = self.debts.start(newcomer.tenant, state.start);
            let tag = start + price(newcomer.cost, weight(config, newcomer.tenant));
            return Some(DispatchKey::of_tag(tag, state.since));
        };
        let flow = &self.flows[index as usize];
        // Only a requeued request goes before others of its tenant.
        let head = flow.queue.head();
        let is_first = head.is_none_or(|head| newcomer.key < waiters.meta(head).key());
        is_first.then(|| flow.key(newcomer.cost))
    }

    /// About how many waiters go before a newcomer whose turn is due at `tag`: by the prices of the heads, and of many flows
    /// by the first ones.
    pub(super) fn ahead<T>(&self, waiters: &Waiters<T>, tag: u128) -> usize {
        let due = |flow: &Flow| {
            let head = flow.queue.head()?;
            let price = price(waiters.meta(head).cost(), flow.weight);
            // The division's result is at most the queue's length before it is narrowed.
            let turns = tag.saturating_sub(flow.state.start) / price;
            Some(turns.min(flow.queue.len() as u128) as usize)
        };
        let looks = self.flows.len().min(MAX_LOOKS);
        let flows = self.flows.iter().take(looks);
        let ahead: usize = flows.filter_map(|(_, flow)| due(flow)).sum();
        ahead * self.flows.len() / looks.max(1)
    }

    /// The virtual time at which a newcomer's turn is due, behind the waiters of its tenant; `state` as in `push`.
    pub(super) fn newcomer_tag(
        &self,
        newcomer: Newcomer<'_>,
        state: FlowState,
        config: &WaitingRoomConfig,
    ) -> u128 {
        let own = self.by_tenant.get(newcomer.tenant);
        let own = own.map(|&index| &self.flows[index as usize]);
        let price = price(newcomer.cost, weight(config, newcomer.tenant));
        let (start, before) = match own {
            Some(own) => (own.state.start, own.queue.len()),
            None => (self.debts.start(newcomer.tenant, state.start), 0),
        };
        // Those before it are taken to cost what it costs.
        start + price * (before as u128 + 1)
    }

    /// Moves the tenant's flow later; if it has none, the next one that begins. Says whether the head may be another now.
    pub(super) fn charge<T>(
        &mut self,
        waiters: &Waiters<T>,
        tenant: &Tenant,
        cost: u32,
        clock: u128,
        config: &WaitingRoomConfig,
    ) -> bool {
        let price = price(cost.into(), weight(config, tenant));
        let Some(&index) = self.by_tenant.get(tenant) else {
            let start = self.debts.start(tenant, clock) + price;
            self.debts.set(tenant, start, clock);
            return false;
        };
        let flow = &mut self.flows[index as usize];
        flow.state.start += price;
        // Its waiters may all leave without being served.
        self.debts.set(tenant, flow.state.start, clock);
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
            let line = flow.queue.to_vec(waiters);
            // A flow may have nothing but skipped waiters.
            let key = flow.key(waiters.meta(*line.first()?).cost());
            Some(FlowSnapshot::new(key, flow.weight, line))
        })
    }

    /// Rebuilds the flows in as much memory as they need. No waiter is skipped at that time.
    pub(super) fn trim<T>(&mut self, waiters: &mut Waiters<T>) {
        let old = std::mem::replace(self, Self::new());
        self.debts = old.debts;
        self.debts.trim();
        for (_, flow) in old.flows {
            let tenant = flow.tenant.clone();
            let index = self.flows.insert(flow) as u32;
            self.by_tenant.insert(tenant, index);
            // Flows have new indices.
            for idx in self.flows[index as usize].queue.to_vec(waiters) {
                waiters.meta_mut(idx).flow = index;
            }
            self.reorder(waiters, index);
        }
    }

    /// Ranks a flow by its head, or closes it if none of its waiters is left.
    fn reorder<T>(&mut self, waiters: &Waiters<T>, index: u32) {
        let flow = &self.flows[index as usize];
        match flow.queue.head() {
            Some(head) => self.order.set(index, flow.key(waiters.meta(head).cost())),
            None => {
                self.order.remove(index);
                // A skipped waiter needs the flow's state when it is restored.
                if flow.skipped == 0 {
                    let flow = self.flows.remove(index as usize);
                    self.by_tenant.remove(&flow.tenant);
                }
            }
        }
    }
}
