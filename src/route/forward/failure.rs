//! An upstream that fails as a closed connection leaves the client to guess who is to blame.

use http::{Response, StatusCode};

use super::ForwardBody;
use crate::http::Rejection;

/// Why there is no answer to pass on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("No connection could be made to endpoint '{0}'")]
    Unreachable(String),
    #[error("Endpoint '{0}' broke off before it answered")]
    BrokeOff(String),
    #[error("The request's path cannot be joined to that of its endpoint")]
    Target,
    #[error("CONNECT is not supported")]
    Tunnel,
    #[error("No endpoint was chosen for the request: `Forward` goes below a `RouteLayer`")]
    NoEndpoint,
}

impl Failure {
    pub(super) fn response(&self) -> Response<ForwardBody> {
        let (status, code) = match self {
            Self::Unreachable(_) => (StatusCode::BAD_GATEWAY, "upstream_unreachable"),
            Self::BrokeOff(_) => (StatusCode::BAD_GATEWAY, "upstream_failed"),
            Self::Target => (StatusCode::BAD_REQUEST, "invalid_path"),
            Self::Tunnel => (StatusCode::NOT_IMPLEMENTED, "unsupported_method"),
            Self::NoEndpoint => (StatusCode::INTERNAL_SERVER_ERROR, "no_endpoint_chosen"),
        };
        let rejection = Rejection::new(status, code, self.to_string());
        rejection.into_response(false).map(ForwardBody::full)
    }
}
