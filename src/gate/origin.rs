//! Where a permit is from.

use std::ops::Deref;

use super::state::Shared;
use crate::admit::{Account, Capacity};
use crate::sync::Arc;

/// Where a permit is from: its gate, and whose share its slot is part of, where tenants have shares.
///
/// A gate has one without an account, which all other permits share. So those take no more memory, and no more time, for
/// what they do not have; and a permit in a body is one pointer, with an account or without.
pub(super) struct Origin<C: Capacity> {
    shared: Arc<Shared<C>>,
    pub(super) account: Option<Account<C::Lane>>,
}

impl<C: Capacity> Origin<C> {
    pub(super) fn new(shared: Arc<Shared<C>>) -> Arc<Self> {
        let account = None;
        Arc::new(Self { shared, account })
    }

    /// The origin of a permit in the same gate, with this account.
    pub(super) fn with_account(&self, account: Account<C::Lane>) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(&self.shared),
            account: Some(account),
        })
    }
}

impl<C: Capacity> Deref for Origin<C> {
    type Target = Arc<Shared<C>>;

    #[inline]
    fn deref(&self) -> &Arc<Shared<C>> {
        &self.shared
    }
}
