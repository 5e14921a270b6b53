//! The numbers of slots that tenants hold.

use std::collections::HashMap;

use super::Tenant;

/// The number of slots that each tenant holds. Only slots that were counted when they were granted are included. The
/// numbers survive every change of the configuration, as the slots do.
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
            // A tenant without slots takes no memory.
            if *leases == 0 {
                self.0.remove(tenant);
            }
        }
    }
}
