//! The layer for an inner service that cannot be cloned.

use std::sync::Arc;

use tower_layer::Layer;

use super::QueueLayer;
use crate::queue::InvalidQueueConfig;
use crate::queue::handle::QueueHandle;
use crate::queue::protocol::Http;
use crate::queue::service::Queue;
use crate::queue::shared_inner::SharedInner;

/// A [`QueueLayer`] for inner services that cannot be cloned. Created by [`QueueLayer::share_inner`].
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let service = ServiceBuilder::new()
///     .layer(QueueLayer::plain(QueueConfig::inner()).share_inner()?)
///     .rate_limit(100, Duration::from_secs(1))
///     .service(service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) }));
///
/// assert_eq!(service.oneshot(1).await?, 2);
/// # Ok(())
/// # }
/// ```
///
/// The layer makes one service, whose clones share the inner service. The layer is not `Clone`, so functions that make
/// several services, such as `axum::Router::layer`, reject it at compile time. Each further service needs a layer of
/// its own.
///
/// If the inner service's `poll_ready` fails, the request that polled it gets the error. By Tower's contract the service
/// can't be used any more, so it is dropped, and the queue is [closed](QueueHandle::close).
#[derive(Debug)]
pub struct SharedQueueLayer<P = Http>(pub(super) QueueLayer<P>);

impl<P> SharedQueueLayer<P> {
    /// Returns a handle that reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        self.0.handle()
    }
}

impl<S, P: Clone> Layer<S> for SharedQueueLayer<P> {
    type Service = Queue<SharedInner<S>, P>;

    /// # Panics
    ///
    /// Panics if it is called for the second time.
    fn layer(&self, inner: S) -> Self::Service {
        let Self(layer) = self;
        if !layer.inner.add_shared() {
            panic!("{}", InvalidQueueConfig::NotAlone);
        }
        let (state, protocol) = (Arc::clone(&layer.state), layer.protocol.clone());
        Queue::new(SharedInner::new(inner, self.handle()), state, protocol)
    }
}
