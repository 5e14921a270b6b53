//! The handle of a layer, which serves the pages of operators.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;

use super::DurableBody;
use super::admin;
use super::shared::Front;
use crate::Store;

/// A handle with which an operator sees, retries and pauses all stored requests.
///
/// [`DurableLayer::handle`](super::DurableLayer::handle) returns it.
#[derive(Clone)]
pub struct DurableHandle(pub(super) Arc<Front>);

impl DurableHandle {
    /// Returns the store that the layer uses.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Answers a request of an operator, with access to the requests of all tenants. Returns `None` if the path belongs
    /// to another handler.
    ///
    /// The handle trusts every caller, so the server around it has to authenticate operators.
    ///
    /// | path | answer |
    /// |---|---|
    /// | `/requests…` | the pages of a [`DurableLayer`](super::DurableLayer#pages); `?tenant=` in lists |
    /// | `POST /requests/{id}/retry` | the request, which is put back into its queue if it has failed |
    /// | `GET /durable` | the pauses, and the depth of each queue and level |
    /// | `POST /durable/pause` | workers leave the requests of a `queue`, of a `tenant` or of the whole store alone, until they are resumed or until a time: `{"queue": "llama3", "reason": "new weights", "until": 1767225600}` |
    /// | `POST /durable/resume` | workers take the requests of this `queue`, of this `tenant` or of the whole store again |
    pub async fn admin(
        &self,
        request: Request<Bytes>,
    ) -> Option<Response<DurableBody<Full<Bytes>>>> {
        let response = admin::answer(&self.0, request).await?;
        Some(response.map(DurableBody::own))
    }
}

impl fmt::Debug for DurableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableHandle").finish_non_exhaustive()
    }
}
