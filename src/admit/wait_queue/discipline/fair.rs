//! The discipline `fair`, which shares service among tenants in proportion to their weights, by self-clocked fair
//! queueing. It shares the slots among levels that have weights, too.
//!
//! The waiters of each tenant form a flow. Its tag is the virtual time at which its head will have been served if the
//! tenant gets exactly its share. The smallest tag goes next, and virtual time moves to it. When the last waiter of a
//! flow is served, virtual time is exactly the flow's tag. So a tenant without waiters needs no state, unless it is
//! charged more afterwards (see [`debts`](super::debts)).

use std::sync::Arc;

use super::debts::Debts;
use super::{DispatchKey, FlowSnapshot, FlowState, Newcomer};
use crate::admit::flow::{FlowKey, FlowTable, FlowWeights};
use crate::admit::ordered_queue::{List, OrderedQueue};
use crate::admit::wait_queue::lanes::MAX_LOOKS;
use crate::admit::waiters::Waiters;
use crate::admit::{Discipline, Share, Tenant};

/// The virtual time per unit of cost at weight 1. It is large enough that a unit takes at least 1 even at the largest
/// `u32` weight.
pub(crate) const UNIT: u128 = 1 << 32;

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
    rate: Rate,
    queue: OrderedQueue,
    state: FlowState,
    /// The number of the flow's waiters that are skipped at present.
    skipped: usize,
}

impl Flow {
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
    weights: Arc<FlowWeights>,
    /// The flows, of which those with a waiter that is not skipped are ranked by the key of their head.
    flows: FlowTable<DispatchKey, Flow>,
    pub(super) debts: Debts,
}

impl FairQueue {
    pub(super) fn new(discipline: Discipline, weights: Arc<FlowWeights>) -> Self {
        Self {
            discipline,
            weights,
            flows: FlowTable::default(),
            debts: Debts::default(),
        }
    }

