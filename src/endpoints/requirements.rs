//! Requirements: what a request asks of an endpoint, from whatever source.

use std::borrow::Cow;

/// What a request asks of an endpoint.
///
/// ```
/// use tower_triage::endpoints::Requirements;
///
/// let asked = Requirements::from_json(br#"{"model": "llama3:8b", "messages": []}"#)?;
/// assert_eq!(asked.model, "llama3:8b");
/// # Ok::<(), tower_triage::endpoints::RouteError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requirements<'a> {
    /// The name of the model.
    pub model: Cow<'a, str>,
    /// About how many tokens the model must take. Default 0.
    pub estimated_tokens: u32,
    /// Whether it must take images. Default `false`.
    pub vision: bool,
    /// Whether it must call tools. Default `false`.
    pub tools: bool,
    /// Whether it must be held to JSON. Default `false`.
    pub json_mode: bool,
    /// Whether the answer is to be streamed. Default `false`.
    pub stream: bool,
    /// A hash of the prompt's beginning, equal for requests that share it. Default `None`: no prompt.
    pub prefix: Option<u64>,
}

impl<'a> Requirements<'a> {
    /// Nothing but the model.
    #[must_use]
    pub fn new(model: impl Into<Cow<'a, str>>) -> Self {
        Self {
            model: model.into(),
            estimated_tokens: 0,
            vision: false,
            tools: false,
            json_mode: false,
            stream: false,
            prefix: None,
        }
    }
}
