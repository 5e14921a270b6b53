//! The first event of an answer, which may be an error although the status says success.

use memchr::memchr;
use serde_json::Value;

use super::error_in_answer::{ErrorForm, LINE, is_error_line, squeezed};
use crate::endpoints::ErrorInBody;

/// The first event of an answer, as far as it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstEvent {
    /// The event is not there yet.
    Awaited,
    /// The answer has ended without one.
    Missing,
    /// The event is an error.
    Error(ErrorInBody),
    /// The event is a part of an answer.
    Answer,
}

/// The number of bytes within which the first event is looked for. A longer one is a part of an answer.
const LONGEST: usize = 16 << 10;

impl ErrorForm {
    /// Reads the first event from the beginning of an answer. `is_whole` is `true` if nothing follows.
    pub(crate) fn first_event(self, beginning: &[u8], is_whole: bool) -> FirstEvent {
        let first = match self {
            Self::Events => first_of_events(beginning, is_whole),
            Self::Lines => first_of_lines(beginning, is_whole),
            Self::Json => match error_in(beginning, is_whole) {
                Some(error) => FirstEvent::Error(error),
                None => FirstEvent::Answer,
            },
        };
        match first {
            FirstEvent::Awaited if beginning.len() >= LONGEST => FirstEvent::Answer,
            FirstEvent::Awaited if is_whole => FirstEvent::Missing,
            first => first,
        }
    }
}

/// Returns the lines that are there in full, each with its position.
fn whole_lines(text: &[u8], is_whole: bool) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = match memchr(b'\n', rest) {
            Some(end) => end,
            None if is_whole && !rest.is_empty() => rest.len(),
            None => return None,
        };
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(line.trim_ascii())
    })
}

fn first_of_events(beginning: &[u8], is_whole: bool) -> FirstEvent {
    let mut name: &[u8] = b"";
    for line in whole_lines(beginning, is_whole) {
        let (field, value) = match memchr(b':', line) {
            Some(colon) => (&line[..colon], line[colon + 1..].trim_ascii()),
            None => (line, &b""[..]),
        };
        match field {
            b"" | b"id" | b"retry" if !line.is_empty() => {} // a comment begins with the colon
            b"" => name = b"",
            b"event" => name = value,
            // llama.cpp writes errors so.
            b"error" => return FirstEvent::Error(kind_of(value)),
            b"data" if name == b"ping" || value == b"[DONE]" || value.is_empty() => {}
            b"data" if name == b"error" => return FirstEvent::Error(kind_of(value)),
            b"data" => {
                return match error_in(value, true) {
                    Some(error) => FirstEvent::Error(error),
                    None => FirstEvent::Answer,
                };
            }
            _ => return FirstEvent::Answer,
        }
    }
    // A long event is not an error, so its end need not be awaited.
    let rest = beginning.rsplit(|&byte| byte == b'\n').next();
    let may_be_error = rest.is_none_or(|rest| {
        let data = rest.strip_prefix(b"data:").unwrap_or_default();
        data.len() < LINE || is_error_line(&squeezed(&data[..LINE]))
    });
    match may_be_error || name == b"error" || is_whole {
        true => FirstEvent::Awaited,
        false => FirstEvent::Answer,
    }
}

fn first_of_lines(beginning: &[u8], is_whole: bool) -> FirstEvent {
    let mut lines = whole_lines(beginning, is_whole);
    match lines.find(|line| !line.is_empty()) {
        Some(line) => match error_in(line, true) {
            Some(error) => FirstEvent::Error(error),
            None => FirstEvent::Answer,
        },
        None => FirstEvent::Awaited,
    }
}

/// Returns the kind of the error that a JSON text is, if it is one. Nearly all texts are told by their beginning.
fn error_in(json: &[u8], is_whole: bool) -> Option<ErrorInBody> {
    let beginning = &json[..json.len().min(LINE)];
    if is_error_line(&squeezed(beginning)) {
        return Some(match is_whole {
            true => kind_of(json),
            false => ErrorInBody::Failed,
        });
    }
    None
}

/// Returns the kind of an error, by what its text says.
fn kind_of(text: &[u8]) -> ErrorInBody {
    let said: Value = serde_json::from_slice(text).unwrap_or_default();
    error_kind(&said).unwrap_or(ErrorInBody::Failed)
}

/// Returns the kind of error that the body of an answer with an error's status says, if it says more than the status.
pub(crate) fn refusal_in(body: &[u8]) -> Option<ErrorInBody> {
    let said: Value = serde_json::from_slice(body).ok()?;
    let kind = error_kind(&said)?;
    matches!(kind, ErrorInBody::Overloaded | ErrorInBody::QuotaExceeded).then_some(kind)
}

/// Words in the code, type or status of an error by which a service says that a budget is used up.
const QUOTA: [&str; 3] = ["insufficient_quota", "billing", "quota_exceeded"];
/// Words by which a service says that it has too much to do.
const OVERLOAD: [&str; 8] = [
    "overload",
    "queue_full",
    "queue_timeout",
    "busy",
    "capacity",
    "rate_limit",
    "too_many_requests",
    "resource_exhausted",
];
/// Phrases in the message of an error that say that the endpoint is full. A single word may mean something else there.
const OVERLOAD_MESSAGES: [&str; 6] = [
    "overloaded",
    "server busy",
    "too busy",
    "queue is full",
    "at capacity",
    "too many requests",
];
/// Words by which a service says that the request is at fault.
const REJECTED: [&str; 8] = [
    "invalid",
    "bad_request",
    "badrequest",
    "not_found",
    "context_length",
    "exceed_context",
    "authentication",
    "permission",
];

