//! The owner of a slot, for shares and charges.

use super::Tenant;

/// The tenant that holds a slot.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) tenant: Tenant,
    /// The level in which the request was served, which is that of its ticket or a higher one.
    pub(crate) level: u8,
    /// `true` if the slot counts towards its tenant's limit, so that its return has to be reported.
    pub(crate) is_counted: bool,
}

/// The tenant that holds a slot, with the lane in which the tenant is charged for it.
#[derive(Debug, Clone)]
pub(crate) struct Account<L> {
    pub(crate) share: Share,
    /// The lane of the charge. `None` if tenants have no shares.
    pub(crate) lane: Option<L>,
}
