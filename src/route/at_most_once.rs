//! The mark of a request that at most one endpoint may work on.

/// A request extension that lets at most one endpoint work on the request.
///
/// A router retries such a request only if the connection to the endpoint failed, or if the endpoint refused it because it was
/// full, with 429, 503 or 529. `Forward` sends it over a new connection, because a request that is lost on a kept connection would have to be sent
/// again. A worker of `tower-triage-durable` sets this extension unless its requests are started again after a crash.
///
/// ```
/// use http::Request;
/// use tower_triage::route::AtMostOnce;
///
/// let mut request = Request::post("/v1/payments").body(()).unwrap();
/// request.extensions_mut().insert(AtMostOnce);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtMostOnce;