/// Returns the kind of an error by its code, type, status or message.
fn error_kind(said: &Value) -> Option<ErrorInBody> {
    let error = match &said["error"] {
        Value::Null => said,
        error => error,
    };
    let mut names = String::new();
    let mut number = None;
    for field in ["code", "type", "status", "error_type"] {
        for value in [&error[field], &said[field]] {
            match value {
                Value::String(name) => {
                    names.push_str(&name.to_ascii_lowercase());
                    names.push(' ');
                }
                Value::Number(code) => number = number.or(code.as_u64()),
                _ => {}
            }
        }
    }
    let message = error
        .as_str()
        .or(error["message"].as_str())
        .unwrap_or_default();
    let message = message.to_ascii_lowercase();
    let names_any = |words: &[&str]| words.iter().any(|word| names.contains(word));
    if names_any(&QUOTA) {
        Some(ErrorInBody::QuotaExceeded)
    } else if names_any(&OVERLOAD)
        || matches!(number, Some(429 | 529))
        || OVERLOAD_MESSAGES
            .iter()
            .any(|words| message.contains(words))
    {
        Some(ErrorInBody::Overloaded)
    } else if names_any(&REJECTED) || matches!(number, Some(400..=499)) {
        Some(ErrorInBody::Rejected)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::FirstEvent::{Answer, Awaited, Error, Missing};
    use super::*;
    use crate::endpoints::ErrorInBody::{Failed, Overloaded, QuotaExceeded, Rejected};

    const EVENTS: [(&str, FirstEvent); 17] = [
        ("", Missing),
        (": hi\n\n", Missing),
        ("data: [DONE]\n\n", Missing),
        ("event: ping\ndata: {}\n\n", Missing),
        ("data: {\"choices\":[]}\n\n", Answer),
        ("data: {\"error\":null,\"choices\":[]}\n\n", Answer),
        (
            "id: 1\nevent: message_start\ndata: {\"type\":\"message_start\"}\n\n",
            Answer,
        ),
        (
            "data: {\"error\": {\"message\": \"CUDA error\", \"code\": 500}}\n\n",
            Error(Failed),
        ),
        ("data:{\"error\":\"x\"}\r\n\r\n", Error(Failed)),
        (
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
            Error(Overloaded),
        ),
        (
            "event: ping\ndata: {}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n",
            Error(Failed),
        ),
        (
            ": processing\n\ndata: {\"error\":{\"code\":429,\"message\":\"\"}}\n\n",
            Error(Overloaded),
        ),
        (
            "error: {\"code\":500,\"message\":\"x\",\"type\":\"server_error\"}\n\n",
            Error(Failed),
        ),
        (
            "error: {\"code\":400,\"type\":\"exceed_context_size_error\"}\n\n",
            Error(Rejected),
        ),
        (
            "data: {\"object\":\"error\",\"message\":\"x\",\"code\":40303}\n\n",
            Error(Failed),
        ),
        (
            "data: {\"error\":{\"code\":\"insufficient_quota\"}}\n\n",
            Error(QuotaExceeded),
        ),
        ("data: {\"a\":\"{\\\"error\\\":1}\"}\n\n", Answer),
    ];

    #[test]
    fn the_first_event_is_told_however_its_bytes_come() {
        for (text, expected) in EVENTS {
            let text = text.as_bytes();
            assert_eq!(
                ErrorForm::Events.first_event(text, true),
                expected,
                "{}",
                text.escape_ascii()
            );
            for at in 0..text.len() {
                let first = ErrorForm::Events.first_event(&text[..at], false);
                assert!(first == Awaited || first == expected, "{at}: {first:?}");
            }
        }
    }

    #[test]
    fn lines_and_bodies_are_errors_by_their_first_field() {
        for (text, in_lines, in_body) in [
            ("", Missing, Answer),
            (
                "{\"error\":\"model runner has stopped\"}\n",
                Error(Failed),
                Error(Failed),
            ),
            (
                "{\"error\" : {\"type\":\"server_error\"}}",
                Error(Failed),
                Error(Failed),
            ),
            ("{\"error\":null}", Answer, Answer),
            (
                "{\"id\":\"resp\",\"error\":{\"code\":\"x\"}}",
                Answer,
                Answer,
            ),
            (
                "{\"error\":\"server busy, please try again\"}",
                Error(Overloaded),
                Error(Overloaded),
            ),
        ] {
            assert_eq!(
                ErrorForm::Lines.first_event(text.as_bytes(), true),
                in_lines,
                "{text}"
            );
            assert_eq!(
                ErrorForm::Json.first_event(text.as_bytes(), true),
                in_body,
                "{text}"
            );
        }
    }

    #[test]
    fn bodies_of_errors_say_that_a_service_is_full() {
        for (body, expected) in [
            ("", None),
            ("busy", None),
            (
                r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#,
                None,
            ),
            (r#"{"error":{"code":"queue_full"}}"#, Some(Overloaded)),
            (
                r#"{"error":"Model is overloaded","error_type":"overloaded"}"#,
                Some(Overloaded),
            ),
            (
                r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#,
                Some(Overloaded),
            ),
            (
                r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"The model is overloaded."}}"#,
                Some(Overloaded),
            ),
            (
                r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}"#,
                Some(QuotaExceeded),
            ),
        ] {
            assert_eq!(refusal_in(body.as_bytes()), expected, "{body}");
        }
    }
}
