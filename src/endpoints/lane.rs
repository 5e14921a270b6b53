//! Lanes: demands that the same endpoints can serve.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::EndpointRef;
use super::capabilities::Capabilities;
use super::endpoint_ref::EndpointState;

/// What all demands have in common that the same endpoints can serve.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    pub(super) name: Arc<str>,
    pub(super) needs: Capabilities,
    /// The shortest context among the endpoints of the name that is long enough: demands for a few tokens more or less
    /// share a lane.
    pub(super) context_length: u32,
    /// The endpoints at which a retried request has failed. It goes to another one, or nowhere.
    pub(super) failed_at: Option<Arc<[FailedAt]>>,
}

/// An endpoint at which a request has failed. Not its pool: once the endpoint has left, another one may have that.
#[derive(Debug, Clone)]
pub(super) struct FailedAt(Arc<EndpointState>);

impl Lane {
    #[inline]
    pub(super) fn excludes(&self, endpoint: &EndpointState) -> bool {
        let failed_at = self.failed_at.as_deref();
        failed_at.is_some_and(|failed_at| failed_at.iter().any(|it| it.is(endpoint)))
    }

    /// The same for another endpoint, after a request failed at `endpoint`.
    pub(super) fn excluding(mut self, endpoint: &EndpointRef) -> Self {
        let before = self.failed_at.as_deref().unwrap_or_default();
        let others = before.iter().filter(|it| !it.is(endpoint.state()));
        let last = FailedAt(Arc::clone(endpoint.state()));
        self.failed_at = Some(others.cloned().chain([last]).collect());
        self
    }

    /// At how many endpoints it has failed.
    pub(super) fn failures(&self) -> u32 {
        self.failed_at.as_deref().unwrap_or_default().len() as u32
    }
}

impl FailedAt {
    fn is(&self, endpoint: &EndpointState) -> bool {
        std::ptr::eq(&*self.0, endpoint)
    }
}

impl PartialEq for FailedAt {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for FailedAt {}

impl Hash for FailedAt {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.pool.hash(state); // equal endpoints have equal pools
    }
}
