//! The demand that a JSON body has for its endpoint.

use std::borrow::Cow;
use std::ops::Range;

use super::json::{NotJson, Read, Reader, explain, has_items, last_field, string};
use super::prompt::Prompt;
use super::text_length::TOKEN;
use crate::endpoints::{Requirements, RouteError};

/// The fields, beside `options`, in which other dialects bound the answer, while they ignore those that are read.
const BOUNDS_OF_OTHERS: [&str; 2] = ["parameters", "sampling_params"];

impl<'a> Requirements<'a> {
    /// Returns the demand in the JSON object `body`, which may ask for a chat, a completion, an embedding or a
    /// response:
    ///
    /// | field | from |
    /// |---|---|
    /// | `model` | `model` |
    /// | `estimated_tokens` | the text of `messages`, `prompt` or `input`, and of `instructions` or `system`: each character below U+0080 counts a quarter, below U+3000 a half, and any other, such as an ideograph, 1; a number in their place is a token |
    /// | `context_tokens` | those of the longest text of `prompt` or `input` with those of `instructions` or `system`, if there are several texts or lists of tokens; a list of messages shares one context |
    /// | `any_length` | `truncate` or `truncation`, if they ask to cut a long prompt or not to; a number as `truncate_prompt_tokens` or `options.num_ctx`, and `transforms` or `context_management` |
    /// | `max_tokens` | the largest of `max_tokens`, `max_completion_tokens`, `max_output_tokens` and `n_predict`; none if one of them is not a whole number above 0, or there are `options`, `parameters` or `sampling_params`, where other dialects have it |
    /// | `choices` | `n` or `best_of`, for each text of `prompt` or `input` |
    /// | `vision` | a part of a message's content, or of `input`, of type `image_url` or `input_image` |
    /// | `tools` | `tools`, if it is an array and not empty |
    /// | `json_mode` | `response_format` or `text.format` of type `json_object` or `json_schema` |
    /// | `stream` | `stream`, if it is `true` |
    /// | `prefix` | the first 1,024 bytes of `messages`, `prompt` or `input`, up to the end of the first message of a user; after those of `instructions` or `system`, which are all of it if they are as many |
    ///
    /// A value of any other type counts as absent, because the endpoint decides if it is allowed. The result borrows
    /// from the body where it can.
    ///
    /// # Errors
    ///
    /// Returns [`RouteError::MalformedBody`] if the body is not one JSON object in UTF-8, or if its `model` is not a
    /// string or occurs twice. Returns [`RouteError::ModelMissing`] if the body does not name a model.
    pub fn from_json(body: &'a [u8]) -> Result<Self, RouteError> {
        match Self::read(body, true)? {
            (asked, Some(_)) => Ok(asked),
            (_, None) => Err(RouteError::model_missing()),
        }
    }

    /// Returns the demand in `body`, and the range of the model's name in it, including the quotes, if it names a model.
    /// Without `hashes_prefix`, the demand has no `prefix`.
    pub(crate) fn read(
        body: &'a [u8],
        hashes_prefix: bool,
    ) -> Result<(Self, Option<Range<usize>>), RouteError> {
        let (mut asked, model_at, length) = read(body, hashes_prefix)?;
        asked.estimated_tokens = tokens(length);
        Ok((asked, model_at))
    }
}

/// The fields of a body, as far as they were read.
struct Fields<'a> {
    asked: Requirements<'a>,
    /// The value of `model` as it is written.
    model: Option<&'a str>,
    has_two_models: bool,
    /// `true` if a field is named `model` in another case. Some servers ignore the case of names.
    has_other_model: bool,
    max_tokens: Option<u32>,
    is_unbounded: bool,
    instructions: Prompt,
    prompt: Prompt,
}

