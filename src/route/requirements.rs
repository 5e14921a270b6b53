//! A router that looks at the model's name alone sends images to models without eyes.

use std::borrow::Cow;
use std::ops::Range;

use super::{RouteError, json};

/// What a request asks of an endpoint.
///
/// ```
/// use tower_triage::route::Requirements;
///
/// let asked = Requirements::from_json(br#"{"model": "llama3:8b", "messages": []}"#)?;
/// assert_eq!(asked.model, "llama3:8b");
/// # Ok::<(), tower_triage::route::RouteError>(())
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
    /// A hash of the beginning of the prompt, equal for requests that share it. Default `None`.
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

    /// What the JSON object `body` asks: its `model`, and whether to `stream`; the other fields have their
    /// defaults. Borrows from the body where it can.
    ///
    /// # Errors
    ///
    /// [`RouteError::MalformedBody`] if it is not one JSON object in UTF-8, or has a `model` that is no
    /// string or stands twice; [`RouteError::ModelMissing`] if it names none.
    pub fn from_json(body: &'a [u8]) -> Result<Self, RouteError> {
        Self::read(body).map(|(asked, _)| asked)
    }

    /// The same, and where the model's name stands.
    pub(super) fn read(body: &'a [u8]) -> Result<(Self, Range<usize>), RouteError> {
        let json::Read { model, stream } = json::read(body)?;
        let asked = Self {
            stream,
            ..Self::new(model)
        };
        Ok((asked, 0..0))
    }
}
