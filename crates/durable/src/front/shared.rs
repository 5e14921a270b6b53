//! The state that the services and the handle of one layer share.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::estimate::Estimates;
use super::refused::Refused;
use super::{Classifier, ClassifyHeaders};
use crate::store_health::StoreHealth;
use crate::webhooks::CheckWebhook;
use crate::{Found, RequestId, StorageQuota, Store, StoreError, StoreFuture};
use tower_triage::queue::BodyMemory;

/// The store, the classifier and the settings of a layer. Clones share the store, the classifier and the measurements.
#[derive(Clone)]
pub(super) struct Front {
    pub(super) store: Arc<dyn Store>,
    pub(super) classifier: Arc<dyn Classifier>,
    pub(super) stores_all: bool,
    pub(super) max_wait: Duration,
    /// The time to live of a request whose caller sets none.
    pub(super) cancel_after: Option<Duration>,
    pub(super) body_limit: usize,
    /// The memory in which bodies count until they are stored, or `None` if it is unlimited.
    pub(super) body_memory: Option<BodyMemory>,
    /// A check of webhook addresses, or `None` if the layer rejects all webhooks.
    pub(super) check_webhook: Option<Arc<CheckWebhook>>,
    /// The limits on what each tenant may store, or `None` without any.
    pub(super) quota: Option<StorageQuota>,
    pub(super) health: Arc<StoreHealth>,
    pub(super) estimates: Arc<Estimates>,
    pub(super) refused: Arc<Refused>,
    /// A token that is cancelled when waiting callers have to be answered at once.
    pub(super) shutdown: CancellationToken,
}

/// The future of a store that resolves when a request has ended.
pub(super) type Wait<'a> = StoreFuture<'a, Option<Found>>;

impl Front {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            classifier: Arc::new(ClassifyHeaders::default()),
            stores_all: false,
            max_wait: Duration::from_secs(600),
            cancel_after: None,
            body_limit: 100 << 20,
            body_memory: None,
            check_webhook: None,
            quota: None,
            health: Arc::default(),
            estimates: Arc::default(),
            refused: Arc::default(),
            shutdown: CancellationToken::new(),
        }
    }

    /// Waits until a request has ended and returns it, or returns `None` if it is unknown. The wait continues through
    /// outages of the store.
    pub(super) async fn ended(&self, id: RequestId) -> Option<Found> {
        self.ended_after(id, self.store.ended(id)).await
    }

    /// Waits until a request has ended, and uses a wait that was begun before as the first of its waits.
    async fn ended_after(&self, id: RequestId, begun: Wait<'_>) -> Option<Found> {
        let mut begun = Some(begun);
        loop {
            let ended = || begun.take().unwrap_or_else(|| self.store.ended(id));
            if let Some(found) = self.health.until_done(ended).await {
                return Some(found);
            }
            let info = self.health.until_done(|| self.store.get(id)).await?;
            if info.status.has_ended() {
                return Some(info.into());
            }
            // The request was put back into its queue between the two calls, so the wait begins again.
        }
    }

    /// Waits until a request has ended, at most for `limit` and at most until the shutdown, and returns its state at
    /// that time. A wait for the same request that was begun before can be passed as `begun`.
    pub(super) async fn ended_within(
        &self,
        id: RequestId,
        limit: Option<Duration>,
        begun: Option<Wait<'_>>,
    ) -> Result<Option<Found>, StoreError> {
        let begun = begun.unwrap_or_else(|| self.store.ended(id));
        let ended = async {
            let ended = self.ended_after(id, begun);
            match limit {
                Some(limit) => tokio::time::timeout(limit.min(self.max_wait), ended)
                    .await
                    .ok(),
                None => Some(ended.await),
            }
        };
        match self.shutdown.run_until_cancelled(ended).await.flatten() {
            Some(ended) => Ok(ended),
            None => Ok(self.store.get(id).await?.map(Found::from)),
        }
    }

    /// Returns a guard that cancels a request if its caller disconnects.
    pub(super) fn cancel_on_drop(self: &Arc<Self>, id: RequestId) -> CancelOnDrop {
        CancelOnDrop(Some((Arc::clone(self), id)))
    }
}

/// A guard that cancels a request when it is dropped, unless it was defused.
pub(super) struct CancelOnDrop(Option<(Arc<Front>, RequestId)>);

impl CancelOnDrop {
    pub(super) fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // Outside of a Tokio runtime the process ends, so the request stays as it is.
        if let (Some((front, id)), Ok(runtime)) =
            (self.0.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move {
                front.health.until_done(|| front.store.cancel(id)).await;
            });
        }
    }
}
