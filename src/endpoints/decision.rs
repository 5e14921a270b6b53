//! Decisions, which record the endpoint of a request and the reasons for the choice, and missing responses.

use std::sync::Arc;

use super::EndpointRef;

/// The endpoint that the router chose for a request, with the reasons for the choice.
///
/// The router puts it into the extensions of the request and of the response. With feature `serde`, it can be serialised, and
/// the endpoint is written as its name.
///
/// ```
/// use http::Response;
/// use tower_triage::endpoints::Decision;
///
/// fn log<B>(response: &Response<B>) {
///     if let Some(decision) = response.extensions().get::<Decision>() {
///         println!("{} served by {}", decision.asked, decision.endpoint.name());
///     }
/// }
/// # log(&Response::new(()));
/// ```
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Decision {
    /// The endpoint that serves the request.
    #[cfg_attr(feature = "serde", serde(serialize_with = "name"))]
    pub endpoint: EndpointRef,
    /// The model that serves the request.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub model: Arc<str>,
    /// The name that the request asked for.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub asked: Arc<str>,
    /// The rule that led from the name to the model.
    pub via: Via,
    /// The name of the strategy that chose the endpoint.
    pub strategy: &'static str,
    /// The score that the strategy gave the endpoint, if the strategy gives scores.
    pub score: Option<u32>,
    /// The number of earlier attempts, which is 0 for the first one.
    pub retries: u32,
    /// The index of the model in the endpoint's list of models.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) nth_model: u16,
}

/// The rule by which the name that was asked for led to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Via {
    /// The name is the name of the model.
    Direct,
    /// The name is an alias of the model.
    Alias,
    /// The model is a fallback of the model that was asked for.
    Fallback,
}

impl Via {
    /// Returns the name in a log, which is `direct`, `alias` or `fallback`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Alias => "alias",
            Self::Fallback => "fallback",
        }
    }
}

#[cfg(feature = "serde")]
fn name<S: serde::Serializer>(endpoint: &EndpointRef, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(endpoint.name())
}

#[cfg(feature = "serde")]
fn text<S: serde::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

/// The reason why an endpoint gave no response, as an extension of the response that takes its place.
///
/// `Forward` sets the extension and a `RouteLayer` reads it, because by its status alone a 502 from the endpoint looks like
/// the 502 of a proxy that could not reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoResponse {
    /// The connection could not be made, for example because it was refused. The endpoint has not seen the request.
    Unreachable,
    /// The connection could not be made because this process has run out of file descriptors. The endpoint may be healthy.
    OutOfFiles,
    /// The connection was not made in time. The endpoint has not seen the request.
    ConnectTimeout,
    /// The connection ended before the head of a response arrived, or sent something other than HTTP. The endpoint may
    /// have worked on the request.
    Reset,
    /// The body of the request could not be sent in full. The client broke off, or the connection ended before the endpoint
    /// had read the body. The endpoint may well be healthy.
    BodyNotSent,
    /// The head of the response did not arrive in time. The endpoint may have worked on the request.
    Timeout,
}

/// The error that the body of an endpoint's answer says, as an extension of the response. The status alone says something
/// else: an error may be the first event of a 200, and an engine that is full may say so by a code in the body of a 503.
///
/// `Forward` sets the extension and a `RouteLayer` reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorInBody {
    /// The endpoint refuses the request because it has too much to do.
    Overloaded,
    /// The endpoint refuses the request because a budget is used up, so the same request will not be served there soon.
    QuotaExceeded,
    /// The endpoint failed. A stream that ends without an event is such a failure, too.
    Failed,
    /// The request is at fault.
    Rejected,
}
