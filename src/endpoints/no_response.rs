//! The reasons why an endpoint gave no response.

/// The reason why an endpoint gave no response, as an extension of the response that takes its place.
///
/// `Forward` sets the extension and a `RouteLayer` reads it. By its status alone, a 502 from the endpoint looks like
/// the 502 of a proxy that could not reach it. So a response from the endpoint itself lacks this extension, whatever
/// its status.
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
    /// The connection could not be made, because it was refused, the name is unknown or the certificate is not trusted.
    /// The endpoint has not seen the request.
    Unreachable,
    /// The connection could not be made because this process has run out of file descriptors. The endpoint has not seen
    /// the request, and may well be healthy.
    OutOfFiles,
    /// The connection was not made in time. The endpoint has not seen the request.
    ConnectTimeout,
    /// The connection ended before the head of a response arrived, or sent something other than HTTP. The endpoint may
    /// have worked on the request.
    Reset,
    /// The body of the request could not be sent in full. The client broke off, or the connection ended before the
    /// endpoint had read the body, for example because the endpoint refuses a body of this length. The endpoint may
    /// well be healthy.
    BodyNotSent,
    /// The head of the response did not arrive in time. The endpoint may have worked on the request.
    Timeout,
}
