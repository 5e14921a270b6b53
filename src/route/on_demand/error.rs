//! The errors of launchers.

use http::Uri;

/// The reason why endpoints cannot be on demand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOnDemand {
    /// Another endpoint of the router has the name.
    #[error("endpoint {endpoint:?}: another endpoint has this `name`")]
    NameTaken {
        /// The name of both endpoints.
        endpoint: String,
    },
    /// An endpoint has a health check, which would fail while the endpoint is stopped.
    #[error("endpoint {endpoint:?} has a health check, but its launcher knows when it is ready")]
    HealthCheck {
        /// The name of the endpoint.
        endpoint: String,
    },
    /// The load of an endpoint's engine is read, which would fail while the endpoint is stopped.
    #[error(
        "endpoint {endpoint:?} reads the load of its engine, which can't answer while it is stopped"
    )]
    EngineLoad {
        /// The name of the endpoint.
        endpoint: String,
    },
    /// Requests never wait, so no endpoint would be started for them.
    #[error(
        "requests never wait (`overflow = \"shed\"`), so no endpoint would be started for them"
    )]
    Sheds,
    /// The router is gone.
    #[error("the router is gone")]
    NoRouter,
}

/// The reason why an endpoint cannot be started or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CannotStart {
    /// The launcher has no endpoint of the name, or the router is gone.
    #[error("the launcher has no endpoint of this name")]
    NoSuchEndpoint,
    /// The endpoint runs or is being started.
    #[error("the endpoint runs or is being started")]
    NotStopped,
}

/// The error of a URL that is none of an endpoint: it needs `http` or `https`, and a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{url} is not a URL of an endpoint: it begins with `http://` or `https://`, and has a host"
)]
pub struct InvalidUrl {
    pub(super) url: Uri,
}
