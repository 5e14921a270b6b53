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

/// A borrowed [`Lane`], for a walk over many endpoints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query<'a> {
    pub(super) needs: Capabilities,
    pub(super) context_length: u32,
    failed_at: &'a [PoolId],
}

impl Query<'_> {
    #[inline]
    pub(super) fn is_retry(&self) -> bool {
        !self.failed_at.is_empty()
    }

    #[inline]
    pub(super) fn excludes(&self, pool: PoolId) -> bool {
        self.is_retry() && self.failed_at.contains(&pool)
    }
}

impl Lane {
    pub(crate) fn query(&self) -> Query<'_> {
        Query {
            needs: self.needs,
            context_length: self.context_length,
            failed_at: self.failed_at.as_deref().unwrap_or_default(),
        }
    }

    /// The same lane without the endpoint of `pool`.
    pub(super) fn without(mut self, pool: PoolId) -> Self {
        let before = self.failed_at.as_deref().unwrap_or_default();
        let others = before.iter().copied().filter(|&other| other != pool);
        self.failed_at = Some(others.chain([pool]).collect());
        self
    }
}
