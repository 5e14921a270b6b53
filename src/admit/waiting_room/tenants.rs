//! The shares and limits of tenants.

use super::{HoldId, WaitingRoom};
use crate::admit::{Capacity, Tenant, Ticket};

/// The tenant that holds a slot.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) tenant: Tenant,
    /// The level in which the request was served, which is that of its ticket or a higher one.
    pub(crate) level: u8,
    /// `true` if the slot counts towards its tenant's limit, so that its return has to be reported.
    pub(crate) is_counted: bool,
    /// The name of the slot's hold, if the tenant is charged for it, so that its end has to be reported.
    pub(crate) hold: Option<HoldId>,
}

/// The tenant that holds a slot, with the lane in which the tenant is charged for it.
#[derive(Debug, Clone)]
pub(crate) struct Account<L> {
    pub(crate) share: Share,
    /// The lane of the charge. `None` if tenants have no shares.
    pub(crate) lane: Option<L>,
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Returns `true` if tenants have shares in any lane, so that charges have an effect.
    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        self.queue.is_fair()
    }

    /// Returns the share that a request with this ticket uses, if its slot is to be charged or counted.
    pub(crate) fn share_of(&self, ticket: &Ticket, hold: Option<HoldId>) -> Option<Box<Share>> {
        let is_counted = self.base().limits_slots;
        // Boxed, because most requests have none, and the returned value is moved several times.
        (is_counted || hold.is_some() || self.is_fair()).then(|| {
            Box::new(Share {
                tenant: ticket.tenant.clone(),
                level: ticket.priority.0,
                is_counted,
                hold,
            })
        })
    }

    /// Records that a request of `tenant` gives its slot back.
    ///
    /// The caller has to call this once for each slot that was granted while
    /// [`max_concurrent_per_tenant`](crate::admit::WaitingRoomConfig::max_concurrent_per_tenant) was set or any tenant had
    /// a [`concurrency`](crate::admit::TenantLimits::concurrency), except for a waiter that is
    /// [cancelled](Self::cancel). The call has to come before [`on_release`](Self::on_release), which
    /// then lets waiters of the tenant take any slot that is free.
    pub fn on_tenant_released(&mut self, tenant: &Tenant) {
        self.unparked |= self.queue.on_tenant_released(tenant);
    }
}
