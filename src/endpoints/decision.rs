//! Decisions, each of which records the endpoint of a request and the reasons for the choice.

use std::sync::Arc;

use super::EndpointRef;

/// The endpoint that the router chose for a request, with the reasons for the choice.
///
/// The router puts it into the extensions of the request, for the inner service, and into those of the response, for
/// the layers above. With feature `serde`, it can be serialised, for example as JSON. The endpoint is then written as
/// its name.
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
fn text<S: serde::Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}
