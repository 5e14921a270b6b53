//! The reasons why an endpoint gave no response.

/// Why an endpoint gave no response, as an extension of the response in its place.
///
/// `Forward` sets it, and a `RouteLayer` reads it: by its status alone, a 502 of the endpoint's own looks like one of a
/// proxy that never reached it. A response of the endpoint's own has no such extension, whatever its status.
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_triage::endpoints::NoResponse;
///
/// let mut response = Response::new("connection refused");
/// *response.status_mut() = StatusCode::BAD_GATEWAY;
/// response.extensions_mut().insert(NoResponse::Unreachable);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoResponse {
    /// No connection could be made: refused, no such name, no trust. The endpoint has not seen the request.
    Unreachable,
    /// No connection could be made because this process has no file descriptors left. It says nothing of the
    /// endpoint, which has not seen the request.
    OutOfFiles,
    /// No connection was made in time. The endpoint has not seen the request.
    ConnectTimeout,
    /// The connection ended, or sent something that is no HTTP, before the head of a response was there. The endpoint
    /// may have worked on the request.
    Reset,
    /// The request's body could not be sent whole: its client broke off, or the connection ended before the
    /// endpoint had read it, as when it refuses a body by its length. It says nothing of the endpoint.
    BodyNotSent,
    /// The head of the response was not there in time. The endpoint may have worked on the request.
    Timeout,
}
