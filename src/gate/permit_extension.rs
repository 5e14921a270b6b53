//! Permits that were acquired before their requests, and that travel in the requests' extensions.

use std::fmt;

use super::Gate;
use super::permit::Permit;
use crate::admit::Capacity;
use crate::sync::{Arc, Mutex};

/// A permit in the extensions of a request: a slot that was acquired before the request was sent.
///
/// This is for a worker that takes its requests from elsewhere. The worker waits in the gate of a layer with the ticket
/// of its most urgent request, and takes the request only once it holds the slot. So a request stays at its
/// source until it can be served. On its way, the request finds its slot:
/// [`QueueLayer::new`](crate::QueueLayer::new),
#[cfg_attr(feature = "route", doc = "[`RouteLayer`](crate::RouteLayer)")]
#[cfg_attr(not(feature = "route"), doc = "`RouteLayer`")]
/// and `SwapLayer` take the permit in place of another slot if it belongs to their own gate, even if the waiting room
/// is full. In all other respects it is a slot like any other: it is held until the body ends, a limit that adapts is
/// measured, and a retry after a failed attempt waits for a slot of its own. A permit of another gate stays in the
/// extensions.
///
/// A router takes a permit if its endpoint may serve the request, judged by the requested name and by the endpoint's
/// current capabilities and health. Otherwise the slot goes back, and the request is routed like any other.
///
/// Clones share one permit, which can be taken once. If it was not taken, dropping the last clone gives its slot back.
///
/// # Backpressure
///
/// With [`Overflow::Backpressure`](crate::queue::Overflow::Backpressure) a service is ready once it has reserved a
/// place in the waiting room, which it does before it sees a request. So wait for the service first and for the slot
/// then. A reserved place leaves the slots to other requests.
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use tower::{Layer, Service, ServiceExt, service_fn};
/// use tower_triage::{Priority, QueueConfig, QueueLayer, Ticket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let layer = QueueLayer::new(QueueConfig::new(1).max_size(0));
/// let mut service = layer.layer(service_fn(|_: Request<Full<Bytes>>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from("done"))))
/// }));
///
/// // Behind all that clients ask, for as long as it takes.
/// let batch = Ticket::from(Priority(1)).patient();
/// let gate = layer.handle().gate().expect("slots of its own").clone();
/// let permit = gate.acquire(batch, ()).await?;
///
/// let mut request = Request::new(Full::default()); // the most urgent one by now
/// request.extensions_mut().insert(permit.into_extension());
/// let response = service.ready().await?.call(request).await?;
/// assert_eq!(response.status(), 200);
/// assert_eq!(gate.status().running, 1); // until the body ends
/// # Ok(())
/// # }
/// ```
pub struct PermitExtension<C: Capacity>(Arc<Mutex<Option<Permit<C>>>>);

impl<C: Capacity> Permit<C> {
    /// Turns the permit into an extension, which can travel with a request.
    #[must_use]
    pub fn into_extension(self) -> PermitExtension<C> {
        self.origin().shared().expect_extensions();
        PermitExtension(Arc::new(Mutex::new(Some(self))))
    }
}

impl<C: Capacity> PermitExtension<C> {
    /// Takes the permit. Returns `None` if it was taken already, from this clone or another.
    #[must_use]
    pub fn take(&self) -> Option<Permit<C>> {
        let mut permit = self.0.lock().unwrap_or_else(|it| it.into_inner());
        permit.take()
    }

    /// Takes the permit out of the extensions of a request, if they have one of this gate.
    pub(crate) fn take_from(
        extensions: &mut http::Extensions,
        gate: &Gate<C>,
    ) -> Option<Permit<C>> {
        if !extensions.get::<Self>()?.is_of(gate) {
            return None; // the permit stays for an inner layer
        }
        extensions.remove::<Self>()?.take()
    }

    /// Returns `true` if the extension has a permit of this gate.
    fn is_of(&self, gate: &Gate<C>) -> bool {
        let permit = self.0.lock().unwrap_or_else(|it| it.into_inner());
        let shared = permit.as_ref().map(|permit| permit.origin().shared());
        shared.is_some_and(|shared| Arc::ptr_eq(shared, gate.shared()))
    }
}

impl<C: Capacity> Clone for PermitExtension<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Capacity> fmt::Debug for PermitExtension<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitExtension").finish_non_exhaustive()
    }
}
