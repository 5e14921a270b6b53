//! The limits of single tenants.

use super::WaitingRoomConfig;
use crate::admit::Tenant;
use crate::setters::setters;

/// The limits of one tenant, in place of those that hold for each tenant.
///
/// A limit of `None` leaves the general one in force, which is
/// [`max_size_per_tenant`](WaitingRoomConfig::max_size_per_tenant) or
/// [`max_concurrent_per_tenant`](WaitingRoomConfig::max_concurrent_per_tenant). In contrast to these two, 0 is a limit of
/// 0 here. Both are `None` by default.
///
/// The limits apply to the tenant that the ticket names. If a classifier or the configuration reads no tenant, all requests
/// have the empty name. A [`RequestQueue`](crate::RequestQueue) has no slots, so it ignores `concurrency`. The first
/// `concurrency` of any tenant sends every arrival through the lock, and does not count the slots that are taken already.
///
/// ```
/// use tower_triage::QueueConfig;
/// use tower_triage::admit::TenantLimits;
///
/// let config = QueueConfig::new(8)
///     .max_concurrent_per_tenant(4)
///     .tenant_limits("team-a", TenantLimits::default().max_size(10).concurrency(2));
/// assert_eq!(config.validate(), Ok(()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "the limits of a tenant")
)]
#[non_exhaustive]
pub struct TenantLimits {
    /// The highest number of requests of the tenant that may wait. With 0, none of them waits.
    pub max_size: Option<usize>,
    /// The highest number of slots that the tenant may have. With 0, none of its requests runs. They wait, if they may,
    /// until the limit is raised.
    pub concurrency: Option<usize>,
}

impl TenantLimits {
    setters! {
        max_size: impl Into<Option<usize>>,
        concurrency: impl Into<Option<usize>>,
    }
}

impl WaitingRoomConfig {
    /// Returns `true` if the waiters of any tenant may be bounded, so that they have to be counted.
    #[inline]
    pub(crate) fn bounds_tenants(&self) -> bool {
        self.max_size_per_tenant.is_some() || !self.tenant_limits.is_empty()
    }

    /// Returns the number of requests of this tenant that may wait.
    pub(crate) fn max_size_of(&self, tenant: &Tenant) -> usize {
        let own = self.tenant_limits.get(tenant);
        let max = own.and_then(|own| own.max_size);
        max.or(self.max_size_per_tenant).unwrap_or(usize::MAX)
    }

    /// Returns `true` if the slots of any tenant are limited. This takes O(n) for n tenants with limits of their own.
    pub(crate) fn limits_slots(&self) -> bool {
        let mut own = self.tenant_limits.values();
        self.max_concurrent_per_tenant.is_some() || own.any(|own| own.concurrency.is_some())
    }

    /// Returns the number of slots that this tenant may have.
    pub(crate) fn max_concurrent_of(&self, tenant: &Tenant) -> usize {
        let own = self.tenant_limits.get(tenant);
        let max = own.and_then(|own| own.concurrency);
        max.or(self.max_concurrent_per_tenant).unwrap_or(usize::MAX)
    }
}
