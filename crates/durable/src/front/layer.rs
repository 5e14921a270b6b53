//! The layer that adds durable requests to a service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::shared::Front;
use super::{Classifier, Durable, DurableHandle};
use crate::{BodyMemory, StorageQuota, Store};
use tower_triage::rejection::Rejection;

/// A layer that stores the requests which ask for it, and passes all others on to the inner service.
///
/// # Requests that are stored
///
/// A request is stored if it has one of these headers:
///
/// | header | meaning |
/// |---|---|
/// | `Prefer: respond-async` | the caller gets a receipt at once |
/// | `Prefer: wait=N` | the caller gets the answer, or after N seconds a receipt; at most [`max_wait`](Self::max_wait) |
/// | `Idempotency-Key` | the caller may send it again: with the same method, path and body it is the same request |
/// | `Cancel-After` | the time after which it is stopped: `90`, `90s`, `1.5m`, `2h`, `7d` |
/// | `Not-Before` | the time before which it may not begin: as `Cancel-After`, or an HTTP date |
/// | `Webhook-URL` | the address that is told when it has ended, if [`webhooks`](Self::webhooks) allows it |
///
/// With [`store_all`](Self::store_all), the layer stores all requests. A caller without a preference gets the response
/// when it is ready. A receipt has the status 202, the headers `Location` and `Retry-After`, and the request as a JSON
/// object. If a caller disconnects, its request goes on, unless the caller sent `x-cancel-on-disconnect: true`.
///
/// The bounds of the [store](crate::StoreConfig) limit stored requests, in place of the bounds of a waiting
/// room.
///
/// # Pages
///
/// The layer itself answers these paths, for callers of the [tenant](Classifier::tenant) that owns the request:
///
/// | path | answer |
/// |---|---|
/// | `GET /requests/{id}` | the request, with position and estimate while it waits; `?wait=N` waits for its end |
/// | `GET /requests/{id}/response` | its response: status, headers and body; 409 before its end |
/// | `GET /requests/{id}/stream` | its events as they come, from `Last-Event-ID` on |
/// | `POST /requests/{id}/cancel` | the request, which is cancelled unless it has ended |
/// | `GET /requests` | the tenant's requests, the newest first: `?status=`, `?limit=` from 1 to 100 (20), `?after=` an id |
///
/// If a request has ended without a response, its caller gets the reason as an error, such as 502 `worker_lost`, 409
/// `request_canceled` or 504 `deadline_exceeded`.
///
/// ```
/// use std::sync::Arc;
/// use axum::{Router, routing::post};
/// use tower_triage_durable::{DurableLayer, Store};
///
/// # fn app(store: Arc<dyn Store>) -> Router {
/// let durable = DurableLayer::new(store).body_limit(1 << 20);
/// Router::new().route("/images", post(|| async { "an image" })).layer(durable)
/// # }
/// ```
#[derive(Clone)]
pub struct DurableLayer(Front);

impl DurableLayer {
    /// Creates a layer that keeps its requests in this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(Front::new(store))
    }

    /// Sets the classifier, which assigns a queue, a level and a tenant to each request. The default is
    /// [`ClassifyHeaders`](super::ClassifyHeaders).
    #[must_use]
    pub fn classify(mut self, classifier: impl Classifier) -> Self {
        self.0.classifier = Arc::new(classifier);
        self
    }

    /// Sets whether the layer stores all requests, `false` by default. With `true`, the inner service stays unused,
    /// which suits a process without slots of its own.
    #[must_use]
    pub fn store_all(mut self, stores_all: bool) -> Self {
        self.0.stores_all = stores_all;
        self
    }

    /// Sets the longest time for which `wait=N` holds a connection, 10 minutes by default.
    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.0.max_wait = max_wait;
        self
    }

    /// Sets the time to live of requests whose callers send no `Cancel-After`, from their arrival or their `Not-Before`. A
    /// request that has not ended by then is cancelled. Without this setting, such a request waits for as long as it takes.
    #[must_use]
    pub fn cancel_after(mut self, time: Duration) -> Self {
        self.0.cancel_after = Some(time);
        self
    }

    /// Sets the largest body of a stored request in bytes, 100 MiB by default. The layer rejects a larger body with 413
    /// `body_too_large`.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.0.body_limit = bytes;
        self
    }

    /// Sets the memory in which the bodies of requests count until they are stored. Without this setting, it is unlimited.
    ///
    /// The layer rejects a request whose body does not fit with 503 `body_memory_full`. The memory should have room for a
    /// body of the size of [`body_limit`](Self::body_limit), because a larger one never fits.
    #[must_use]
    pub fn body_memory(mut self, memory: BodyMemory) -> Self {
        self.0.body_memory = Some(memory);
        self
    }

    /// Allows webhooks to the addresses that `check` accepts. Without this setting, the layer rejects each webhook with
    /// 400 `webhook_not_allowed`.
    #[must_use]
    pub fn webhooks(
        mut self,
        check: impl Fn(&Uri) -> Result<(), Rejection> + Send + Sync + 'static,
    ) -> Self {
        self.0.check_webhook = Some(Arc::new(check));
        self
    }

    /// Sets the limits on what each tenant may store. The layer rejects a request beyond them with 429
    /// `tenant_storage_full`.
    #[must_use]
    pub fn quota(mut self, quota: StorageQuota) -> Self {
        self.0.quota = Some(quota);
        self
    }

    /// Sets a token that tells the layer of the shutdown of the process. When it is cancelled, each waiting caller gets
    /// a receipt, as at the end of `wait=N`, because its request stays stored.
    #[must_use]
    pub fn shutdown(mut self, token: CancellationToken) -> Self {
        self.0.shutdown = token;
        self
    }

    /// Returns a handle with which an operator sees, retries and pauses all stored requests.
    #[must_use]
    pub fn handle(&self) -> DurableHandle {
        DurableHandle(Arc::new(self.0.clone()))
    }
}

impl<S> Layer<S> for DurableLayer {
    type Service = Durable<S>;

    fn layer(&self, inner: S) -> Durable<S> {
        Durable::new(inner, Arc::new(self.0.clone()))
    }
}

impl fmt::Debug for DurableLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableLayer")
            .field("stores_all", &self.0.stores_all)
            .field("max_wait", &self.0.max_wait)
            .field("body_limit", &self.0.body_limit)
            .field("body_memory", &self.0.body_memory)
            .finish_non_exhaustive()
    }
}
