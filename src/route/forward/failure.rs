//! An upstream that fails as a closed connection leaves the client to guess who is to blame.

use std::time::Duration;

use http::{Response, StatusCode};

use super::ForwardBody;
use crate::http::Rejection;
use crate::route::Unanswered;

/// Why there is no answer to pass on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("No connection could be made to endpoint '{0}'")]
    Unreachable(String),
    #[error("No connection could be made to endpoint '{0}': {1}")]
    NoTls(String, &'static str),
    #[error("No connection could be made to endpoint '{0}': the gateway has too many files open")]
    OutOfFiles(String),
    #[error("No connection could be made to endpoint '{0}' within {s} s", s = .1.as_secs_f64())]
    ConnectTimeout(String, Duration),
    #[error("Endpoint '{0}' broke off before it answered")]
    BrokeOff(String),
    #[error("Endpoint '{0}' did not begin to answer within {s} s", s = .1.as_secs_f64())]
    Timeout(String, Duration),
    #[error("Endpoint '{0}' closed the connection before it had read the request's body")]
    NotRead(String),
    #[error("The request's body broke off on its way to endpoint '{0}'")]
    Body(String),
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
            Self::Unreachable(_) | Self::NoTls(..) | Self::OutOfFiles(_) => {
                (StatusCode::BAD_GATEWAY, "upstream_unreachable")
            }
            Self::ConnectTimeout(..) => (StatusCode::GATEWAY_TIMEOUT, "upstream_connect_timeout"),
            Self::BrokeOff(_) | Self::NotRead(_) => (StatusCode::BAD_GATEWAY, "upstream_failed"),
            Self::Timeout(..) => (StatusCode::GATEWAY_TIMEOUT, "upstream_timeout"),
            Self::Body(_) => (StatusCode::BAD_REQUEST, "request_body_failed"),
            Self::Target => (StatusCode::BAD_REQUEST, "invalid_path"),
            Self::Tunnel => (StatusCode::METHOD_NOT_ALLOWED, "unsupported_method"),
            Self::NoEndpoint => (StatusCode::INTERNAL_SERVER_ERROR, "no_endpoint_chosen"),
        };
        let rejection = Rejection::new(status, code, self.to_string());
        let mut response = rejection.into_response().map(ForwardBody::full);
        if let Some(why) = self.unanswered() {
            response.extensions_mut().insert(why);
        }
        response
    }

    /// What became of the request at its endpoint, if it was on its way.
    fn unanswered(&self) -> Option<Unanswered> {
        match self {
            Self::Unreachable(_) | Self::NoTls(..) => Some(Unanswered::Unreachable),
            Self::OutOfFiles(_) => Some(Unanswered::OutOfFiles),
            Self::ConnectTimeout(..) => Some(Unanswered::ConnectTimeout),
            Self::BrokeOff(_) => Some(Unanswered::BrokeOff),
            Self::Timeout(..) => Some(Unanswered::Timeout),
            Self::NotRead(_) | Self::Body(_) => Some(Unanswered::BodyNotSent),
            Self::Target | Self::Tunnel | Self::NoEndpoint => None,
        }
    }
}
