//! Lanes, which group demands that the same endpoints can serve.

use std::sync::Arc;

use super::EndpointRef;
use super::capabilities::Capabilities;
use super::endpoint_ref::{EndpointId, EndpointState};

/// The properties that demands share if the same endpoints can serve them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    pub(super) name: Arc<str>,
    pub(super) needs: Capabilities,
    /// The shortest sufficient context among the endpoints of the name. Demands share a lane although one of them needs
    /// a few tokens more.
    pub(super) context_length: u32,
    /// The endpoints at which a retried request has failed, which may not serve it again.
    pub(super) failed_at: Option<Arc<[EndpointId]>>,
}
/// Returns `true` if a retried request has failed at `endpoint` before.

impl Lane {
    #[inline]
    pub(super) fn excludes(&self, endpoint: &EndpointState) -> bool {
        let failed_at = self.failed_at.as_deref();
        failed_at.is_some_and(|failed_at| failed_at.contains(&endpoint.cold.id))
    }

    /// Returns the lane with `endpoint` added to the endpoints that failed the request.
    pub(super) fn excluding(mut self, endpoint: &EndpointRef) -> Self {
        let before = self.failed_at.as_deref().unwrap_or_default();
        let last = endpoint.state().cold.id;
        let others = before.iter().copied().filter(|&id| id != last);
        self.failed_at = Some(others.chain([last]).collect());
        self
    }

    /// Returns the number of endpoints at which the request has failed.
    pub(super) fn failures(&self) -> u32 {
        self.failed_at.as_deref().unwrap_or_default().len() as u32
    }
}
