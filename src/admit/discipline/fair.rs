//! Tenants take turns.
//!
//! Without it, whoever sends most is served most. Each tenant's waiters form a flow, and each flow's head
//! has a tag: the virtual time at which it will have been served if its tenant gets exactly its share. The
//! least tag goes next, and virtual time moves to it (self-clocked fair queueing). With equal costs and
//! weights this is round robin; a heavier tenant gets proportionally more turns in a round, a dearer
//! request takes proportionally more of its tenant's.
//!
//! When a flow's last waiter has been served, virtual time is exactly the flow's tag, so nothing of the flow
//! needs to be remembered: memory is only for tenants that wait.

use std::collections::HashMap;

use slab::Slab;

use super::super::Tenant;
use super::super::chairs::{Chairs, Place, QUEUE};
use super::super::heap::Heap;
use super::super::line::Line;
use super::{Standing, Strand, Turn};

/// Virtual time per unit of cost at weight 1: fine enough to divide by any weight.
const UNIT: u128 = 1 << 32;

pub(super) fn price(cost: u128, weight: u128) -> u128 {
    cost * UNIT / weight
}

#[derive(Debug)]
struct Flow {
    tenant: Tenant,
    weight: u128,
    line: Line<QUEUE>,
    /// The virtual time at which the head's service begins.
    start: u128,
    /// Since when the head has its turn: equal tags go in this order.
    turn: u64,
    /// How many of it are out of line for a moment. It is not forgotten meanwhile, for it may have to pay for
    /// those behind them.
    aside: usize,
}

impl Flow {
    fn tag(&self, cost: u128) -> u128 {
        self.start + price(cost, self.weight)
    }
}

/// Flows of tenants, the one whose turn it is first.
#[derive(Debug)]
pub(crate) struct Fair {
    by_tenant: HashMap<Tenant, u32>,
    flows: Slab<Flow>,
    order: Heap<Turn>,
}

impl Default for Fair {
    fn default() -> Self {
        Self {
            by_tenant: HashMap::new(),
            flows: Slab::new(),
            order: Heap::new(),
        }
    }
}

impl Fair {
    pub(super) fn push<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        at: u32,
        standing: Standing,
        weights: &HashMap<Tenant, u32>,
    ) -> bool {
        let tenant = &chairs.place(at).ticket.tenant;
        let flow = match self.by_tenant.get(tenant) {
            Some(&flow) => flow,
            None => {
                let tenant = tenant.clone();
                let weight = weights.get(&tenant).map_or(1, |&w| u128::from(w.max(1)));
                let flow = self.flows.insert(Flow {
                    tenant: tenant.clone(),
                    weight,
                    line: Line::new(),
                    start: standing.start,
                    turn: standing.turn,
                    aside: 0,
                }) as u32;
                self.by_tenant.insert(tenant, flow);
                flow
            }
        };
        chairs.place_mut(at).flow = flow;
        self.line_up(chairs, at, flow)
    }

    fn line_up<T>(&mut self, chairs: &mut Chairs<T>, at: u32, flow: u32) -> bool {
        let line = &mut self.flows[flow as usize].line;
        line.push(chairs, at);
        let is_head = line.head(chairs) == Some(at);
        if is_head {
            self.reorder(chairs, flow);
        }
        is_head
    }

    /// Takes `at` out of line, to be put back before anybody else comes.
    pub(super) fn set_aside<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        self.flows[chairs.place(at).flow as usize].aside += 1;
        self.remove(chairs, at);
    }

    /// Puts `at` back before those of its tenant who came later.
    pub(super) fn put_back<T>(&mut self, chairs: &mut Chairs<T>, at: u32) -> bool {
        let flow = chairs.place(at).flow;
        self.flows[flow as usize].aside -= 1;
        self.line_up(chairs, at, flow)
    }

    /// Takes `at` out because it got a slot. Its tenant's next one has the turn `turn`. Returns the virtual
    /// time at which it was due.
    pub(super) fn serve<T>(&mut self, chairs: &mut Chairs<T>, at: u32, turn: u64) -> u128 {
        let place = chairs.place(at);
        let (cost, index) = (place.cost(), place.flow);
        let flow = &mut self.flows[index as usize];
        flow.start = flow.tag(cost);
        flow.turn = turn;
        let due = flow.start;
        self.remove(chairs, at);
        due
    }

    /// How far the tenant of the waiter has come.
    pub(super) fn standing(&self, place: &Place) -> Standing {
        let Flow { start, turn, .. } = self.flows[place.flow as usize];
        Standing { start, turn }
    }

    pub(super) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let index = chairs.place(at).flow;
        self.flows[index as usize].line.remove(chairs, at);
        self.reorder(chairs, index);
    }

    pub(super) fn head<T>(&self, chairs: &Chairs<T>) -> Option<(u32, Turn)> {
        let &(turn, flow) = self.order.first()?;
        let at = self.flows[flow as usize].line.head(chairs)?;
        Some((at, turn))
    }

    pub(super) fn strands<T>(&self, chairs: &Chairs<T>) -> impl Iterator<Item = Strand> {
        self.flows.iter().filter_map(|(_, flow)| {
            let line = flow.line.in_order(chairs);
            let &head = line.first()?;
            let turn = (flow.tag(chairs.place(head).cost()), flow.turn);
            Some(Strand::new(turn, flow.weight, line))
        })
    }

    /// Puts a flow where its head belongs, or forgets it when nobody of it waits any more.
    fn reorder<T>(&mut self, chairs: &Chairs<T>, index: u32) {
        let flow = &self.flows[index as usize];
        match flow.line.head(chairs) {
            Some(head) => {
                let tag = flow.tag(chairs.place(head).cost());
                self.order.set(index, (tag, flow.turn));
            }
            None => {
                self.order.remove(index);
                if flow.aside == 0 {
                    let flow = self.flows.remove(index as usize);
                    self.by_tenant.remove(&flow.tenant);
                }
            }
        }
    }
}
