//! A reader of the fields of a JSON body that decide where the request goes.
//!
//! `serde_json` checks that the body is valid while it skips it, and a [`Cursor`] then walks to the fields. This avoids
//! a tree, copies, and a recursion that follows the nesting of the body. A tree would cost more than all the rest of a
//! gateway. Except for the model's name, a value of an unexpected type is ignored, because the endpoint decides if it
//! is allowed.

mod cursor;
mod prefix;
mod prompt;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use crate::endpoints::RouteError;
use cursor::{Cursor, Kind};
use prompt::Prompt;

/// The fields that are read from a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read<'a> {
    /// The model's name, which is borrowed unless it is written with escapes.
    pub(super) model: Cow<'a, str>,
    /// The range of the name in the body, in bytes, including the quotes.
    pub(super) model_at: Range<usize>,
    pub(super) stream: bool,
    pub(super) vision: bool,
    pub(super) tools: bool,
    pub(super) json_mode: bool,
    /// The largest number of tokens in one choice of the answer.
    pub(super) max_tokens: Option<u32>,
    /// The number of choices, over all prompts.
    pub(super) choices: u32,
    /// The length of the prompt in characters. A token that is given as a number counts as four.
    pub(super) text_chars: u64,
    /// A hash that is equal for prompts that begin alike. `None` if the prompt is without text.
    pub(super) prefix: Option<u64>,
}

/// The fields that bound the answer. Endpoints differ in the field that they use, so a client that sends several is
/// bounded by the largest.
const BOUNDS: [&str; 4] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n_predict",
];
/// The fields in which other dialects bound the answer, while they ignore those of [`BOUNDS`].
const BOUNDS_OF_OTHERS: [&str; 3] = ["options", "parameters", "sampling_params"];

/// Reads a body that must be one JSON object.
pub(super) fn read(body: &[u8]) -> Result<Read<'_>, RouteError> {
    // Skipped strings are not validated otherwise, and a body is forwarded as a whole.
    let body = std::str::from_utf8(body).map_err(RouteError::malformed)?;
    let mut at = Cursor::new(body).map_err(RouteError::malformed)?;
    if at.kind() != Kind::Object {
        return Err(RouteError::malformed("not a JSON object"));
    }

    let (mut model, mut twice) = (None, false);
    let (mut stream, mut tools, mut json_mode) = (false, false, false);
    let (mut max_tokens, mut is_unbounded, mut each) = (None, false, 1_u32);
    let (mut instructions, mut prompt) = (Prompt::default(), Prompt::default());
    at.fields(|at, key| {
        if key.is("model") {
            let start = at.offset();
            let written = at.skip();
            twice |= model
                .replace((written, start..start + written.len()))
                .is_some();
        } else if key.is("stream") {
            stream = at.skip() == "true";
        } else if key.is("messages") {
            prompt.messages(at);
        } else if key.is("prompt") || key.is("input") {
            prompt.input(at);
        } else if key.is("instructions") || key.is("system") {
            instructions.input(at);
        } else if key.is("tools") {
            at.items(|at| {
                at.skip();
                tools = true;
            });
        } else if key.is("response_format") {
            json_mode |= is_json(at);
        } else if BOUNDS.iter().any(|name| key.is(name)) {
            match at.skip() {
                "null" => {}
                written => match written.parse::<u32>() {
                    Ok(tokens) if tokens > 0 => max_tokens = max_tokens.max(Some(tokens)),
                    _ => is_unbounded = true,
                },
            }
        } else if BOUNDS_OF_OTHERS.iter().any(|name| key.is(name)) {
            at.skip();
            is_unbounded = true;
        } else if key.is("n") || key.is("best_of") {
            let number = at.skip().parse::<u64>().unwrap_or(1);
            each = each.max(number.try_into().unwrap_or(u32::MAX));
        } else if key.is("text") {
            at.fields(|at, key| {
                if key.is("format") {
                    json_mode |= is_json(at);
                } else {
                    at.skip();
                }
            });
        } else {
            at.skip();
        }
    });

    // Parsers differ in the field that counts if there are two, and the choice of the endpoint would differ, too.
    if twice {
        return Err(RouteError::malformed("duplicate field `model`"));
    }
    let (written, model_at) = model.ok_or_else(RouteError::model_missing)?;
    let model = name(written)?;
    // Clients send `input` before or after `instructions`, but a model always reads it after them.
    let prompt = instructions.then(prompt);
    Ok(Read {
        model,
        model_at,
        stream,
        vision: prompt.vision,
        tools,
        json_mode,
        max_tokens: max_tokens.filter(|_| !is_unbounded),
        choices: each.saturating_mul(prompt.texts.max(1)),
        text_chars: prompt.chars,
        prefix: prompt.prefix(),
    })
}

/// Reads the name of a model from its JSON text.
fn name(written: &str) -> Result<Cow<'_, str>, RouteError> {
    let name = match serde_json::from_str::<Option<&str>>(written) {
        Ok(name) => name.map(Cow::Borrowed),
        Err(_) => match serde_json::from_str(written) {
            Ok(name) => Some(Cow::Owned(name)),
            Err(_) => return Err(RouteError::malformed("`model` must be a string")),
        },
    };
    name.filter(|name| !name.is_empty())
        .ok_or_else(RouteError::model_missing)
}

/// Returns `true` if a format, as in `response_format`, limits the answer to JSON.
fn is_json(at: &mut Cursor<'_>) -> bool {
    let mut json = false;
    at.fields(|at, key| {
        if key.is("type") {
            json = at
                .text()
                .is_some_and(|kind| kind.is("json_object") || kind.is("json_schema"));
        } else {
            at.skip();
        }
    });
    json
}
