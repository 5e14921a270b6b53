//! The observer of one request, which learns how far the request has come.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use http::Extensions;

use crate::admit::Ticket;
use crate::endpoints::Decision;

/// An observer of one request on its way through a [`Route`](super::Route), for logs and for pages that show live requests.
///
/// A layer in front of the router puts the observer into the extensions of the request, as an `Arc<dyn RouteObserver>`,
/// and keeps a clone. The layer itself sees the response and the end of its body, so the router reports only the steps
/// before them. Every method does nothing by default.
///
/// A request that is retried is queued and called again, so the steps from [`on_queued`](Self::on_queued) on may repeat.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Instant;
/// use bytes::Bytes;
/// use http::{Request, Response, Uri};
/// use http_body_util::Full;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::RouteLayer;
/// use tower_triage::endpoints::{Decision, Endpoint, Model, Registry};
/// use tower_triage::route::{RouteBody, RouteObserver};
///
/// /// The endpoints that a request was sent to.
/// #[derive(Default)]
/// struct Tries(Mutex<Vec<String>>);
///
/// impl RouteObserver for Tries {
///     fn on_called(&self, decision: &Decision, _: Instant) {
///         self.0.lock().unwrap().push(decision.endpoint.name().to_owned());
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gpu = Endpoint::new("gpu-1", Uri::from_static("http://127.0.0.1:9001"))
///     .model(Model::new("llama3:8b"));
/// let service = ServiceBuilder::new()
///     .layer(RouteLayer::builder(Registry::new(vec![gpu])?).build())
///     .service(service_fn(|_: Request<RouteBody<Full<Bytes>>>| async {
///         Ok::<_, std::convert::Infallible>(Response::new(Full::from("hello")))
///     }));
///
/// let tries = Arc::new(Tries::default());
/// let observer: Arc<dyn RouteObserver> = tries.clone();
/// let mut request = Request::new(Full::from(r#"{"model": "llama3:8b"}"#));
/// request.extensions_mut().insert(observer);
/// service.oneshot(request).await?;
/// assert_eq!(*tries.0.lock().unwrap(), ["gpu-1"]);
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// The methods run in the task of the request, outside the locks of the router. A panic ends the request, which then
/// holds neither a slot nor a place.
pub trait RouteObserver: Send + Sync + 'static {
    /// Returns `true` if the router reads the ticket of every request for [`on_ticket`](Self::on_ticket). Default `false`,
    /// because a request that finds a slot free needs no ticket.
    fn wants_ticket(&self) -> bool {
        false
    }

    /// Returns `true` if the router counts the tokens of the answer for [`on_tokens`](Self::on_tokens). Default `false`,
    /// because counting looks at each part of the answer. The endpoint is asked for an answer that is not compressed if the
    /// request is a `POST`, because a `usage` is read from it.
    fn wants_tokens(&self) -> bool {
        false
    }

    /// Records that the body of the request arrives in parts, and is read since `at`.
    fn on_reading(&self, _at: Instant) {}

    /// Records the name of the model that the request asks for, as its client wrote it.
    fn on_asked(&self, _model: &Arc<str>) {}

    /// Records the ticket of the request, with the name of its level. Requests that have to wait have one, and all others
    /// if [`wants_ticket`](Self::wants_ticket) returns `true`.
    fn on_ticket(&self, _ticket: &Ticket, _level: &str) {}

    /// Records that the request has found no slot free, or the inner service not ready, and waits since `at`.
    fn on_queued(&self, _at: Instant) {}

    /// Records that the request has a slot, and is passed to the inner service at `at`. Each try at a request is one call.
    fn on_called(&self, _decision: &Decision, _at: Instant) {}

    /// Records that the head of the endpoint's answer came at `at`. Another try may follow if the answer is a failure.
    fn on_answered(&self, _at: Instant) {}

    /// Records the tokens of the prompt, if the answer has told them, and those of the answer so far. They are counted if
    /// [`wants_tokens`](Self::wants_tokens) returns `true`, and where tenants are
    /// [charged for tokens](super::FairBy::Tokens). While a stream goes on, they are an estimate. They stay an estimate if
    /// the answer ends without a `usage`, which the missing number of the prompt shows.
    fn on_tokens(&self, _prompt: Option<u64>, _output: u64) {}

    /// Records that the answer is an error although its status says success: an event of a stream, a stream without an
    /// event, or the body.
    fn on_error_in_stream(&self) {}
}

/// Returns the observer of a request with these extensions.
#[inline]
pub(super) fn observer(extensions: &Extensions) -> Option<&Arc<dyn RouteObserver>> {
    extensions.get()
}

impl fmt::Debug for dyn RouteObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteObserver").finish_non_exhaustive()
    }
}
