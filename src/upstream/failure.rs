//! The failures of `Forward`, which become responses in place of an endpoint's.

use std::time::Duration;

use http::{Method, Response, StatusCode};

use super::ForwardBody;
use crate::endpoints::NoResponse;
use crate::endpoints::on_demand::EndpointEnd;
use crate::http::{BodyFault, Rejection};

/// The reason why there is no response to pass on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("No connection could be made to endpoint '{0}'")]
    Unreachable(String),
    #[error("No connection could be made to endpoint '{0}': {1}")]
    Unsupported(String, &'static str),
    #[error("No connection could be made to endpoint '{0}': the gateway has too many files open")]
    OutOfFiles(String),
    #[error("No connection could be made to endpoint '{0}' within {s} s", s = .1.as_secs_f64())]
    ConnectTimeout(String, Duration),
    #[error("Endpoint '{0}' broke off before it answered")]
    Reset(String),
    /// An endpoint that is started on demand broke off before it had read the request, which may be sent again.
    #[error("Endpoint '{0}' broke off before it had read the request")]
    Unread(String),
    /// An endpoint that is started on demand has crashed. The second field is the failure that the request saw.
    #[error("Model '{0}' ended before it answered")]
    Crashed(String, NoResponse),
    /// An endpoint that is started on demand was stopped at the operator's request.
    #[error("Model '{0}' was unloaded before it answered")]
    Unloaded(String),
    #[error("Endpoint '{0}' did not begin to answer within {s} s", s = .1.as_secs_f64())]
    Timeout(String, Duration),
    #[error("Endpoint '{0}' closed the connection before it had read the request's body")]
    NotRead(String),
    #[error("The request's body broke off on its way to endpoint '{0}'")]
    Body(String),
    /// A layer in front of the router has ended the body.
    #[error("{}", .0.message())]
    BodyFault(BodyFault),
    #[error("The request's path cannot be joined to that of its endpoint")]
    Target,
    #[error("{0} is not supported")]
    Method(Method),
    #[error("No endpoint was chosen for the request: `Forward` goes below a `RouteLayer`")]
    NoEndpoint,
}

/// The `Retry-After` of a response for a model that was unloaded.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Failure {
    pub(super) fn response(&self) -> Response<ForwardBody> {
        use {NoResponse as Why, StatusCode as S};
        // Without a third value, the request was refused before it was sent.
        let (status, code, why) = match self {
            Self::Unreachable(_) | Self::Unsupported(..) => (
                S::BAD_GATEWAY,
                "upstream_unreachable",
                Some(Why::Unreachable),
            ),
            Self::OutOfFiles(_) => (
                S::BAD_GATEWAY,
                "upstream_unreachable",
                Some(Why::OutOfFiles),
            ),
            Self::ConnectTimeout(..) => (
                S::GATEWAY_TIMEOUT,
                "upstream_connect_timeout",
                Some(Why::ConnectTimeout),
            ),
            Self::Reset(_) => (S::BAD_GATEWAY, "upstream_failed", Some(Why::Reset)),
            Self::NotRead(_) => (S::BAD_GATEWAY, "upstream_failed", Some(Why::BodyNotSent)),
            Self::Unread(_) => (S::BAD_GATEWAY, "upstream_failed", Some(Why::Reset)),
            Self::Crashed(_, seen) => (S::BAD_GATEWAY, "model_crashed", Some(*seen)),
            // `Reset` keeps the model from being started again for this request, even if the request was not sent.
            Self::Unloaded(_) => (S::SERVICE_UNAVAILABLE, "model_unloaded", Some(Why::Reset)),
            Self::Timeout(..) => (S::GATEWAY_TIMEOUT, "upstream_timeout", Some(Why::Timeout)),
            Self::Body(_) => (
                S::BAD_REQUEST,
                "request_body_failed",
                Some(Why::BodyNotSent),
            ),
            Self::BodyFault(fault) => {
                let (status, code) = fault.status_and_code();
                (status, code, Some(Why::BodyNotSent))
            }
            Self::Target => (S::BAD_REQUEST, "invalid_path", None),
            Self::Method(_) => (S::METHOD_NOT_ALLOWED, "unsupported_method", None),
            Self::NoEndpoint => (S::INTERNAL_SERVER_ERROR, "no_endpoint_chosen", None),
        };
        // The header is only written for a 503.
        let rejection =
            Rejection::new(status, code, self.to_string()).with_retry_after(RETRY_AFTER);
        let mut response = rejection.into_response().map(ForwardBody::full);
        if let Some(why) = why {
            response.extensions_mut().insert(why);
        }
        response
    }

    /// Returns `true` if the failure may have come from an endpoint that has ended.
    pub(super) fn may_be_an_end(&self) -> bool {
        matches!(
            self,
            Self::Reset(_) | Self::Unread(_) | Self::Unreachable(_) | Self::NotRead(_)
        )
    }

    /// Returns the failure of an endpoint that ended in the way of `end`.
    pub(super) fn by(self, end: EndpointEnd) -> Self {
        let (name, seen) = match self {
            // The request has not ended the endpoint, because it has not read the request.
            Self::Unreachable(name) | Self::Unread(name) => (name, NoResponse::Unreachable),
            // The endpoint may have ended because of the request.
            Self::Reset(name) | Self::NotRead(name) => (name, NoResponse::Reset),
            other => return other,
        };
        match end {
            EndpointEnd::Crashed => Self::Crashed(name, seen),
            EndpointEnd::Killed => Self::Unloaded(name),
        }
    }
}
