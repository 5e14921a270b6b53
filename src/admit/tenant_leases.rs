//! How many slots each tenant has.

use std::collections::HashMap;

use super::Tenant;

/// How many slots each tenant has, of those that were counted when they were granted. Kept through every change of the
/// configuration, as the slots are.
#[derive(Debug, Default)]
pub(crate) struct TenantLeases(HashMap<Tenant, usize>);

impl TenantLeases {
    pub(crate) fn of(&self, tenant: &Tenant) -> usize {
        self.0.get(tenant).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, tenant: &Tenant) {
        match self.0.get_mut(tenant) {
            Some(leases) => *leases += 1,
            None => {
                self.0.insert(tenant.clone(), 1);
            }
        }
    }

    pub(crate) fn remove(&mut self, tenant: &Tenant) {
        if let Some(leases) = self.0.get_mut(tenant) {
            *leases -= 1;
            // Nothing is kept of a tenant without slots.
            if *leases == 0 {
                self.0.remove(tenant);
            }
        }
    }
}
