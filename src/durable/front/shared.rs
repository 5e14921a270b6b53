//! The state that the services and the handle of one layer share.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio_util::sync::CancellationToken;

use super::estimate::Estimates;
use super::{Classifier, ClassifyHeaders};
use crate::durable::store_health::StoreHealth;
use crate::durable::{Found, RequestId, Store, StoreError, StoreFuture};
use crate::rejection::Rejection;

/// The settings of a layer, with its store, classifier and measurements. A clone shares the latter.
#[derive(Clone)]
pub(super) struct Front {
    pub(super) store: Arc<dyn Store>,
    pub(super) classifier: Arc<dyn Classifier>,
    pub(super) stores_all: bool,
    pub(super) max_wait: Duration,
    pub(super) body_limit: usize,
    /// `None` where no webhook is sent.
    pub(super) check_webhook: Option<Arc<CheckWebhook>>,
    pub(super) health: Arc<StoreHealth>,
    pub(super) estimates: Arc<Estimates>,
    /// Cancelled when callers have to be answered at once.
    pub(super) shutdown: CancellationToken,
}

type CheckWebhook = dyn Fn(&Uri) -> Result<(), Rejection> + Send + Sync;

/// A wait for the end of a request.
pub(super) type Wait<'a> = StoreFuture<'a, Option<Found>>;

impl Front {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            classifier: Arc::new(ClassifyHeaders::default()),
            stores_all: false,
            max_wait: Duration::from_secs(600),
            body_limit: 100 << 20,
            check_webhook: None,
            health: Arc::default(),
            estimates: Arc::default(),
            shutdown: CancellationToken::new(),
        }
    }

    /// Waits until a request has ended, and returns it; `None` if it is not known. An outage of the store is waited out.
    pub(super) async fn ended(&self, id: RequestId) -> Option<Found> {
        self.ended_after(id, self.store.ended(id)).await
    }

    /// Waits as [`ended`](Self::ended) does, first in a wait that was begun before.
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
            // It was put back into its queue meanwhile.
        }
    }

    /// Waits as [`ended`](Self::ended) does, but not longer than `limit` and not beyond the shutdown, and returns the request
    /// as it is then. `begun`: a wait for its end that was begun before.
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

    /// Cancels a request when its caller is gone.
    pub(super) fn cancel_on_drop(self: &Arc<Self>, id: RequestId) -> CancelOnDrop {
        CancelOnDrop(Some((Arc::clone(self), id)))
    }
}

/// Cancels a request when it is dropped, unless it was defused.
pub(super) struct CancelOnDrop(Option<(Arc<Front>, RequestId)>);

impl CancelOnDrop {
    pub(super) fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // Outside a runtime no caller is served.
        if let (Some((front, id)), Ok(runtime)) =
            (self.0.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move {
                front.health.until_done(|| front.store.cancel(id)).await;
            });
        }
    }
}
