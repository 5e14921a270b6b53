//! A bounded table of flows, which keeps those with the largest ranks.
//!
//! Clients choose the names of tenants, so the data about flows that do not wait need a bound. The flow with the
//! smallest rank makes room for a new one. A heap finds it, so the cost per flow does not depend on the number of
//! active tenants.

use slab::Slab;

use super::Tenant;
use super::flow::{FlowKey, FlowMap};
use super::heap::Heap;

/// A table of flows by key, with a rank and a value for each.
#[derive(Debug)]
pub(crate) struct LargestFlows<K, V> {
    by_key: FlowMap<u32>,
    flows: Slab<Flow<K, V>>,
    /// The heap of ranks, with the smallest one first.
    order: Heap<K>,
}

#[derive(Debug)]
struct Flow<K, V> {
    level: u8,
    tenant: Tenant,
    rank: K,
    value: V,
}

/// The highest number of flows in the table.
pub(crate) const MAX_FLOWS: usize = 256;

impl<K: Ord + Copy, V> LargestFlows<K, V> {
    /// Returns the rank and the value of a flow, if it is in the table.
    #[inline]
    pub(crate) fn get(&self, key: FlowKey<'_>) -> Option<(K, &V)> {
        let flow = &self.flows[*self.by_key.get(key)? as usize];
        Some((flow.rank, &flow.value))
    }

    /// Sets the rank of a flow. Returns `false` if the flow is not in the table. O(log flows).
    pub(crate) fn set_rank(&mut self, key: FlowKey<'_>, rank: K) -> bool {
        let Some(&index) = self.by_key.get(key) else {
            return false;
        };
        self.flows[index as usize].rank = rank;
        self.order.set(index, rank);
        true
    }

    /// Adds a flow that is not in the table. A full table drops the flow with the smallest rank. O(log flows).
    pub(crate) fn insert(&mut self, key: FlowKey<'_>, rank: K, value: V) {
        if self.is_full() {
            self.remove_smallest();
        }
        let index = self.flows.insert(Flow {
            level: key.level,
            tenant: key.tenant_name().clone(),
            rank,
            value,
        }) as u32;
        self.by_key.insert(key, index);
        self.order.set(index, rank);
    }

    /// Removes a flow, if it is in the table. O(log flows).
    pub(crate) fn remove(&mut self, key: FlowKey<'_>) {
        if let Some(&index) = self.by_key.get(key) {
            self.remove_at(index);
        }
    }

    /// Removes the flow with the smallest rank, unless the table is empty.
    pub(crate) fn remove_smallest(&mut self) {
        if let Some(&(_, index)) = self.order.first() {
            self.remove_at(index);
        }
    }

    fn remove_at(&mut self, index: u32) {
        let Flow { level, tenant, .. } = self.flows.remove(index as usize);
        self.order.remove(index);
        let tenant = Some(&tenant);
        self.by_key.remove(FlowKey { level, tenant });
    }

    /// Returns the smallest rank.
    pub(crate) fn smallest(&self) -> Option<K> {
        self.order.first().map(|&(rank, _)| rank)
    }

    /// Changes all ranks by a function that keeps their order, except that it may make ranks equal.
    pub(crate) fn map_ranks(&mut self, change: impl Fn(K) -> K) {
        for (index, flow) in &mut self.flows {
            flow.rank = change(flow.rank);
            self.order.set(index as u32, flow.rank);
        }
    }

    /// Returns `true` if one more flow would replace another.
    pub(crate) fn is_full(&self) -> bool {
        self.flows.len() >= MAX_FLOWS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Returns all flows with their ranks and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowKey<'_>, K, &V)> {
        self.flows.iter().map(|(_, flow)| {
            let (level, tenant) = (flow.level, Some(&flow.tenant));
            (FlowKey { level, tenant }, flow.rank, &flow.value)
        })
    }

    /// Returns all flows with their values, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (FlowKey<'_>, &mut V)> {
        self.flows.iter_mut().map(|(_, flow)| {
            let (level, tenant) = (flow.level, Some(&flow.tenant));
            (FlowKey { level, tenant }, &mut flow.value)
        })
    }

    /// Gives unused memory back.
    pub(crate) fn trim(&mut self) {
        self.by_key.shrink_to_fit();
        if self.flows.is_empty() {
            (self.flows, self.order) = (Slab::new(), Heap::new());
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }
}

impl<K: Ord + Copy, V> Default for LargestFlows<K, V> {
    fn default() -> Self {
        Self {
            by_key: FlowMap::new(),
            flows: Slab::new(),
            order: Heap::new(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use super::*;

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// A rank that counts how often it is compared.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Counted(u64);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    fn key(tenant: &Tenant) -> FlowKey<'_> {
        let tenant = Some(tenant);
        FlowKey { level: 0, tenant }
    }

    #[test]
    fn a_new_flow_costs_no_look_at_all_others() {
        let mut flows = LargestFlows::default();
        let mut most = 0;
        for nth in 0..4_000_u64 {
            // The ranks come in a scrambled order.
            let rank = Counted(nth.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            COMPARED.set(0);
            flows.insert(key(&nth.to_string().into()), rank, ());
            most = most.max(COMPARED.get());
        }
        // Each insertion moves up and down a heap of 256 at most twice.
        assert!(most <= 4 * 2 * 8, "{most} comparisons");
        assert_eq!(flows.len(), MAX_FLOWS);
    }

    #[test]
    fn the_flows_with_the_largest_ranks_are_kept() {
        let mut flows = LargestFlows::default();
        for nth in 0..1_000_u64 {
            flows.insert(key(&nth.to_string().into()), nth, ());
        }
        assert_eq!(flows.smallest(), Some(1_000 - MAX_FLOWS as u64));
        assert!(flows.get(key(&"999".into())).is_some());
        assert!(flows.get(key(&"1".into())).is_none());
    }
}
