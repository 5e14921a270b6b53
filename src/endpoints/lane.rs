//! Lanes: demands that the same endpoints can serve.

use std::sync::Arc;

use super::capabilities::Capabilities;
use crate::admit::PoolId;

/// What all demands have in common that the same endpoints can serve.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    pub(super) name: Arc<str>,
    pub(super) needs: Capabilities,
    /// The shortest context among the endpoints of the name that is long enough: demands for a few tokens more or less
    /// share a lane.
    pub(super) context_length: u32,
    /// The endpoints at which a retried request has failed. It goes to another one, or nowhere.
    pub(super) failed_at: Option<Arc<[PoolId]>>,
}

impl Lane {
    #[inline]
    pub(super) fn excludes(&self, pool: PoolId) -> bool {
        let failed_at = self.failed_at.as_deref();
        failed_at.is_some_and(|failed_at| failed_at.contains(&pool))
    }

    /// At how many endpoints it has failed.
    pub(super) fn failures(&self) -> u32 {
        self.failed_at.as_deref().unwrap_or_default().len() as u32
    }
}
