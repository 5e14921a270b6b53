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
use super::super::chairs::{Chairs, QUEUE};
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
    /// How many of it will be put back.
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
        let tenant = chairs.tenant(at);
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
        chairs.set_flow(at, flow);
        self.line_up(chairs, flow, at)
    }

    fn line_up<T>(&mut self, chairs: &mut Chairs<T>, flow: u32, at: u32) -> bool {
        let line = &mut self.flows[flow as usize].line;
        let is_head = line.push(chairs, at);
        if is_head {
            self.reorder(chairs, flow);
        }
        is_head
    }

    /// Takes `at` out because it got a slot. Its tenant's next one has the turn `turn`. Returns the virtual
    /// time at which it was due.
    pub(super) fn serve<T>(&mut self, chairs: &mut Chairs<T>, at: u32, turn: u64) -> u128 {
        let (cost, index) = (chairs.cost(at), chairs.flow(at));
        let flow = &mut self.flows[index as usize];
        flow.start = flow.tag(cost);
        flow.turn = turn;
        let due = flow.start;
        self.remove(chairs, at);
        due
    }

    /// How far the tenant of the waiter has come.
    pub(super) fn standing<T>(&self, chairs: &Chairs<T>, at: u32) -> Standing {
        let Flow { start, turn, .. } = self.flows[chairs.flow(at) as usize];
        Standing { start, turn }
    }

    pub(super) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let index = chairs.flow(at);
        self.flows[index as usize].line.remove(chairs, at);
        self.reorder(chairs, index);
    }

    pub(super) fn skip<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        self.flows[chairs.flow(at) as usize].aside += 1;
        self.remove(chairs, at);
    }

    pub(super) fn restore<T>(&mut self, chairs: &mut Chairs<T>, at: u32) -> bool {
        let index = chairs.flow(at);
        self.flows[index as usize].aside -= 1;
        self.line_up(chairs, index, at)
    }

    pub(super) fn head<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        let &(_, flow) = self.order.first()?;
        self.flows[flow as usize].line.head(chairs)
    }

    pub(super) fn turn(&self) -> Turn {
        self.order.first().map_or(Turn::LAST, |&(turn, _)| turn)
    }

    pub(super) fn strands<T>(&self, chairs: &Chairs<T>) -> impl Iterator<Item = Strand> {
        self.flows.iter().filter_map(|(_, flow)| {
            let line = flow.line.in_order(chairs);
            let &head = line.first()?;
            let turn = Turn::of_tag(flow.tag(chairs.cost(head)), flow.turn);
            Some(Strand::new(turn, flow.weight, line))
        })
    }

    /// Gives the flows of now the first numbers, and back the memory of the others. Waiters are not set aside meanwhile.
    pub(super) fn trim<T>(&mut self, chairs: &mut Chairs<T>) {
        let old = std::mem::take(self);
        for (_, flow) in old.flows {
            let tenant = flow.tenant.clone();
            let index = self.flows.insert(flow) as u32;
            self.by_tenant.insert(tenant, index);
            for at in self.flows[index as usize].line.in_order(chairs) {
                chairs.set_flow(at, index);
            }
            self.reorder(chairs, index);
        }
    }

    /// Puts a flow where its head belongs, or forgets it when nobody of it waits.
    fn reorder<T>(&mut self, chairs: &Chairs<T>, index: u32) {
        let flow = &self.flows[index as usize];
        match flow.line.head(chairs) {
            Some(head) => {
                let tag = flow.tag(chairs.cost(head));
                self.order.set(index, Turn::of_tag(tag, flow.turn));
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
