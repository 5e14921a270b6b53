//! Decisions: the endpoint of a request, and why it was chosen.

use std::sync::Arc;

use super::EndpointRef;

/// What was decided about a request, and why.
///
/// It is in the extensions of the request, for the inner service, and of the response, for the layers above. With
/// feature `serde` it can be written as JSON or in another format, its endpoint by name.
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
    /// Where it goes.
    #[cfg_attr(feature = "serde", serde(serialize_with = "name"))]
    pub endpoint: EndpointRef,
    /// The model that serves it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub model: Arc<str>,
    /// The name that was asked for.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub asked: Arc<str>,
    /// How the one became the other.
    pub via: Via,
    /// The name of the strategy that chose the endpoint.
    pub strategy: &'static str,
    /// The score by which it was chosen, if the strategy gives one.
    pub score: Option<u32>,
    /// How often it had been tried before: 0 the first time.
    pub retries: u32,
    /// The index of the model among those of the endpoint.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) nth_model: u16,
}

/// How the name that was asked for became the model that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Via {
    /// They are the same.
    Direct,
    /// The name is an alias.
    Alias,
    /// It is a fallback of the model that was asked for.
    Fallback,
}

impl Via {
    /// Its name in a log: `direct`, `alias`, `fallback`.
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
