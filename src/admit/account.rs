//! The tenant that a slot belongs to.

use super::Tenant;

/// The tenant that has a slot.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) tenant: Tenant,
    /// The level in which the request was served: that of its ticket, or a higher one.
    pub(crate) level: u8,
    /// Whether the slot counts for its tenant's limit, and is to be reported when it is given back.
    pub(crate) is_counted: bool,
}

/// The tenant that has a slot, and where it is charged for it.
#[derive(Debug, Clone)]
pub(crate) struct Account<L> {
    pub(crate) share: Share,
    /// `None` where tenants have no shares.
    pub(crate) lane: Option<L>,
}
