//! One line of an input file, which is a request in JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A request of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The client's name for the request, by which the client finds the response.
    pub(super) custom_id: String,
    /// The body of the request, byte for byte as the client wrote it.
    pub(super) body: &'a str,
}

/// A mistake in an input file, in the format of OpenAI's API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineError {
    /// The error code, for programs.
    pub(super) code: String,
    /// The number of the line, counted from 1. `None` if the mistake concerns the whole file.
    pub(super) line: Option<u64>,
    /// The error message, for people.
    pub(super) message: String,
    /// The name of the wrong field.
    pub(super) param: Option<String>,
}

impl LineError {
    /// Returns a mistake that concerns the whole file.
    pub(super) fn of_file(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            line: None,
            message: message.into(),
            param: None,
        }
    }

    /// Returns a mistake in the field `param` of a line, or in the line itself.
    pub(super) fn new(code: &str, param: Option<&str>, message: impl Into<String>) -> Self {
        Self {
            param: param.map(str::to_owned),
            ..Self::of_file(code, message)
        }
    }

    /// Sets the number of the line.
    pub(super) fn at(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }
}

/// The longest `custom_id` in bytes. It is limited because each running request keeps its `custom_id` in memory.
const MAX_CUSTOM_ID: usize = 512;

#[derive(Deserialize)]
struct Fields<'a> {
    custom_id: Option<Value>,
    method: Option<Value>,
    url: Option<Value>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct BodyFields {
    model: Option<Value>,
    stream: Option<Value>,
}

impl<'a> Line<'a> {
    /// Reads a line of a batch that sends all its requests to `endpoint`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the field if the line is not a JSON object with all fields of a request.
    pub(super) fn parse(line: &'a [u8], endpoint: &str) -> Result<Self, LineError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            let message = format!("this line is not a JSON object of a request: {error}");
            LineError::new("invalid_json_line", None, message)
        };
        let line = std::str::from_utf8(line).map_err(|error| unreadable(&error))?;
        let fields: Fields<'a> = serde_json::from_str(line).map_err(|error| unreadable(&error))?;
        let custom_id = text(fields.custom_id, "custom_id")?;
        if custom_id.is_empty() || custom_id.len() > MAX_CUSTOM_ID {
            let message = format!("`custom_id` must have 1 to {MAX_CUSTOM_ID} bytes");
            return Err(LineError::new(
                "invalid_custom_id",
                Some("custom_id"),
                message,
            ));
        }
        let method = text(fields.method, "method")?;
        if method != "POST" {
            let message = format!("`method` must be \"POST\", not {method:?}");
            return Err(LineError::new("invalid_method", Some("method"), message));
        }
        let url = text(fields.url, "url")?;
        if url != endpoint {
            let message = format!("`url` must be the batch's endpoint {endpoint:?}, not {url:?}");
            return Err(LineError::new("invalid_url", Some("url"), message));
        }
        let body = fields.body.ok_or_else(|| missing("body"))?.get();
        check_body(body)?;
        Ok(Self { custom_id, body })
    }
}

fn check_body(body: &str) -> Result<(), LineError> {
    if !body.starts_with('{') {
        let message = "`body` must be a JSON object";
        return Err(LineError::new("invalid_body", Some("body"), message));
    }
    let fields: BodyFields = serde_json::from_str(body).map_err(|error| {
        LineError::new(
            "invalid_body",
            Some("body"),
            format!("`body` can't be read: {error}"),
        )
    })?;
    if text(fields.model, "body.model")?.is_empty() {
        return Err(missing("body.model"));
    }
    match fields.stream {
        None | Some(Value::Null | Value::Bool(false)) => Ok(()),
        Some(_) => Err(LineError::new(
            "stream_not_supported",
            Some("body.stream"),
            "a request of a batch can't be streamed: leave `stream` out",
        )),
    }
}

fn text(value: Option<Value>, field: &str) -> Result<String, LineError> {
    match value {
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => Err(missing(field)),
        Some(_) => Err(LineError::new(
            "invalid_type",
            Some(field),
            format!("`{field}` must be a string"),
        )),
    }
}

fn missing(field: &str) -> LineError {
    let message = format!("`{field}` is missing");
    LineError::new("missing_required_parameter", Some(field), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = "/v1/chat/completions";

    #[test]
    fn the_body_is_kept_byte_for_byte() {
        let line = r#"{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"n": 1.50,  "model":"m"} ,"x":1}"#;
        let line = Line::parse(line.as_bytes(), CHAT).unwrap();
        assert_eq!(line.custom_id, "a");
        assert_eq!(line.body, r#"{"n": 1.50,  "model":"m"}"#);
    }

    #[test]
    fn each_mistake_names_its_field() {
        let whole = serde_json::json!({
            "custom_id": "a", "method": "POST", "url": CHAT, "body": { "model": "m" }
        });
        let with = |field: &str, value: Value| {
            let mut line = whole.clone();
            line[field] = value;
            line.to_string().into_bytes()
        };
        let body = |value: Value| with("body", value);
        let json = |text: &str| text.as_bytes().to_vec();
        let cases = [
            (json("{"), "invalid_json_line", None),
            (json("[]"), "invalid_json_line", None),
            (json("7"), "invalid_json_line", None),
            (vec![b'"', 0xff, b'"'], "invalid_json_line", None),
            (json("{}"), "missing_required_parameter", Some("custom_id")),
            (
                with("custom_id", 7.into()),
                "invalid_type",
                Some("custom_id"),
            ),
            (
                with("custom_id", "".into()),
                "invalid_custom_id",
                Some("custom_id"),
            ),
            (
                with("custom_id", "x".repeat(513).into()),
                "invalid_custom_id",
                Some("custom_id"),
            ),
            (
                with("method", "GET".into()),
                "invalid_method",
                Some("method"),
            ),
            (
                with("url", "/v1/embeddings".into()),
                "invalid_url",
                Some("url"),
            ),
            (
                with("body", Value::Null),
                "missing_required_parameter",
                Some("body"),
            ),
            (body("m".into()), "invalid_body", Some("body")),
            (
                body(serde_json::json!({})),
                "missing_required_parameter",
                Some("body.model"),
            ),
            (
                body(serde_json::json!({"model": 1})),
                "invalid_type",
                Some("body.model"),
            ),
            (
                body(serde_json::json!({"model": "m", "stream": true})),
                "stream_not_supported",
                Some("body.stream"),
            ),
        ];
        for (line, code, param) in cases {
            let error = Line::parse(&line, CHAT).unwrap_err();
            let line = String::from_utf8_lossy(&line);
            assert_eq!(
                (&*error.code, error.param.as_deref()),
                (code, param),
                "{line}"
            );
        }
        assert!(
            Line::parse(
                &body(serde_json::json!({"model": "m", "stream": false})),
                CHAT
            )
            .is_ok()
        );
    }
}
