//! "Why did this go there?" is asked in the night, of a log that says only where.

use std::sync::Arc;

use super::EndpointRef;

/// What was decided about a request, and why. In the request's extensions for the inner service, and in
/// the response's for whoever is above.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Decision {
    /// Where it goes.
    pub endpoint: EndpointRef,
    /// The model that serves it.
    pub model: Arc<str>,
    /// The name that was asked for.
    pub asked: Arc<str>,
    /// How the one became the other.
    pub via: Via,
    /// Who chose among the endpoints.
    pub strategy: &'static str,
    /// The score by which it was chosen, if the strategy gives one.
    pub score: Option<u32>,
    /// How often it had been tried before: 0 the first time.
    pub retries: u32,
    /// Which of the endpoint's models serves it.
    pub(crate) nth_model: u16,
}

/// How the name that was asked for became the model that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Via {
    /// They are the same.
    Direct,
    /// The name is an alias.
    Alias,
    /// Nobody could serve it.
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
