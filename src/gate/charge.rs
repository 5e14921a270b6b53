//! Charges for service that is known only once it was given: `Permit::charge`.

#[cfg(feature = "route")]
use std::fmt;

use super::origin::Origin;
use super::permit::Permit;
use super::state::Shared;
use super::with_lock::WithLock;
use crate::admit::{Account, Capacity, Share, Ticket, ask};
#[cfg(feature = "route")]
use crate::sync::Arc;

/// The share that a request with this ticket uses, which is not counted.
pub(super) fn share_of(ticket: &Ticket) -> Share {
    Share {
        tenant: ticket.tenant.clone(),
        level: ticket.priority.0,
        is_counted: false,
    }
}

impl<C: Capacity> Permit<C> {
    /// Charges the request's tenant `cost` units more than its ticket's cost: for tokens that were generated, say.
    ///
    /// Under [`Fair`](crate::Discipline::Fair) the tenant's next request goes that much later, in the request's lane and
    /// level. If none waits, that is remembered until the other tenants have had as much, or the lane is closed because
    /// there are many without waiters. While no request waits that competes for the same slots, nothing is charged: the
    /// tenant had what no other wanted. So between tenants that always wait, the difference of the service they had is
    /// bounded by what may be in flight without being charged for, however the costs are distributed.
    ///
    /// With any other discipline, and for a permit of [`Gate::try_acquire`](crate::Gate::try_acquire), which has no
    /// ticket, this does nothing. May be called any number of times: as a stream goes on, say. Charge before the permit
    /// is dropped: its slot then goes to the right tenant.
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

    /// [`set_share`](Self::set_share), if it is part of one.
    pub(super) fn for_share(mut self, demand: &C::Demand, share: Option<Box<Share>>) -> Self {
        if let Some(share) = share {
            self.set_account(demand, *share);
        }
        self
    }

    /// Sets the tenant that the slot belongs to, for a permit that was given without a ticket.
    #[cfg(feature = "route")]
    pub(crate) fn set_share(&mut self, demand: &C::Demand, ticket: &Ticket) {
        self.set_account(demand, share_of(ticket));
    }

    fn set_account(&mut self, demand: &C::Demand, share: Share) {
        let origin = self.origin();
        // Without a lane, nothing is charged.
        let lane = origin
            .is_fair()
            .then(|| ask::lane(&origin.capacity, demand).ok())
            .flatten();
        let origin = origin.with_account(Account { share, lane });
        self.set_origin(origin);
    }

    /// Charges its tenant, as long as this is kept. `None` if it has none.
    #[cfg(feature = "route")]
    pub(crate) fn charger(&self) -> Option<Charger<C>> {
        let origin = self.origin();
        origin
            .account
            .is_some()
            .then(|| Charger(Arc::clone(origin)))
    }
}

/// As [`Permit::charge`], whether or not the permit is still there.
#[cfg(feature = "route")]
pub(crate) struct Charger<C: Capacity>(Arc<Origin<C>>);

#[cfg(feature = "route")]
impl<C: Capacity> Charger<C> {
    pub(crate) fn charge(&self, cost: u32) {
        self.0.charge_own(cost);
    }

    /// The lane that is charged for.
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
    fn charge(&self, account: &Account<C::Lane>, cost: u32) {
        // Without a waiter no tenant competes.
        if cost == 0 || self.waiting_word().waiting() == 0 {
            return;
        }
        self.with_lock(|_, state, _| state.room.charge(account, cost));
    }
}
