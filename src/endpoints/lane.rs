//! Lanes: demands that the same endpoints can serve.

use std::sync::Arc;

use super::EndpointRef;
use super::capabilities::Capabilities;
use super::endpoint_ref::{EndpointId, EndpointState};

/// What all demands have in common that the same endpoints can serve.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    pub(super) name: Arc<str>,
    pub(super) needs: Capabilities,
    /// The shortest context among the endpoints of the name that is long enough: demands for a few tokens more or less
    /// share a lane.
    pub(super) context_length: u32,
    /// The endpoints at which a retried request has failed. It goes to another one, or nowhere.
    pub(super) failed_at: Option<Arc<[EndpointId]>>,
}

impl Lane {
    #[inline]
    pub(super) fn excludes(&self, endpoint: &EndpointState) -> bool {
        let failed_at = self.failed_at.as_deref();
        failed_at.is_some_and(|failed_at| failed_at.contains(&endpoint.cold.id))
    }

    /// The same for another endpoint, after a request failed at `endpoint`.
    pub(super) fn excluding(mut self, endpoint: &EndpointRef) -> Self {
        let before = self.failed_at.as_deref().unwrap_or_default();
        let last = endpoint.state().cold.id;
        let others = before.iter().copied().filter(|&id| id != last);
        self.failed_at = Some(others.chain([last]).collect());
        self
    }

    /// At how many endpoints it has failed.
    pub(super) fn failures(&self) -> u32 {
        self.failed_at.as_deref().unwrap_or_default().len() as u32
    }
}
