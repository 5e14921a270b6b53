//! Flows, which are groups of requests that share the slots, and the weights of their shares.
//!
//! With the discipline `fair` each tenant is a flow. If levels have weights, each level is a flow, or each tenant of
//! it.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use slab::Slab;

use super::heap::Heap;
use super::{Discipline, Tenant, WaitingRoomConfig};

/// The key of a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowKey<'a> {
    /// The level of the flow, or 0 for all levels if they have no weights.
    pub(crate) level: u8,
    /// The tenant of the flow, or `None` for all tenants if they do not take turns.
    pub(crate) tenant: Option<&'a Tenant>,
}

static ALL_TENANTS: Tenant = Tenant::NONE;

impl<'a> FlowKey<'a> {
    /// Returns the name of the flow's tenant, or the empty one for all tenants.
    #[inline]
    pub(crate) fn tenant_name(self) -> &'a Tenant {
        self.tenant.unwrap_or(&ALL_TENANTS)
    }
}

/// The weights of a configuration, which also tell the requests that form a flow.
#[derive(Debug, Default)]
pub(crate) struct FlowWeights {
    /// The weight of each level, or nothing if levels have no weights.
    levels: Vec<u32>,
    tenants: HashMap<Tenant, u32>,
}

impl FlowWeights {
    pub(crate) fn new(config: &WaitingRoomConfig) -> Arc<Self> {
        let weight = |name: &str| {
            let mut weights = config.level_weights.iter();
            let weight = weights.find(|(other, _)| other.eq_ignore_ascii_case(name));
            weight.map_or(1, |(_, &weight)| weight.max(1))
        };
        let levels = match config.level_weights.is_empty() {
            true => Vec::new(),
            false => config.levels.names().map(weight).collect(),
        };
        let tenants = config.weights.clone();
        Arc::new(Self { levels, tenants })
    }

    /// Returns `true` if levels have weights.
    pub(crate) fn have_levels(&self) -> bool {
        !self.levels.is_empty()
    }

    /// Returns the flow of a request in a lane of this discipline.
    #[inline]
    pub(crate) fn key<'a>(
        &self,
        level: u8,
        tenant: &'a Tenant,
        discipline: Discipline,
    ) -> FlowKey<'a> {
        // This is 0 without weights, and otherwise at most the lowest level.
        let level = usize::from(level).min(self.levels.len().saturating_sub(1)) as u8;
        let tenant = (discipline == Discipline::Fair).then_some(tenant);
        FlowKey { level, tenant }
    }

    /// Returns a flow's weight in relation to the weights of others; at least 1.
    #[inline]
    pub(crate) fn of(&self, flow: FlowKey<'_>) -> u32 {
        let tenant = flow.tenant.and_then(|tenant| self.tenants.get(tenant));
        // A configuration that was not validated may have a weight of 0, which counts as 1.
        let tenant = tenant.map_or(1, |&weight| weight.max(1));
        let level = self.levels.get(usize::from(flow.level));
        level.map_or(tenant, |level| level.saturating_mul(tenant))
    }
}

/// A table of flows by key, each with a value, and with a rank if it has one. It finds the flow of the smallest rank.
#[derive(Debug)]
pub(crate) struct FlowTable<K, V> {
    /// The indices of flows, by level and then by tenant, because a level and a borrowed tenant could not be looked up
    /// together in a single map.
    by_key: Vec<HashMap<Tenant, u32>>,
    flows: Slab<Flow<V>>,
    order: Heap<K>,
}

#[derive(Debug)]
struct Flow<V> {
    level: u8,
    tenant: Tenant,
    value: V,
}

impl<V> Flow<V> {
    fn key(&self) -> FlowKey<'_> {
        let (level, tenant) = (self.level, Some(&self.tenant));
        FlowKey { level, tenant }
    }
}

/// The highest number of flows that are remembered while none of their requests waits. Clients choose the names of
/// tenants, so this data needs a bound.
pub(crate) const MAX_FLOWS: usize = 256;

impl<K: Ord + Copy, V> FlowTable<K, V> {
    /// Returns the index of a flow, if it is in the table.
    #[inline]
    pub(crate) fn find(&self, key: FlowKey<'_>) -> Option<u32> {
        let level = self.by_key.get(usize::from(key.level))?;
        level.get(key.tenant_name()).copied()
    }

