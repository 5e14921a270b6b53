//! An upstream that fails as a closed connection leaves the client to guess who is to blame.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};

use super::ForwardBody;

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
    fn answer(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Unreachable(_) => (
                StatusCode::BAD_GATEWAY,
                "server_error",
                "upstream_unreachable",
            ),
            Self::BrokeOff(_) => (StatusCode::BAD_GATEWAY, "server_error", "upstream_failed"),
            Self::Target => (
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                "invalid_path",
            ),
            Self::Tunnel => (
                StatusCode::NOT_IMPLEMENTED,
                "invalid_request_error",
                "unsupported_method",
            ),
            Self::NoEndpoint => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "server_error",
                "no_endpoint_chosen",
            ),
        }
    }

    pub(super) fn response(&self) -> Response<ForwardBody> {
        let (status, kind, code) = self.answer();
        let error = serde_json::json!({
            "error": { "message": self.to_string(), "type": kind, "param": null, "code": code }
        });
        let mut response = Response::new(ForwardBody::full(error.to_string()));
        *response.status_mut() = status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}
