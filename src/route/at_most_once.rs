//! The mark of a request that no two endpoints may work on.

/// An extension of a request that at most one endpoint may work on.
///
/// A router retries such a request only if no connection to the endpoint could be made, or the endpoint refused it with 429
/// or 503. Without this extension it also retries what broke off before a response was there, and what was answered with 502
/// or 504, though the endpoint may have worked on it. `Forward` sends it over a new connection, because a request that a kept
/// one lost would have to be sent again. A [durable worker] sets it unless its requests are
/// started again after a crash.
///
/// ```
/// use http::Request;
/// use tower_triage::route::AtMostOnce;
///
/// let mut request = Request::post("/v1/payments").body(()).unwrap();
/// request.extensions_mut().insert(AtMostOnce);
/// ```
#[cfg_attr(
    feature = "durable",
    doc = "\n[durable worker]: crate::durable::Worker"
)]
#[cfg_attr(not(feature = "durable"), doc = "\n[durable worker]: crate")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtMostOnce;
