//! The layer that sends each request to an endpoint that can serve it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::RouteLayerBuilder;
use super::handle::RouterHandle;
use super::service::Route;
use super::shared::RouterShared;
use crate::endpoints::Registry;

/// Reads what each request asks, waits for a slot of an endpoint that can serve it, and passes the choice to the inner
/// service: a [`Decision`](crate::endpoints::Decision) in the request's extensions.
///
/// For the layers around it, a response has extensions, too: the `Decision` of a request that was served, a
/// [`QueueTime`](crate::queue::QueueTime) if it waited, and a
/// [`RejectReason`](crate::RejectReason)`<`[`RouteError`](crate::endpoints::RouteError)`>` if it was rejected.
///
/// An endpoint that is new gets one request at a time until it has answered, or a health check has passed.
///
/// The inner service gets the body as a [`RouteBody`](super::RouteBody); with feature `client`, `Forward` is one
/// that sends it on. Every service that one layer value makes shares the same endpoints and
/// the same waiting room.
///
/// A request for a stream, by its `accept` or by `"stream": true` in its body, may ask to be told its position
/// [while it waits](crate::QueueLayer#status-while-waiting).
///
/// See the [module](super) for an example.
#[derive(Debug, Clone)]
pub struct RouteLayer(pub(super) Arc<RouterShared>);

impl RouteLayer {
    /// Begins to build a layer over the endpoints of `registry`.
    pub fn builder(registry: Registry) -> RouteLayerBuilder {
        RouteLayerBuilder::new(registry)
    }

    /// Closes the waiting room when `token` is cancelled: every waiting request and every later one is answered with
    /// `shutting_down`; running requests finish.
    ///
    /// The room is closed before `cancel` returns, on any runtime or none; at once if `token` has been cancelled
    /// already. Another token takes the place of the one before. A token keeps no layer alive.
    #[must_use]
    pub fn shutdown(self, token: CancellationToken) -> Self {
        self.0.state.close_on(token);
        self
    }

    /// Reports on the endpoints and the waiting room, and changes them while they are in use.
    #[must_use]
    pub fn handle(&self) -> RouterHandle {
        RouterHandle(Arc::clone(&self.0))
    }
}

impl<S> Layer<S> for RouteLayer {
    type Service = Route<S>;

    fn layer(&self, inner: S) -> Route<S> {
        Route::new(inner, Arc::clone(&self.0))
    }
}
