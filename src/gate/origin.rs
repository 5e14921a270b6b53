//! The origin of a permit: the gate and the account to which its slot belongs.

use std::ops::Deref;

use super::held_slot::Keeper;
use super::state::Shared;
use crate::admit::{Account, Capacity};
use crate::sync::Arc;

/// The origin of a permit: its gate, and the tenant that its slot belongs to if tenants have shares.
///
/// Each gate has one origin without an account. All permits without an account share this origin, so accounts cost them
/// nothing. A permit in a body is one pointer, with an account or without.
pub(super) struct Origin<C: Capacity> {
    shared: Arc<Shared<C>>,
    pub(super) account: Option<Account<C::Lane>>,
    /// The keeper that gets the slot when the request ends, if work of the request may hold the slot for longer.
    keeper: Option<Arc<Keeper<C>>>,
    /// `true` if a slot is nearly always given back to the capacity alone, without the lock. `false` if slots come from
    /// the inner service, or if the origin has an account or a keeper.
    is_plain: bool,
}

impl<C: Capacity> Origin<C> {
    pub(super) fn shared(&self) -> &Arc<Shared<C>> {
        &self.shared
    }

    pub(super) fn new(shared: Arc<Shared<C>>) -> Arc<Self> {
        let is_plain = !shared.from_inner;
        Arc::new(Self {
            shared,
            account: None,
            keeper: None,
            is_plain,
        })
    }

    /// Returns the origin of a permit in the same gate, with this account.
    pub(super) fn with_account(&self, account: Account<C::Lane>) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(&self.shared),
            account: Some(account),
            keeper: None,
            is_plain: false,
        })
    }

    /// Returns the origin of a permit whose slot goes to `keeper`, which gives it back to `origin`.
    pub(super) fn kept_by(keeper: Arc<Keeper<C>>, origin: &Self) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(&origin.shared),
            account: None,
            keeper: Some(keeper),
            is_plain: false,
        })
    }

    /// Gives a slot back, and hands it to the best waiter if there is one. Never unwinds.
    #[inline]
    pub(super) fn release(&self, lease: C::Lease) {
        match self.is_plain {
            true => self.shared.release_plain(lease),
            false => self.release_otherwise(lease),
        }
    }

    /// Gives a slot back that has a keeper, is its tenant's, or may come from the inner service.
    #[cold]
    #[inline(never)]
    fn release_otherwise(&self, lease: C::Lease) {
        if let Some(keeper) = &self.keeper {
            return keeper.keep(lease);
        }
        match &self.account {
            Some(Account { share, .. }) if share.is_counted || share.hold.is_some() => {
                self.shared.release_shared(lease, share);
            }
            _ => self.shared.release(lease),
        }
    }
}

impl<C: Capacity> Deref for Origin<C> {
    type Target = Arc<Shared<C>>;

    #[inline]
    fn deref(&self) -> &Arc<Shared<C>> {
        &self.shared
    }
}
