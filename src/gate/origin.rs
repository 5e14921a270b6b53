//! Where a permit is from.

use std::ops::Deref;

use super::state::Shared;
use crate::admit::{Account, Capacity};
use crate::sync::Arc;

/// Where a permit is from: its gate, and the tenant that its slot belongs to, where tenants have shares.
///
/// A gate has one without an account, which all permits without one share, so accounts cost them nothing. A permit in a
/// body is one pointer, with an account or without.
pub(super) struct Origin<C: Capacity> {
    shared: Arc<Shared<C>>,
    pub(super) account: Option<Account<C::Lane>>,
    /// Whether a slot is given back to the capacity alone, if no request waits: nearly always.
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
            is_plain,
        })
    }

    /// The origin of a permit in the same gate, with this account.
    pub(super) fn with_account(&self, account: Account<C::Lane>) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(&self.shared),
            account: Some(account),
            is_plain: false,
        })
    }

    /// Gives a slot back: to the best waiter, if there is one. Never unwinds.
    #[inline]
    pub(super) fn release(&self, lease: C::Lease) {
        match self.is_plain {
            true => self.shared.release_plain(lease),
            false => self.release_otherwise(lease),
        }
    }

    #[cold]
    #[inline(never)]
    fn release_otherwise(&self, lease: C::Lease) {
        match &self.account {
            Some(Account { share, .. }) if share.is_counted => {
                self.shared.release_counted(lease, &share.tenant);
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
