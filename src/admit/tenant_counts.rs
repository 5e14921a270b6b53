//! Numbers by tenant, of its slots or of its waiters.

use std::collections::HashMap;

use super::Tenant;

/// A number for each tenant. A tenant of 0 takes no memory.
#[derive(Debug, Default)]
pub(crate) struct TenantCounts(HashMap<Tenant, usize>);

impl TenantCounts {
    pub(crate) fn of(&self, tenant: &Tenant) -> usize {
        self.0.get(tenant).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, tenant: &Tenant) {
        match self.0.get_mut(tenant) {
            Some(count) => *count += 1,
            None => {
                self.0.insert(tenant.clone(), 1);
            }
        }
    }

    pub(crate) fn remove(&mut self, tenant: &Tenant) {
        if let Some(count) = self.0.get_mut(tenant) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(tenant);
            }
        }
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }
}
