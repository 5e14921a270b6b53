//! What tenants have: their shares, their limits, and what they are charged.

use super::WaitingRoom;
use crate::admit::{Account, Capacity, Priority, Share, Tenant, Ticket};

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Whether tenants have shares in any lane: what charges are for.
    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        self.queue.is_fair()
    }

    /// The share that a request with this ticket uses, if slots are to be charged or counted for it.
    pub(crate) fn share_of(&self, ticket: &Ticket) -> Option<Box<Share>> {
        let is_counted = self.config().max_concurrent_per_tenant.is_some();
        // Boxed, as most requests have none, and what is returned is moved several times.
        (is_counted || self.is_fair()).then(|| {
            Box::new(Share {
                tenant: ticket.tenant.clone(),
                level: ticket.priority.0,
                is_counted,
            })
        })
    }

    /// A request of `tenant` gives its slot back. To be called once for each slot that was granted while
    /// [`max_concurrent_per_tenant`](crate::admit::WaitingRoomConfig::max_concurrent_per_tenant) was set, but for a waiter that is
    /// [cancelled](Self::cancel); and before [`on_release`](Self::on_release), which then lets waiters of the tenant take
    /// any slot that is free.
    pub fn on_tenant_released(&mut self, tenant: &Tenant) {
        self.unparked |= self.queue.on_tenant_released(tenant);
    }

    /// Charges a tenant for a request that it was served. No waiter is answered, but the head may be another now.
    pub(crate) fn charge(&mut self, account: &Account<C::Lane>, cost: u32) {
        // Elsewhere a flow's usage is a count of requests, whatever they cost.
        if self.queue.charge(account, cost) {
            let Share { tenant, level, .. } = &account.share;
            self.base_mut()
                .on_charged(Priority(*level), tenant, cost.into());
        }
    }
}
