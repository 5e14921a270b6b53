//! The handle of a layer: the operator's pages.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;

use super::DurableBody;
use super::admin;
use super::shared::Front;
use crate::durable::Store;

/// Shows all stored requests, retries them and pauses queues. Made by [`DurableLayer::handle`](super::DurableLayer::handle).
#[derive(Clone)]
pub struct DurableHandle(pub(super) Arc<Front>);

impl DurableHandle {
    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Answers a request of an operator, who sees the requests of all tenants. `None` if there is no such page.
    ///
    /// It does not ask who the operator is: that is for the server around it.
    ///
    /// | path | answer |
    /// |---|---|
    /// | `/requests…` | the pages of a [`DurableLayer`](super::DurableLayer#pages); `?tenant=` in lists |
    /// | `POST /requests/{id}/retry` | the request, which is put back into its queue if it has failed |
    /// | `GET /durable` | the pauses, and the depth of each queue and level |
    /// | `POST /durable/pause` | no request is taken, of a `queue` or of a `tenant` or at all, until it is resumed or until a time: `{"queue": "llama3", "reason": "new weights", "until": 1767225600}` |
    /// | `POST /durable/resume` | the same `queue` or `tenant`: its requests are taken again |
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
