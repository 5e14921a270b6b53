//! The layer of queues by key.

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::handle::PerKeyHandle;
use super::rooms::Rooms;
use super::service::PerKeyQueue;
use crate::queue::layer::QueueLayer;
use crate::queue::map_response_body::MapResponseBodyLayer;
use crate::queue::{ObservedLayer, Observer, QueueResponseBody};

/// A layer with a queue for each key of requests. Created by [`QueueLayer::per_key`].
///
/// All services that the layer and its clones make share these queues.
#[derive(Clone)]
pub struct PerKeyLayer<P, F> {
    rooms: Arc<Rooms>,
    protocol: P,
    key: F,
}

impl<P, F> PerKeyLayer<P, F> {
    /// Creates a layer whose queues are configured like that of `layer`, and closed by the same token.
    pub(in crate::queue) fn new(layer: &QueueLayer<P>, key: F) -> Self
    where
        P: Clone,
    {
        let (state, protocol, token) = layer.separate().into_parts();
        let rooms = Arc::new(Rooms::new(state));
        if let Some(token) = token {
            rooms.close_on(token);
        }
        Self {
            rooms,
            protocol,
            key,
        }
    }

    /// Returns a handle that reports on the queues, and changes them while they are in use.
    #[must_use]
    pub fn handle(&self) -> PerKeyHandle {
        PerKeyHandle(Arc::clone(&self.rooms))
    }

    /// Tells `observer` of each request, as [`QueueLayer::observe`] does.
    #[must_use]
    pub fn observe<O: Observer + Clone>(self, observer: O) -> ObservedLayer<Self, O> {
        ObservedLayer::new(self, observer)
    }

    /// Maps the body of every response with `map`, as [`QueueLayer::map_response_body`] does.
    #[must_use]
    pub fn map_response_body<B, N, M>(self, map: M) -> MapResponseBodyLayer<Self, M>
    where
        M: Fn(QueueResponseBody<B>) -> N + Clone,
    {
        MapResponseBodyLayer::new(self, map)
    }
}

impl<S, P: Clone, F: Clone> Layer<S> for PerKeyLayer<P, F> {
    type Service = PerKeyQueue<S, P, F>;

    fn layer(&self, inner: S) -> Self::Service {
        let (protocol, key) = (self.protocol.clone(), self.key.clone());
        PerKeyQueue::new(inner, Arc::clone(&self.rooms), protocol, key)
    }
}

impl<P, F> fmt::Debug for PerKeyLayer<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerKeyLayer").finish_non_exhaustive()
    }
}
