//! Charges for service whose cost is known only afterwards: `Permit::charge`.

#[cfg(feature = "route")]
use std::fmt;

use super::origin::Origin;
use super::permit::Permit;
use super::state::Shared;
use super::with_lock::WithLock;
use crate::admit::{Account, Capacity, Share, Ticket, ask};
use crate::clock;
#[cfg(feature = "route")]
use crate::sync::Arc;

/// Returns the share of a request that got its slot without the lock. It does not count for its tenant's limit.
pub(super) fn share_of(ticket: &Ticket) -> Share {
    Share {
        tenant: ticket.tenant.clone(),
        level: ticket.priority.0,
        is_counted: false,
        hold: None,
    }
}

impl<C: Capacity> Permit<C> {
    /// Charges the request's tenant `cost` units more than its ticket's cost, for example for generated tokens.
    ///
    /// Under [`Fair`](crate::Discipline::Fair), the charge moves the tenant's next request back in the request's lane
    /// and level. If the tenant has no waiter, the charge is remembered until the other tenants have had as much
    /// service. It is forgotten earlier if the lane is closed because many lanes are without waiters.
    ///
    /// The tenant pays for the request's time with its slot anyway, if that is more than its cost explains, so the charge
    /// matters only beyond that (see [`Fair`](crate::Discipline::Fair)).
    ///
    /// Unused capacity is free: while the waiting room is empty of requests that compete for the same slots, the call
    /// charges nothing, and the time does not count. Between tenants that always have waiters, the difference in service is bounded by the uncharged
    /// work in flight, however the costs are distributed.
    ///
    /// The call does nothing with any other discipline, nor for a permit of
    /// [`Gate::try_acquire`](crate::Gate::try_acquire), which has no ticket. It may be called any number of times, for
    /// example while a stream goes on. Charge before the permit is dropped, because its slot then goes to the right
    /// tenant.
    ///
    /// ```
    /// use tower_triage::{Discipline, Gate, Priority, SlotPool, Ticket, WaitingRoomConfig};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let config = WaitingRoomConfig::default().discipline(Discipline::Fair);
    /// let gate = Gate::new(SlotPool::new(1), config);
    /// let ticket = Ticket::from(Priority::HIGHEST).tenant("team-a".into());
    /// let permit = gate.acquire(ticket.cost(200), ()).await.unwrap();
    /// // 1,000 tokens later, each of which costs as much as two of the prompt:
    /// permit.charge(2 * 1_000);
    /// # }
    /// ```
    pub fn charge(&self, cost: u32) {
        self.origin().charge_own(cost);
    }

    /// Sets the tenant's account on the permit, if it is part of a share. `cost` is that of its ticket.
    pub(super) fn for_share(
        mut self,
        demand: &C::Demand,
        share: Option<Box<Share>>,
        cost: u32,
    ) -> Self {
        if let Some(share) = share {
            self.set_account(demand, *share, cost);
        }
        self
    }

    /// Returns `true` if the slot belongs to a tenant.
    pub(crate) fn has_account(&self) -> bool {
        self.origin().account.is_some()
    }

    /// Sets the tenant that the slot belongs to, for a permit that was given without a ticket.
    pub(crate) fn set_share(&mut self, demand: &C::Demand, ticket: &Ticket) {
        self.set_account(demand, share_of(ticket), ticket.cost);
    }

    /// Gives the permit an origin with an account for `share`, in the lane of `demand`. If the slot was given without the
    /// lock, the room is told that the tenant holds it, with the cost of its ticket.
    fn set_account(&mut self, demand: &C::Demand, mut share: Share, cost: u32) {
        let origin = self.origin();
        if share.hold.is_none() && origin.is_fair() {
            let now = clock::now();
            share.hold = origin.with_lock(|shared, state, _| {
                let slot = (&shared.capacity, self.lease());
                state
                    .room
                    .begin_hold_at_once(slot, demand, &share, cost, now)
            });
        }
        // Charges need a lane, so an account without a lane is free of charge.
        let lane = origin
            .is_fair()
            .then(|| ask::lane(&origin.capacity, demand).ok())
            .flatten();
        let origin = origin.with_account(Account { share, lane });
        self.set_origin(origin);
    }

    /// Returns a handle that charges the permit's tenant. Returns `None` if the permit has no tenant.
    #[cfg(feature = "route")]
    pub(crate) fn charger(&self) -> Option<Charger<C>> {
        let origin = self.origin();
        origin
            .account
            .is_some()
            .then(|| Charger(Arc::clone(origin)))
    }
}

/// A handle that charges a permit's tenant, even after the permit was dropped.
#[cfg(feature = "route")]
pub(crate) struct Charger<C: Capacity>(Arc<Origin<C>>);

#[cfg(feature = "route")]
impl<C: Capacity> Charger<C> {
    /// Charges the tenant `cost` units more, as [`Permit::charge`] does.
    pub(crate) fn charge(&self, cost: u32) {
        self.0.charge_own(cost);
    }

    /// Returns the lane in which the tenant is charged.
    pub(crate) fn lane(&self) -> Option<&C::Lane> {
        self.0.account.as_ref()?.lane.as_ref()
    }
}

#[cfg(feature = "route")]
impl<C: Capacity> fmt::Debug for Charger<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charger").finish_non_exhaustive()
    }
}

impl<C: Capacity> Origin<C> {
    fn charge_own(&self, cost: u32) {
        if let Some(account) = &self.account {
            self.charge(account, cost);
        }
    }
}

impl<C: Capacity> Shared<C> {
    /// Charges the account under the lock, unless the charge would have no effect.
    fn charge(&self, account: &Account<C::Lane>, cost: u32) {
        // Tenants compete only while requests wait. The price of slot time is learned from all charges, though.
        let is_free = account.share.hold.is_none() && self.waiting_word().waiting() == 0;
        if cost == 0 || is_free {
            return;
        }
        self.with_lock(|_, state, _| state.room.charge(account, cost));
    }
}