/// Returns the demand in `body` without the length of its prompt, the range of the model's name, and that length in
/// quarters of a token.
pub(super) fn read(
    body: &[u8],
    hashes_prefix: bool,
) -> Result<(Requirements<'_>, Option<Range<usize>>, u64), RouteError> {
    // The reader does not check the encoding of strings, and a body is forwarded as a whole.
    let body = std::str::from_utf8(body).map_err(RouteError::malformed)?;
    if !body.trim_ascii_start().starts_with('{') {
        return Err(RouteError::malformed("not a JSON object"));
    }
    let mut fields = Fields::new(hashes_prefix);
    let mut json = Reader::new(body);
    json.fields(|json, key| fields.read(json, key))
        .and_then(|()| json.end())
        .map_err(|NotJson| RouteError::malformed(explain(body)))?;
    fields.finish(body)
}

impl<'a> Fields<'a> {
    fn new(hashes_prefix: bool) -> Self {
        Self {
            asked: Requirements::new(""),
            model: None,
            has_two_models: false,
            has_other_model: false,
            max_tokens: None,
            is_unbounded: false,
            instructions: Prompt::new(hashes_prefix),
            prompt: Prompt::new(hashes_prefix),
        }
    }

    /// Reads the value of the field `key`.
    fn read(&mut self, json: &mut Reader<'a>, key: &str) -> Read<()> {
        let asked = &mut self.asked;
        match key {
            "messages" => return self.prompt.messages(json),
            "prompt" | "input" => return self.prompt.input(json),
            "instructions" | "system" => return self.instructions.input(json),
            "model" => self.has_two_models |= self.model.replace(json.value()?).is_some(),
            "stream" => asked.stream = json.value()? == "true",
            "tools" => asked.tools |= has_items(json.value()?),
            "response_format" => asked.json_mode |= is_json(json.value()?),
            "truncate" | "truncation" => {
                let cuts = cuts(json.value()?);
                asked.any_length = asked.any_length.max(cuts);
            }
            "truncate_prompt_tokens" => asked.take_any_length(is_number(json.value()?)),
            "transforms" | "context_management" => asked.take_any_length(!is_empty(json.value()?)),
            "text" => {
                let format = last_field(json.value()?, "format");
                asked.json_mode |= format.is_some_and(is_json);
            }
            // Endpoints differ in the field that they use, so the largest bounds a client that sends several.
            "max_tokens" | "max_completion_tokens" | "max_output_tokens" | "n_predict" => {
                let value = json.value()?;
                match value.parse::<u32>() {
                    Ok(tokens) if tokens > 0 => self.max_tokens = self.max_tokens.max(Some(tokens)),
                    _ => self.is_unbounded |= value != "null",
                }
            }
            "n" | "best_of" => {
                let number = json.value()?.parse::<u64>().unwrap_or(1);
                asked.choices = asked.choices.max(number.try_into().unwrap_or(u32::MAX));
            }
            "options" => {
                let context = last_field(json.value()?, "num_ctx");
                asked.take_any_length(context.is_some_and(is_number));
                self.is_unbounded = true;
            }
            key => {
                self.has_other_model |= key.eq_ignore_ascii_case("model");
                self.is_unbounded |= BOUNDS_OF_OTHERS.contains(&key);
                json.skip()?;
            }
        }
        Ok(())
    }

    /// Returns the demand, the range of the model's name in `body`, and the length of the prompt in quarters of a token.
    /// Without a model, its name is empty and has no range.
    fn finish(
        self,
        body: &str,
    ) -> Result<(Requirements<'a>, Option<Range<usize>>, u64), RouteError> {
        // Parsers differ in the field that counts if there are two, and the choice of the endpoint would, too.
        if self.has_two_models {
            return Err(RouteError::malformed("duplicate field `model`"));
        }
        if self.has_other_model {
            let error = "the field `model` must be written in lower case";
            return Err(RouteError::malformed(error));
        }
        let mut asked = self.asked;
        let mut model_at = None;
        if let Some(written) = self.model {
            asked.model = name(written)?;
            // The value is a part of the body, so the difference of the addresses is its position.
            let start = written.as_ptr().addr() - body.as_ptr().addr();
            model_at = (!asked.model.is_empty()).then(|| start..start + written.len());
        }
        // Clients send `input` before or after `instructions`, but a model always reads it after them.
        let prompt = self.instructions.then(self.prompt);
        asked.context_tokens = prompt.length_in_context().map(tokens);
        asked.vision = prompt.vision;
        asked.max_tokens = self.max_tokens.filter(|_| !self.is_unbounded);
        asked.choices = asked.choices.saturating_mul(prompt.texts.max(1));
        asked.prefix = prompt.prefix.hash();
        Ok((asked, model_at, prompt.length))
    }
}

