//! A queue for each service that a layer makes.

use std::fmt;

use tower_layer::Layer;

use super::layer::QueueLayer;
use super::map_response_body::MapResponseBodyLayer;
use super::response_body::QueueResponseBody;
use super::service::Queue;

/// A layer that gives each service a queue of its own. Created by [`QueueLayer::per_service`].
#[derive(Clone)]
pub struct PerServiceLayer<P>(QueueLayer<P>);

impl<P> PerServiceLayer<P> {
    pub(super) fn new(layer: QueueLayer<P>) -> Self {
        Self(layer)
    }

    /// Maps the body of every response with `map`, as [`QueueLayer::map_response_body`] does.
    #[must_use]
    pub fn map_response_body<B, N, F>(self, map: F) -> MapResponseBodyLayer<Self, F>
    where
        F: Fn(QueueResponseBody<B>) -> N + Clone,
    {
        MapResponseBodyLayer::new(self, map)
    }
}

impl<S, P: Clone> Layer<S> for PerServiceLayer<P> {
    type Service = Queue<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        self.0.separate().layer(inner)
    }
}

impl<P> fmt::Debug for PerServiceLayer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerServiceLayer").finish_non_exhaustive()
    }
}
