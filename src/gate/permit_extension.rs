//! Permits that were acquired ahead, and ride in the extensions of their requests.

use std::fmt;

use super::Gate;
use super::permit::Permit;
use crate::admit::Capacity;
use crate::sync::{Arc, Mutex};

/// A permit in the extensions of a request: a slot that was acquired before the request was sent.
///
/// For a worker that takes its requests from elsewhere: it waits in the gate of a layer with the ticket of the most urgent
/// one, and only with the slot in hand it takes a request, so that none waits where it can't be served. On its way, the
/// request finds its slot: [`QueueLayer::new`](crate::QueueLayer::new),
#[cfg_attr(feature = "route", doc = "[`RouteLayer`](crate::RouteLayer)")]
#[cfg_attr(not(feature = "route"), doc = "`RouteLayer`")]
/// and `SwapLayer` take the permit, if it is one of their own gate, in place of another slot, and a full waiting room does
/// not matter. All else is as with any slot: it is held until the body ends, a limit that adapts is measured, and an attempt
/// after a failed one waits for a slot of its own. A permit of another gate stays where it is.
///
/// A router takes a permit if its endpoint may serve the request, by the name that was asked for, and its capabilities and
/// health now. Otherwise the slot goes back, and the request is routed like any other.
///
/// Clones share one permit. It is taken once; dropping the last clone gives a slot back that was not taken.
///
/// # Backpressure
///
/// With [`Overflow::Backpressure`](crate::queue::Overflow::Backpressure) a service is ready once a place in the waiting room
/// is reserved, which it asks for before it sees a request. So wait for that first and for the slot then: a place costs no
/// other request its slot.
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
    /// Makes the permit one that rides in a request's extensions.
    #[must_use]
    pub fn into_extension(self) -> PermitExtension<C> {
        self.origin().shared().expect_extensions();
        PermitExtension(Arc::new(Mutex::new(Some(self))))
    }
}

impl<C: Capacity> PermitExtension<C> {
    /// Takes the permit. `None` if it was taken, from this clone or another.
    #[must_use]
    pub fn take(&self) -> Option<Permit<C>> {
        let mut permit = self.0.lock().unwrap_or_else(|it| it.into_inner());
        permit.take()
    }

    /// Takes the permit out of the extensions of a request, if there is one and it is of this gate.
    pub(crate) fn take_from(
        extensions: &mut http::Extensions,
        gate: &Gate<C>,
    ) -> Option<Permit<C>> {
        if !extensions.get::<Self>()?.is_of(gate) {
            return None; // it stays for a layer further on
        }
        extensions.remove::<Self>()?.take()
    }

    /// Returns `true` if it has a permit of this gate.
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
