//! The failures of `Forward`, which become responses in place of an endpoint's.

use std::time::Duration;

use http::{Response, StatusCode};

use super::ForwardBody;
use crate::endpoints::NoResponse;
#[cfg(feature = "swap")]
use crate::endpoints::on_demand::End;
use crate::http::Rejection;

/// The reason why there is no response to pass on.
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
    Reset(String),
    /// An endpoint that is started on demand has crashed. The second field is the failure that the request saw.
    #[cfg(feature = "swap")]
    #[error("Model '{0}' ended before it answered")]
    Crashed(String, NoResponse),
    /// An endpoint that is started on demand was stopped at the operator's request.
    #[cfg(feature = "swap")]
    #[error("Model '{0}' was unloaded before it answered")]
    Unloaded(String),
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

/// The `Retry-After` of a response for a model that was unloaded.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Failure {
    pub(super) fn response(&self) -> Response<ForwardBody> {
        let (status, code) = match self {
            Self::Unreachable(_) | Self::NoTls(..) | Self::OutOfFiles(_) => {
                (StatusCode::BAD_GATEWAY, "upstream_unreachable")
            }
            Self::ConnectTimeout(..) => (StatusCode::GATEWAY_TIMEOUT, "upstream_connect_timeout"),
            Self::Reset(_) | Self::NotRead(_) => (StatusCode::BAD_GATEWAY, "upstream_failed"),
            #[cfg(feature = "swap")]
            Self::Crashed(..) => (StatusCode::BAD_GATEWAY, "model_crashed"),
            #[cfg(feature = "swap")]
            Self::Unloaded(_) => (StatusCode::SERVICE_UNAVAILABLE, "model_unloaded"),
            Self::Timeout(..) => (StatusCode::GATEWAY_TIMEOUT, "upstream_timeout"),
            Self::Body(_) => (StatusCode::BAD_REQUEST, "request_body_failed"),
            Self::Target => (StatusCode::BAD_REQUEST, "invalid_path"),
            Self::Tunnel => (StatusCode::METHOD_NOT_ALLOWED, "unsupported_method"),
            Self::NoEndpoint => (StatusCode::INTERNAL_SERVER_ERROR, "no_endpoint_chosen"),
        };
        let rejection = Rejection::new(status, code, self.to_string());
        // The header is only written for a 503.
        let rejection = rejection.with_retry_after(RETRY_AFTER);
        let mut response = rejection.into_response().map(ForwardBody::full);
        if let Some(why) = self.no_response() {
            response.extensions_mut().insert(why);
        }
        response
    }

    /// Returns `true` if the failure may have come from an endpoint that has ended.
    #[cfg(feature = "swap")]
    pub(super) fn may_be_an_end(&self) -> bool {
        matches!(
            self,
            Self::Reset(_) | Self::Unreachable(_) | Self::NotRead(_)
        )
    }

    /// Returns the failure of an endpoint that ended in the way of `end`.
    #[cfg(feature = "swap")]
    pub(super) fn by(self, end: End) -> Self {
        let (name, seen) = match self {
            Self::Unreachable(name) => (name, NoResponse::Unreachable),
            // The endpoint may have ended because of the request.
            Self::Reset(name) | Self::NotRead(name) => (name, NoResponse::Reset),
            other => return other,
        };
        match end {
            End::Crashed => Self::Crashed(name, seen),
            End::Killed => Self::Unloaded(name),
        }
    }

    /// Returns the reason why the endpoint gave no response. Returns `None` if the request was refused before it was
    /// sent.
    fn no_response(&self) -> Option<NoResponse> {
        match self {
            Self::Unreachable(_) | Self::NoTls(..) => Some(NoResponse::Unreachable),
            Self::OutOfFiles(_) => Some(NoResponse::OutOfFiles),
            Self::ConnectTimeout(..) => Some(NoResponse::ConnectTimeout),
            Self::Reset(_) => Some(NoResponse::Reset),
            #[cfg(feature = "swap")]
            Self::Crashed(_, seen) => Some(*seen),
            // `Reset` keeps the model from being started again for this request, even if the request was not sent.
            #[cfg(feature = "swap")]
            Self::Unloaded(_) => Some(NoResponse::Reset),
            Self::Timeout(..) => Some(NoResponse::Timeout),
            Self::NotRead(_) | Self::Body(_) => Some(NoResponse::BodyNotSent),
            Self::Target | Self::Tunnel | Self::NoEndpoint => None,
        }
    }
}