    /// Adds a flow that is not in the table, without a rank.
    pub(crate) fn insert(&mut self, key: FlowKey<'_>, value: V) -> u32 {
        let (level, tenant) = (key.level, key.tenant_name().clone());
        self.add(Flow {
            level,
            tenant,
            value,
        })
    }

    fn add(&mut self, flow: Flow<V>) -> u32 {
        let (level, tenant) = (usize::from(flow.level), flow.tenant.clone());
        if level >= self.by_key.len() {
            self.by_key.resize_with(level + 1, HashMap::new);
        }
        let index = self.flows.insert(flow) as u32;
        self.by_key[level].insert(tenant, index);
        index
    }

    /// Adds a flow that is not in the table, with its rank. A table of [`MAX_FLOWS`] drops the flow of the smallest
    /// rank for it, which a heap finds without a look at all others.
    pub(crate) fn insert_bounded(&mut self, key: FlowKey<'_>, rank: K, value: V) {
        if self.len() >= MAX_FLOWS
            && let Some((_, smallest)) = self.first()
        {
            self.remove(smallest);
        }
        let index = self.insert(key, value);
        self.set_rank(index, rank);
    }

    pub(crate) fn remove(&mut self, index: u32) {
        let flow = self.flows.remove(index as usize);
        self.by_key[usize::from(flow.level)].remove(&flow.tenant);
        self.order.remove(index);
    }

    pub(crate) fn rank(&self, index: u32) -> Option<K> {
        self.order.rank(index)
    }

    #[inline]
    pub(crate) fn set_rank(&mut self, index: u32, rank: K) {
        self.order.set(index, rank);
    }

    /// Takes the rank from a flow, which stays in the table.
    pub(crate) fn remove_rank(&mut self, index: u32) {
        self.order.remove(index);
    }

    /// Returns the smallest rank, and the flow that has it.
    #[inline]
    pub(crate) fn first(&self) -> Option<(K, u32)> {
        self.order.first().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, FlowKey<'_>, &V)> {
        let flows = self.flows.iter();
        flows.map(|(index, flow)| (index as u32, flow.key(), &flow.value))
    }

    /// Rebuilds the table in as little memory as it needs. `moved` returns the rank of a flow, which may have a new
    /// index.
    pub(crate) fn trim(&mut self, mut moved: impl FnMut(u32, &V) -> Option<K>) {
        for (_, flow) in std::mem::take(self).flows {
            let index = self.add(flow);
            if let Some(rank) = moved(index, &self[index]) {
                self.set_rank(index, rank);
            }
        }
    }
}

impl<K, V> Index<u32> for FlowTable<K, V> {
    type Output = V;

    #[inline]
    fn index(&self, index: u32) -> &V {
        &self.flows[index as usize].value
    }
}

impl<K, V> IndexMut<u32> for FlowTable<K, V> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut V {
        &mut self.flows[index as usize].value
    }
}

impl<K: Ord + Copy, V> Default for FlowTable<K, V> {
    fn default() -> Self {
        Self {
            by_key: Vec::new(),
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
        let mut flows = FlowTable::default();
        let mut most = 0;
        for nth in 0..4_000_u64 {
            // The ranks come in a scrambled order.
            let rank = Counted(nth.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            COMPARED.set(0);
            flows.insert_bounded(key(&nth.to_string().into()), rank, ());
            most = most.max(COMPARED.get());
        }
        // Each insertion moves up and down a heap of 256 at most twice.
        assert!(most <= 4 * 2 * 8, "{most} comparisons");
        assert_eq!(flows.len(), MAX_FLOWS);
    }

    #[test]
    fn the_flows_with_the_largest_ranks_are_kept() {
        let mut flows = FlowTable::default();
        for nth in 0..1_000_u64 {
            flows.insert_bounded(key(&nth.to_string().into()), nth, ());
        }
        assert_eq!(
            flows.first().map(|(rank, _)| rank),
            Some(1_000 - MAX_FLOWS as u64)
        );
        assert!(flows.find(key(&"999".into())).is_some());
        assert!(flows.find(key(&"1".into())).is_none());
    }
}
