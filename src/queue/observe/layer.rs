//! The layer of a queue with an observer.

use std::fmt;

use tower_layer::Layer;

use super::service::Observed;
use super::{ObservedBody, Observer};
use crate::queue::handle::QueueHandle;
use crate::queue::layer::QueueLayer;
use crate::queue::map_response_body::MapResponseBodyLayer;
use crate::queue::per_key::{PerKeyHandle, PerKeyLayer};

/// A layer whose requests are observed. Created by [`QueueLayer::observe`].
#[derive(Clone)]
pub struct ObservedLayer<L, O> {
    layer: L,
    observer: O,
}

impl<L, O> ObservedLayer<L, O> {
    pub(in crate::queue) fn new(layer: L, observer: O) -> Self {
        Self { layer, observer }
    }
}

impl<P, O> ObservedLayer<QueueLayer<P>, O> {
    /// Returns a handle that reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        self.layer.handle()
    }
}

impl<P, F, O> ObservedLayer<PerKeyLayer<P, F>, O> {
    /// Returns a handle that reports on the queues, and changes them while they are in use.
    #[must_use]
    pub fn handle(&self) -> PerKeyHandle {
        self.layer.handle()
    }
}

impl<L, O: Observer> ObservedLayer<L, O> {
    /// Maps the body of every response with `map`, as [`QueueLayer::map_response_body`] does.
    ///
    /// ```
    /// use axum::{Router, body::Body, routing::get};
    /// use tower::util::option_layer;
    /// # use tower_triage::queue::{Observer, RequestHead};
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// # #[derive(Clone)]
    /// # struct Counts;
    /// # impl Observer for Counts {
    /// #     type Request = ();
    /// #     fn on_arrived(&self, _: &RequestHead<'_>) {}
    /// # }
    /// let config = Some(QueueConfig::new(8)); // `None` if the queue is disabled
    /// let queue = config.map(|config| {
    ///     QueueLayer::new(config).observe(Counts).map_response_body(Body::new)
    /// });
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { "hello" }))
    ///     .layer(option_layer(queue));
    /// ```
    #[must_use]
    pub fn map_response_body<B, N, F>(self, map: F) -> MapResponseBodyLayer<Self, F>
    where
        F: Fn(ObservedBody<B, O>) -> N + Clone,
    {
        MapResponseBodyLayer::new(self, map)
    }
}

impl<S, L: Layer<S>, O: Clone> Layer<S> for ObservedLayer<L, O> {
    type Service = Observed<L::Service, O>;

    fn layer(&self, inner: S) -> Self::Service {
        Observed::new(self.layer.layer(inner), self.observer.clone())
    }
}

impl<L: fmt::Debug, O> fmt::Debug for ObservedLayer<L, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedLayer")
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}
