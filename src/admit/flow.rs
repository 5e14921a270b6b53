//! Flows, which are groups of requests that share the slots, and the weights of their shares.
//!
//! With the discipline `fair` each tenant is a flow. If levels have weights, each level is a flow, or each tenant of
//! it.

use std::collections::HashMap;

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
    /// Returns the flow of a request in a lane of this discipline.
    #[inline]
    pub(crate) fn new(
        level: u8,
        tenant: &'a Tenant,
        discipline: Discipline,
        config: &WaitingRoomConfig,
    ) -> Self {
        let level = match config.level_weights.is_empty() {
            true => 0,
            false => level,
        };
        let tenant = match discipline {
            Discipline::Fair => Some(tenant),
            _ => None,
        };
        Self { level, tenant }
    }

    /// Returns the name of the flow's tenant, or the empty one for all tenants.
    #[inline]
    pub(crate) fn tenant_name(self) -> &'a Tenant {
        self.tenant.unwrap_or(&ALL_TENANTS)
    }

    /// Returns the flow's weight in relation to the weights of others; at least 1.
    #[inline]
    pub(crate) fn weight(self, config: &WaitingRoomConfig) -> u32 {
        let tenant = self.tenant.and_then(|tenant| config.weights.get(tenant));
        // A configuration that was not validated may have a weight of 0, which counts as 1.
        let tenant = tenant.map_or(1, |&weight| weight.max(1));
        config.level_weight_of(self.level).saturating_mul(tenant)
    }
}

/// A map from flows to values. It consists of one map for each level, because a level and a borrowed tenant could not
/// be looked up together in a single map.
#[derive(Debug)]
pub(crate) struct FlowMap<V>(Vec<HashMap<Tenant, V>>);

impl<V> FlowMap<V> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub(crate) fn get(&self, key: FlowKey<'_>) -> Option<&V> {
        self.0.get(usize::from(key.level))?.get(key.tenant_name())
    }

    pub(crate) fn insert(&mut self, key: FlowKey<'_>, value: V) {
        let level = usize::from(key.level);
        if level >= self.0.len() {
            self.0.resize_with(level + 1, HashMap::new);
        }
        self.0[level].insert(key.tenant_name().clone(), value);
    }

    pub(crate) fn remove(&mut self, key: FlowKey<'_>) {
        if let Some(level) = self.0.get_mut(usize::from(key.level)) {
            level.remove(key.tenant_name());
        }
    }

    /// Gives unused memory back.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.0.iter_mut().for_each(HashMap::shrink_to_fit);
    }
}

impl<V> Default for FlowMap<V> {
    fn default() -> Self {
        Self::new()
    }
}