/// Returns the number of tokens in a text of this length in quarters of a token.
fn tokens(length: u64) -> u32 {
    (length / TOKEN).try_into().unwrap_or(u32::MAX)
}

/// Returns the name of a model, which is empty for `null`.
fn name(written: &str) -> Result<Cow<'_, str>, RouteError> {
    match string(written) {
        Some(name) => Ok(name),
        None if written == "null" => Ok(Cow::Borrowed("")),
        None => Err(RouteError::malformed("`model` must be a string")),
    }
}

/// Returns whether the value of `truncate` or `truncation` asks to cut a prompt that is too long. Returns `None` if it leaves
/// that to the API.
fn cuts(value: &str) -> Option<bool> {
    match value {
        "true" => Some(true),
        "false" => Some(false),
        _ if is_number(value) => Some(true),
        _ => {
            let word = string(value)?;
            let keeps = ["none", "disabled"].iter();
            Some(!keeps.into_iter().any(|it| word.eq_ignore_ascii_case(it)))
        }
    }
}

/// Returns `true` if a value is a number.
fn is_number(value: &str) -> bool {
    value.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// Returns `true` if a value is `null`, or an array or an object without anything in it.
fn is_empty(value: &str) -> bool {
    let inner = value
        .strip_prefix(['[', '{'])
        .and_then(|rest| rest.strip_suffix([']', '}']));
    value == "null" || inner.is_some_and(|inner| inner.trim_ascii().is_empty())
}

/// Returns `true` if a format, as in `response_format`, limits the answer to JSON.
fn is_json(format: &str) -> bool {
    let kind = last_field(format, "type").and_then(string);
    matches!(kind.as_deref(), Some("json_object" | "json_schema"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requirements_are_read_from_a_body() {
        let body = br#"{
            "model": "llava",
            "messages": [
                {"role": "system", "content": "Answer in JSON."},
                {"role": "user", "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
                ]}
            ],
            "tools": [{"type": "function", "function": {"name": "look_up"}}],
            "response_format": {"type": "json_object"},
            "stream": true
        }"#;
        let (asked, model_at) = Requirements::read(body, true).unwrap();
        assert_eq!(&body[model_at.unwrap()], br#""llava""#);
        assert_eq!(
            asked,
            Requirements {
                estimated_tokens: 7, // a quarter of the 28 characters
                vision: true,
                tools: true,
                json_mode: true,
                stream: true,
                prefix: asked.prefix,
                ..Requirements::new("llava")
            }
        );
        assert!(asked.prefix.is_some());
    }

    #[test]
    fn a_body_that_asks_nothing_has_the_defaults() {
        for body in [
            r#"{"model":"m"}"#,
            r#"{"model":"m","messages":[],"tools":[],"response_format":{"type":"text"}}"#,
        ] {
            let asked = Requirements::from_json(body.as_bytes());
            assert_eq!(asked, Ok(Requirements::new("m")), "{body}");
        }
    }

    #[test]
    fn the_answers_bound_is_the_largest_that_any_dialect_reads() {
        for (fields, max_tokens, choices) in [
            (r#""max_tokens":7"#, Some(7), 1),
            (r#""max_tokens":7,"max_completion_tokens":9"#, Some(9), 1),
            (r#""max_tokens":7,"max_tokens":1"#, Some(7), 1),
            (r#""max_output_tokens":5,"max_tokens":null"#, Some(5), 1),
            (r#""max_tokens":1,"n_predict":-1"#, None, 1),
            (r#""max_tokens":0"#, None, 1),
            (r#""max_tokens":1e300"#, None, 1),
            (r#""max_tokens":99999999999"#, None, 1),
            (r#""max_tokens":1,"options":{"num_predict":900}"#, None, 1),
            (r#""n":3,"best_of":5"#, None, 5),
            (r#""n":"3""#, None, 1),
            (r#""n":0"#, None, 1),
            (r#""n":99999999999"#, None, u32::MAX),
            (r#""n":2,"prompt":["a","b","c"]"#, None, 6),
            (r#""prompt":[[1,2],[3]]"#, None, 2),
            (r#""prompt":[1,2,3]"#, None, 1),
            (r#""input":[{"role":"user","content":["a","b"]}]"#, None, 1),
        ] {
            let body = format!(r#"{{"model":"m",{fields}}}"#);
            let asked = Requirements::from_json(body.as_bytes()).unwrap();
            assert_eq!(
                (asked.max_tokens, asked.choices),
                (max_tokens, choices),
                "{fields}"
            );
        }
    }

    #[test]
    fn a_prompt_that_may_be_cut_has_any_length() {
        for (fields, any_length) in [
            ("", None),
            (r#","truncation":"auto""#, Some(true)),
            (r#","truncation":"disabled""#, Some(false)),
            (r#","truncate":true"#, Some(true)),
            (r#","truncate":false"#, Some(false)),
            (r#","truncate":null"#, None),
            (r#","truncate":"END""#, Some(true)),
            (r#","truncate":"NONE""#, Some(false)),
            (r#","truncate":512"#, Some(true)),
            (r#","truncate_prompt_tokens":-1"#, Some(true)),
            (r#","truncate_prompt_tokens":null"#, None),
            (
                r#","truncate":false,"truncate_prompt_tokens":9"#,
                Some(true),
            ),
            (
                r#","truncate_prompt_tokens":9,"truncate":false"#,
                Some(true),
            ),
            (r#","options":{"num_ctx":32768}"#, Some(true)),
            (r#","options":{"num_predict":9}"#, None),
            (r#","options":{"num_ctx":null}"#, None),
            (r#","transforms":["middle-out"]"#, Some(true)),
            (r#","transforms":[ ]"#, None),
            (
                r#","context_management":{"edits":[{"type":"clear"}]}"#,
                Some(true),
            ),
            (r#","context_management":null"#, None),
        ] {
            let body = format!(r#"{{"model":"m"{fields}}}"#);
            let asked = Requirements::from_json(body.as_bytes()).unwrap();
            assert_eq!(asked.any_length, any_length, "{fields}");
        }
    }

    #[test]
    fn tokens_are_estimated_over_all_texts() {
        for (letters, tokens) in [(0, 0), (3, 0), (4, 1), (7, 1), (4_001, 1_000)] {
            let (half, rest) = ("x".repeat(letters / 2), "y".repeat(letters - letters / 2));
            let body = format!(
                r#"{{"model":"m","messages":[{{"content":"{half}"}},{{"content":"{rest}"}}]}}"#
            );
            let asked = Requirements::from_json(body.as_bytes()).unwrap();
            assert_eq!(asked.estimated_tokens, tokens, "{letters}");
        }
    }
    #[test]
    fn the_longest_text_of_a_list_counts_in_a_context() {
        let long = "x".repeat(40);
        for (fields, context_tokens, estimated_tokens) in [
            (format!(r#""input":"{long}""#), None, 10),
            (format!(r#""input":["{long}"]"#), None, 10),
            (format!(r#""input":["{long}","abcd"]"#), Some(10), 11),
            (format!(r#""input":["abcd","{long}","abcd"]"#), Some(10), 12),
            (r#""prompt":[[1,2],[3,4,5],[6]]"#.to_owned(), Some(3), 6),
            (r#""prompt":[1,2,3]"#.to_owned(), None, 3),
            (
                format!(r#""input":["abcd","abcd"],"instructions":"{long}""#),
                Some(11),
                12,
            ),
            (
                format!(r#""system":["abcd","abcd"],"prompt":"{long}""#),
                None,
                12,
            ),
            (
                format!(r#""input":[{{"content":"{long}"}},{{"content":"{long}"}}]"#),
                None,
                20,
            ),
        ] {
            let body = format!(r#"{{"model":"m",{fields}}}"#);
            let asked = Requirements::from_json(body.as_bytes()).unwrap();
            assert_eq!(
                (asked.context_tokens, asked.estimated_tokens),
                (context_tokens, estimated_tokens),
                "{fields}"
            );
        }
    }
}
