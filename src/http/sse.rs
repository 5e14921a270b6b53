//! Server-sent events: reports of a queue position, errors, and texts that were not a stream of events before.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::retry_after::whole_seconds;
use crate::admit::Starting;
use crate::gate::QueuePlace;

/// The media type of a stream of events.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// Returns `true` if a response with these headers is a stream of events.
pub(crate) fn is_event_stream(response: &HeaderMap) -> bool {
    let kind = response.get(CONTENT_TYPE);
    kind.is_some_and(|kind| names_event_stream(kind.as_bytes()))
}

/// Returns `true` if the value of a `Content-Type` names a stream of events.
pub(crate) fn names_event_stream(kind: &[u8]) -> bool {
    media_type(kind).eq_ignore_ascii_case(EVENT_STREAM.as_bytes())
}

/// Returns `true` if a response with these headers declares its body as JSON.
pub(crate) fn is_json(response: &HeaderMap) -> bool {
    let Some(kind) = response.get(CONTENT_TYPE) else {
        return false;
    };
    let media = media_type(kind.as_bytes()).to_ascii_lowercase();
    media == b"application/json" || media.ends_with(b"+json")
}

/// Returns the media type in the value of a `Content-Type`, without its parameters.
fn media_type(kind: &[u8]) -> &[u8] {
    let media = kind.split(|byte| *byte == b';').next();
    media.unwrap_or_default().trim_ascii()
}

/// Returns a comment, which clients ignore, with the position of the request in the queue. Position 1 is next. The
/// estimated seconds until the request is served follow. If the request waits for a model that is being loaded, the
/// state and the progress of the loading replace the seconds.
pub(crate) fn queue_comment(place: &QueuePlace) -> Bytes {
    let position = place.position;
    let rest = match (place.starting, place.estimated_wait) {
        (Some(Starting { progress }), _) => {
            let progress = progress.map(|progress| format!(" progress={progress:.2}"));
            format!(" state=loading{}", progress.unwrap_or_default())
        }
        (None, Some(wait)) => format!(" eta={}s", whole_seconds(wait)),
        (None, None) => String::new(),
    };
    format!(": queue position={position}{rest}\n\n").into()
}

/// Returns an event of type `error` with this data. Clients join the lines of the data again.
pub(crate) fn error_event(data: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(data.len() + 32);
    event.extend_from_slice(b"event: error\n");
    let text = data.strip_suffix(b"\n").unwrap_or(data);
    for line in text.split(|byte| *byte == b'\n') {
        event.extend_from_slice(b"data: ");
        // A carriage return would end the line. JSON strings contain none, so it is safe to leave out.
        event.extend(line.iter().filter(|byte| **byte != b'\r'));
        event.extend_from_slice(b"\n");
    }
    event.extend_from_slice(b"\n");
    event.freeze()
}

/// Adds the seconds of `Retry-After` to the JSON of an error, because an event has no header for them. JSON in another
/// shape than OpenAI's errors, or with the seconds already in it, stays as it is.
pub(crate) fn with_retry_after(json: &str, seconds: u64) -> Cow<'_, str> {
    const WHITE: [char; 4] = [' ', '\t', '\n', '\r'];
    let opening = ["{", "\"error\"", ":", "{"];
    let members = opening.iter().try_fold(json, |rest, token| {
        rest.trim_start_matches(WHITE).strip_prefix(token)
    });
    match members {
        Some(members) if !json.contains("\"retry_after\"") => {
            let opening = &json[..json.len() - members.len()];
            let is_empty = members.trim_start_matches(WHITE).starts_with('}');
            let comma = if is_empty { "" } else { "," };
            format!("{opening}\"retry_after\":{seconds}{comma}{members}").into()
        }
        _ => json.into(),
    }
}

/// A writer of text as events, one for each line. Each piece of a line is passed on as it comes.
#[derive(Debug, Default)]
pub(crate) struct LineEvents {
    /// `true` while an event has begun and not ended.
    in_line: bool,
    /// `true` if the last byte was a carriage return. A line feed after it then does not end another line.
    after_return: bool,
}

