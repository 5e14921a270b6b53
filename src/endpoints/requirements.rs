//! The requirements of a request, which may come from any source.

use std::borrow::Cow;

/// The properties that a request needs in an endpoint.
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
    /// The name of the model. It is empty if the request names none.
    pub model: Cow<'a, str>,
    /// The approximate number of tokens in the prompt, or in all prompts together. Default 0.
    pub estimated_tokens: u32,
    /// The approximate number of tokens that share one context. Default `None`, for `estimated_tokens`.
    ///
    /// Each text of a list has a context of its own, so the longest text counts here. A request goes to an endpoint whose
    /// context has as many tokens. If no context has, it goes to the longest one, because the number is an estimate, and
    /// it is refused only above twice the longest context.
    pub context_tokens: Option<u32>,
    /// `Some(true)` if the endpoint takes a prompt of any length, because it cuts one that is too long for its context, or because
    /// the request sets the length of the context. Such a request goes to the longest context if it needs it, and is not
    /// refused. `Some(false)` is for a request that is not to be cut. Default `None`, for what the API of its path does.
    pub any_length: Option<bool>,
    /// The maximum number of tokens in one choice of the answer. Default `None`, for as many as the model takes.
    pub max_tokens: Option<u32>,
    /// The number of choices in the answer, over all prompts. Default 1.
    pub choices: u32,
    /// `true` if the model must take images. Default `false`.
    pub vision: bool,
    /// `true` if the model must call tools. Default `false`.
    pub tools: bool,
    /// `true` if the model must be held to JSON. Default `false`.
    pub json_mode: bool,
    /// `true` if the answer is to be streamed. Default `false`.
    pub stream: bool,
    /// `true` if no fallback may serve the request, such as one that changes a setting of its model. Default `false`.
    pub without_fallbacks: bool,
    /// A hash of the prompt's beginning, which is equal for requests that share it. Default `None`.
    pub prefix: Option<u64>,
}

impl<'a> Requirements<'a> {
    /// Makes requirements that consist of the model alone.
    #[must_use]
    pub fn new(model: impl Into<Cow<'a, str>>) -> Self {
        Self {
            model: model.into(),
            estimated_tokens: 0,
            context_tokens: None,
            any_length: None,
            max_tokens: None,
            choices: 1,
            vision: false,
            tools: false,
            json_mode: false,
            stream: false,
            without_fallbacks: false,
            prefix: None,
        }
    }
}

impl Requirements<'_> {
    /// Makes the requirements of a request that names no model. It goes to the
    /// [default endpoint](crate::route::RoutingConfig::default_endpoint), or is rejected with 400 (`model_missing`).
    #[must_use]
    pub fn without_model() -> Self {
        Self::new("")
    }
}

impl Requirements<'_> {
    /// Lets the endpoint take a prompt of any length, if `may`.
    pub(crate) fn take_any_length(&mut self, may: bool) {
        if may {
            self.any_length = Some(true);
        }
    }
}

/// Bounds on the tokens that a request may cost, as far as its body tells.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TokenBounds {
    /// The estimated length of the prompt in tokens.
    pub(crate) prompt: u32,
    max_tokens: Option<u32>,
    choices: u32,
}

impl TokenBounds {
    /// Returns the maximum number of tokens in the prompts of a model with this context.
    pub(crate) fn prompts(self, context_length: u32) -> u64 {
        u64::from(context_length) * u64::from(self.choices)
    }

    /// Returns the maximum number of tokens in the answer of a model with this context.
    pub(crate) fn answer(self, context_length: u32) -> u64 {
        let each = self
            .max_tokens
            .map_or(context_length, |it| it.min(context_length));
        u64::from(each) * u64::from(self.choices)
    }
}

impl From<&Requirements<'_>> for TokenBounds {
    fn from(asked: &Requirements<'_>) -> Self {
        Self {
            prompt: asked.estimated_tokens,
            max_tokens: asked.max_tokens,
            choices: asked.choices,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_costs_at_most_a_context_for_its_prompt_and_its_answer() {
        let body = br#"{"model":"m","input":["a","b","c"],"max_tokens":10}"#;
        let bounds = TokenBounds::from(&Requirements::from_json(body).unwrap());
        assert_eq!((bounds.prompts(100), bounds.answer(100)), (300, 30));
        let bounds = TokenBounds::from(&Requirements::new("m"));
        assert_eq!((bounds.prompts(100), bounds.answer(100)), (100, 100));
    }
}
