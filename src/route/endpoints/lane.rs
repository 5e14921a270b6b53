//! What demands share that the same endpoints can serve.

use std::sync::Arc;

use crate::admit::PoolId;
use crate::route::capabilities::Capabilities;

/// What demands share that the same endpoints can serve.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    pub(super) name: Arc<str>,
    pub(super) needs: Capabilities,
    /// The shortest context of the endpoints on its way that is long enough, so that equal lanes are served
    /// by equal endpoints although their tokens differ.
    pub(super) context_length: u32,
    /// The endpoints at which it has failed before: it goes to others, or nowhere.
    pub(super) failed_at: Option<Arc<[PoolId]>>,
}

/// A look at a [`Lane`], for a walk over many endpoints.
#[derive(Debug, Clone, Copy)]
pub(in crate::route) struct Asks<'a> {
    pub(super) needs: Capabilities,
    pub(super) context_length: u32,
    /// The endpoints that are left out.
    failed_at: &'a [PoolId],
}

impl Asks<'_> {
    #[inline]
    pub(super) fn is_retry(&self) -> bool {
        !self.failed_at.is_empty()
    }

    #[inline]
    pub(super) fn leaves_out(&self, pool: PoolId) -> bool {
        self.is_retry() && self.failed_at.contains(&pool)
    }
}

impl Lane {
    pub(in crate::route) fn asks(&self) -> Asks<'_> {
        Asks {
            needs: self.needs,
            context_length: self.context_length,
            failed_at: self.failed_at.as_deref().unwrap_or_default(),
        }
    }

    /// The same lane without `pool`.
    pub(super) fn failed_at(mut self, pool: PoolId) -> Self {
        let before = self.failed_at.as_deref().unwrap_or_default();
        let others = before.iter().copied().filter(|&other| other != pool);
        self.failed_at = Some(others.chain([pool]).collect());
        self
    }
}