impl LineEvents {
    /// Returns the events of the text's next piece.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Bytes {
        let mut events = BytesMut::with_capacity(piece.len() + 16);
        for &byte in piece {
            let is_rest_of_end = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            if is_rest_of_end {
                continue;
            }
            if !self.in_line {
                events.extend_from_slice(b"data: ");
            }
            self.in_line = !matches!(byte, b'\n' | b'\r');
            match self.in_line {
                true => events.extend_from_slice(&[byte]),
                false => events.extend_from_slice(b"\n\n"),
            }
        }
        events.freeze()
    }

    /// Returns the end of the last event, or `None` if the text ended with a full line.
    pub(crate) fn end(&mut self) -> Option<Bytes> {
        std::mem::take(&mut self.in_line).then(|| Bytes::from_static(b"\n\n"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_comment_says_the_position_and_the_seconds_or_how_far_the_load_is() {
        let wait = |millis| Some(Duration::from_millis(millis));
        let starting = |progress| Some(Starting { progress });
        let cases = [
            (3, wait(11_200), None, "position=3 eta=12s"),
            (1, wait(0), None, "position=1 eta=0s"),
            (17, None, None, "position=17"),
            (2, None, starting(None), "position=2 state=loading"),
            (
                1,
                wait(900),
                starting(Some(0.417)),
                "position=1 state=loading progress=0.42",
            ),
        ];
        for (position, estimated_wait, starting, expected) in cases {
            let place = QueuePlace {
                position,
                estimated_wait,
                depth: 20,
                starting,
            };
            assert_eq!(queue_comment(&place), format!(": queue {expected}\n\n"));
        }
    }

    #[test]
    fn an_error_s_lines_are_joined_again_by_the_client() {
        let cases = [
            (&b"{\"a\":1}"[..], "event: error\ndata: {\"a\":1}\n\n"),
            (b"{\r\n}\n", "event: error\ndata: {\ndata: }\n\n"),
            (b"", "event: error\ndata: \n\n"),
        ];
        for (data, expected) in cases {
            assert_eq!(error_event(data), expected);
        }
    }

    #[test]
    fn the_time_to_retry_is_put_into_an_error_object() {
        let cases = [
            (
                r#"{"error":{"message":"busy"}}"#,
                r#"{"error":{"retry_after":7,"message":"busy"}}"#,
            ),
            (
                "{ \"error\" :\r\n{\n\"code\": 1}, \"x\": {}}",
                "{ \"error\" :\r\n{\"retry_after\":7,\n\"code\": 1}, \"x\": {}}",
            ),
            (r#"{"error":{ }}"#, r#"{"error":{"retry_after":7 }}"#),
        ];
        for (json, expected) in cases {
            assert_eq!(with_retry_after(json, 7), expected);
        }
        for other in [
            "",
            "{",
            r#"{"error":"busy"}"#,
            r#"{"errors":{"message":"busy"}}"#,
            r#"{"id":1,"error":{}}"#,
            r#"{"error":{"retry_after":3}}"#,
        ] {
            assert_eq!(with_retry_after(other, 7), other);
        }
    }

    #[test]
    fn each_line_is_an_event_however_it_is_cut() {
        let text = b"one\ntwo\r\nthree\rfour\n\n{\"five\": 5}";
        let expected = "data: one\n\ndata: two\n\ndata: three\n\ndata: four\n\ndata: \n\ndata: {\"five\": 5}\n\n";
        for size in 1..=text.len() {
            let mut events = LineEvents::default();
            let mut out = BytesMut::new();
            for piece in text.chunks(size) {
                out.extend_from_slice(&events.push(piece));
            }
            out.extend(events.end());
            assert_eq!(out, expected, "{size}");
            assert_eq!(events.end(), None);
        }
    }

    #[test]
    fn a_text_that_ends_with_a_line_needs_no_end() {
        for text in [&b""[..], b"a\n", b"a\r\n"] {
            let mut events = LineEvents::default();
            events.push(text);
            assert_eq!(events.end(), None);
        }
    }

    #[test]
    fn media_types_are_compared_without_case_and_parameters() {
        let headers =
            |value| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]);
        for (value, events, json) in [
            ("text/event-stream", true, false),
            ("Text/Event-Stream; charset=utf-8", true, false),
            ("application/json", false, true),
            ("application/problem+JSON ; x=y", false, true),
            ("application/jsonl", false, false),
            ("text/plain", false, false),
        ] {
            assert_eq!(is_event_stream(&headers(value)), events, "{value}");
            assert_eq!(is_json(&headers(value)), json, "{value}");
        }
        assert!(!is_event_stream(&HeaderMap::new()) && !is_json(&HeaderMap::new()));
    }
}
