//! Whose share a slot is part of.

use super::Tenant;

/// The tenant whose share a slot is part of, and where it has that share.
#[derive(Debug, Clone)]
pub(crate) struct Account<L> {
    pub(crate) tenant: Tenant,
    /// The level in which the request was served: that of its ticket, or a higher one.
    pub(crate) level: u8,
    pub(crate) lane: L,
}