    #[inline]
    fn key_of<'a>(&self, level: u8, tenant: &'a Tenant) -> FlowKey<'a> {
        self.weights.key(level, tenant, self.discipline)
    }

    #[inline]
    fn rate(&self, key: FlowKey<'_>) -> Rate {
        Rate {
            weight: self.weights.of(key).into(),
            by_cost: self.discipline == Discipline::Fair,
        }
    }

    /// Adds a waiter to its flow, and returns `true` if the head may be another now. `state` is the flow's state if it
    /// has to be opened.
    pub(super) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, state: FlowState) -> bool {
        let meta = waiters.meta(idx);
        let key = self.key_of(meta.level, meta.tenant());
        let index = match self.flows.find(key) {
            Some(index) => index,
            None => {
                let start = self.debts.start(key, state.start);
                let flow = Flow {
                    rate: self.rate(key),
                    queue: OrderedQueue::new(List::Lane),
                    state: FlowState { start, ..state },
                    skipped: 0,
                };
                self.flows.insert(key, flow)
            }
        };
        waiters.meta_mut(idx).flow = index;
        let is_head = self.flows[index].queue.push(waiters, idx);
        // The flow's tag depends on the cost of its head, so only a new head moves the flow.
        self.reorder_if(is_head, waiters, index)
    }

    /// Removes a waiter that got a slot, and returns the virtual time at which its service ends. `dispatch` is the
    /// number of this dispatch.
    pub(super) fn serve<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, dispatch: u64) -> u128 {
        let meta = waiters.meta(idx);
        let flow = &mut self.flows[meta.flow];
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
        let was_head = self.flows[index].queue.remove(waiters, idx);
        self.reorder_if(was_head, waiters, index)
    }

    pub(super) fn skip<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        // The count rises first, because a flow with a skipped waiter stays open.
        self.flows[waiters.meta(idx).flow].skipped += 1;
        self.remove(waiters, idx)
    }

    pub(super) fn restore<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        let index = waiters.meta(idx).flow;
        let flow = &mut self.flows[index];
        flow.skipped -= 1;
        let is_head = flow.queue.push(waiters, idx);
        self.reorder_if(is_head, waiters, index)
    }

    pub(super) fn head(&self) -> Option<u32> {
        let (_, flow) = self.flows.first()?;
        self.flows[flow].queue.head()
    }

    pub(super) fn head_key(&self) -> DispatchKey {
        let first = self.flows.first();
        first.map_or(DispatchKey::LAST, |(key, _)| key)
    }

    pub(super) fn newcomer_key<T>(
        &self,
        waiters: &Waiters<T>,
        newcomer: Newcomer<'_>,
        state: FlowState,
    ) -> Option<DispatchKey> {
        let key = self.key_of(newcomer.level, newcomer.tenant);
        let Some(index) = self.flows.find(key) else {
            // The newcomer would open a flow, which begins now or after its debt.
            let start = self.debts.start(key, state.start);
            let tag = start + self.rate(key).price(newcomer.cost);
            return Some(DispatchKey::of_tag(tag, state.since));
        };
        let flow = &self.flows[index];
        // Only a requeued request goes before others of its flow.
        let head = flow.queue.head();
        let is_first = head.is_none_or(|head| newcomer.key < waiters.meta(head).key());
        is_first.then(|| flow.key(newcomer.cost))
    }

    /// Estimates the number of waiters that go before a newcomer whose turn is due at `tag`. Every waiter is taken to cost
    /// as much as the head of its flow, and only the first [`MAX_LOOKS`] flows are looked at.
    pub(super) fn ahead<T>(&self, waiters: &Waiters<T>, tag: u128) -> usize {
        let due = |flow: &Flow| {
            let head = flow.queue.head()?;
            let price = flow.rate.price(waiters.meta(head).cost());
            // The number of times that the flow is served before `tag`, if all its waiters cost as much as its head.
            let turns = tag.saturating_sub(flow.state.start) / price;
            // The minimum keeps the number in range before it is narrowed.
            Some(turns.min(flow.queue.len() as u128) as usize)
        };
        let looks = self.flows.len().min(MAX_LOOKS);
        let flows = self.flows.iter().take(looks);
        let ahead: usize = flows.filter_map(|(.., flow)| due(flow)).sum();
        // The flows that were not looked at are taken to have as many on average.
        ahead * self.flows.len() / looks.max(1)
    }

    /// Returns the virtual time at which a newcomer's turn is due, behind the waiters of its flow. `state` is the state
    /// of its flow if that has to be opened.
    pub(super) fn turn(&self, newcomer: Newcomer<'_>, state: FlowState) -> u128 {
        let key = self.key_of(newcomer.level, newcomer.tenant);
        let price = self.rate(key).price(newcomer.cost);
        let Some(own) = self.flows.find(key) else {
            return self.debts.start(key, state.start) + price;
        };
        let Flow { queue, state, .. } = &self.flows[own];
        // The waiters before the newcomer are taken to cost as much as the newcomer.
        state.start + price * (queue.len() as u128 + 1)
    }

    /// Charges a tenant this many [units](UNIT) of cost by moving its flow later, or earlier if the number is negative.
    /// Returns `true` if the head may be another now. A tenant without a flow gets a debt, which delays the next flow
    /// that it opens.
    pub(super) fn charge<T>(
        &mut self,
        waiters: &Waiters<T>,
        share: &Share,
        units: i128,
        clock: u128,
    ) -> bool {
        if self.discipline != Discipline::Fair {
            return false; // each request counts as one
        }
        let key = self.key_of(share.level, &share.tenant);
        let price = units / self.rate(key).weight as i128; // at most a `u32`
        let Some(index) = self.flows.find(key) else {
            let start = self.debts.start(key, clock).saturating_add_signed(price);
            self.debts.set(key, start, clock);
            return false;
        };
        let flow = &mut self.flows[index];
        flow.state.start = flow.state.start.saturating_add_signed(price);
        // The debt is recorded too, because all waiters of the flow may leave without being served.
        self.debts.set(key, flow.state.start, clock);
        self.reorder(waiters, index);
        true
    }

    pub(super) fn flow_state<T>(&self, waiters: &Waiters<T>, idx: u32) -> FlowState {
        self.flows[waiters.meta(idx).flow].state
    }

    pub(super) fn snapshot<T>(&self, waiters: &Waiters<T>) -> impl Iterator<Item = FlowSnapshot> {
        self.flows.iter().filter_map(|(.., flow)| {
            let line = flow.queue.to_vec(waiters);
            // All waiters of the flow may be skipped.
            let key = flow.key(waiters.meta(*line.first()?).cost());
            Some(FlowSnapshot::new(key, flow.rate, line))
        })
    }

    /// Rebuilds the flows in as little memory as they need. This is called only while all waiters are visible.
    pub(super) fn trim<T>(&mut self, waiters: &mut Waiters<T>) {
        self.debts.trim();
        self.flows.trim(|index, flow| {
            // The flows have new indices now, to which their waiters have to refer.
            for idx in flow.queue.to_vec(waiters) {
                waiters.meta_mut(idx).flow = index;
            }
            let head = flow.queue.head()?;
            Some(flow.key(waiters.meta(head).cost()))
        });
    }

    /// Ranks a flow anew if its first waiter came or left. Returns `true` if the head may be another now.
    #[inline]
    fn reorder_if<T>(&mut self, is_first: bool, waiters: &Waiters<T>, index: u32) -> bool {
        if is_first {
            self.reorder(waiters, index);
        }
        is_first
    }

    /// Ranks a flow by its head, or closes it with its last waiter.
    fn reorder<T>(&mut self, waiters: &Waiters<T>, index: u32) {
        let flow = &self.flows[index];
        match flow.queue.head() {
            Some(head) => {
                let key = flow.key(waiters.meta(head).cost());
                self.flows.set_rank(index, key);
            }
            // A skipped waiter needs the flow's state when it is restored, so the flow stays open.
            None if flow.skipped > 0 => self.flows.remove_rank(index),
            None => self.flows.remove(index),
        }
    }
}
