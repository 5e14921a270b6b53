//! The layer that sends each request to an endpoint that can serve it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::RouteLayerBuilder;
use super::handle::RouteHandle;
use super::service::Route;
use super::shared::RouterShared;
use crate::endpoints::Registry;

/// A layer that sends each request to an endpoint that can serve it. See the [module](super) for an example.
///
/// The choice is a [`Decision`](crate::endpoints::Decision) in the extensions of the request and of its response. For the
/// layers around this one, a response also has a [`QueueTime`](crate::queue::QueueTime) if the request waited, and a
/// [`RejectReason`](crate::RejectReason)`<`[`RouteError`](crate::endpoints::RouteError)`>` if it was rejected.
///
/// The inner service gets the body as a [`RouteBody`](super::RouteBody). All services that one layer value creates share
/// the same endpoints and the same waiting room.
///
/// A request for a stream may ask for reports of its position [while it waits](crate::QueueLayer#status-while-waiting).
/// It asks for a stream by its `accept` header or by `"stream": true` in its body.
#[derive(Debug, Clone)]
pub struct RouteLayer(pub(super) Arc<RouterShared>);

impl RouteLayer {
    /// Creates a builder of a layer over the endpoints of `registry`.
    pub fn builder(registry: Registry) -> RouteLayerBuilder {
        RouteLayerBuilder::new(registry)
    }

    /// Closes the waiting room when `token` is cancelled. Every waiting request and every later one is then rejected
    /// with `shutting_down`, while running requests finish.
    ///
    /// The waiting room is closed before `cancel` returns, on any runtime or without one. A later token replaces an earlier
    /// one. A token does not keep the layer alive.
    #[must_use]
    pub fn shutdown(self, token: CancellationToken) -> Self {
        self.0.state.close_on(token);
        self
    }

    /// Returns a handle that reports on the endpoints and the waiting room and changes them while they are in use.
    #[must_use]
    pub fn handle(&self) -> RouteHandle {
        RouteHandle(Arc::clone(&self.0))
    }
}

impl<S> Layer<S> for RouteLayer {
    type Service = Route<S>;

    fn layer(&self, inner: S) -> Route<S> {
        Route::new(inner, Arc::clone(&self.0))
    }
}
