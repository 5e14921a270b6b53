//! Errors in a stream that goes by, although the status of the answer says success.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use memchr::memchr;

use crate::http::names_event_stream;

/// The form of an answer that may have an error in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorForm {
    /// A stream of events.
    Events,
    /// Lines of JSON, as Ollama streams them.
    Lines,
    /// One JSON value.
    Json,
}

impl ErrorForm {
    /// Returns the form of an answer with these headers, if it can be read.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(CONTENT_TYPE)?.as_bytes();
        let form = if names_event_stream(kind) {
            Self::Events
        } else if has_word(kind, b"ndjson") || has_word(kind, b"jsonl") {
            Self::Lines
        } else if has_word(kind, b"json") {
            Self::Json
        } else {
            return None;
        };
        let encoding = headers.get(CONTENT_ENCODING);
        let is_plain = encoding.is_none_or(|it| it.as_bytes().eq_ignore_ascii_case(b"identity"));
        is_plain.then_some(form)
    }

    /// Returns `true` if an answer of this form is read piece by piece.
    pub(crate) fn is_stream(self) -> bool {
        self != Self::Json
    }
}

fn has_word(kind: &[u8], word: &[u8]) -> bool {
    let mut words = kind.windows(word.len());
    words.any(|it| it.eq_ignore_ascii_case(word))
}

/// The number of bytes of a line, without spaces, by which an error is told.
pub(super) const LINE: usize = 64;

/// Returns the first bytes of a line, without spaces.
#[cfg(feature = "client")]
pub(super) fn squeezed(line: &[u8]) -> Vec<u8> {
    let bytes = line.iter().copied();
    bytes
        .filter(|byte| !byte.is_ascii_whitespace())
        .take(LINE)
        .collect()
}

/// The beginnings of values of `error` that say that there is none.
const NO_ERROR: [&[u8]; 7] = [b"null", b"false", b"\"\"", b"{}", b"[]", b"0,", b"0}"];

/// Returns `true` if a JSON text with this beginning, without spaces, is an error.
pub(super) fn is_error_line(squeezed: &[u8]) -> bool {
    if let Some(value) = squeezed.strip_prefix(b"{\"error\":") {
        let is_none = NO_ERROR.iter().any(|none| value.starts_with(none));
        return !value.is_empty() && !is_none;
    }
    let names = [
        &b"{\"type\":\"error\""[..],
        b"{\"object\":\"error\"",
        b"{\"type\":\"response.failed\"",
    ];
    names.iter().any(|name| squeezed.starts_with(name))
}

/// A reader of a stream that goes by, which tells if an event in it is an error. It keeps only the beginning of a line.
#[derive(Debug)]
pub(crate) struct ErrorReader {
    form: ErrorForm,
    /// The beginning of the current line, without spaces.
    line: Vec<u8>,
    /// `true` once an event has come that is more than the end.
    has_event: bool,
}

impl ErrorReader {
    pub(crate) fn new(form: ErrorForm) -> Self {
        Self {
            form,
            line: Vec::new(),
            has_event: false,
        }
    }

    /// Returns `true` if an event has come that is more than the end of the stream.
    pub(crate) fn has_event(&self) -> bool {
        self.has_event || !self.line.is_empty()
    }

    /// Reads a piece of the stream. Returns `true` if it has an event that is an error.
    pub(crate) fn read(&mut self, mut piece: &[u8]) -> bool {
        let mut is_error = false;
        // The loop ends because each round takes a line, or the rest of the piece.
        while !piece.is_empty() {
            let end = memchr(b'\n', piece);
            let rest = &piece[..end.unwrap_or(piece.len())];
            if self.line.len() < LINE {
                let missing = LINE - self.line.len();
                let bytes = rest
                    .iter()
                    .copied()
                    .filter(|byte| !byte.is_ascii_whitespace());
                self.line.extend(bytes.take(missing));
            }
            let Some(end) = end else {
                break;
            };
            is_error |= self.end_line();
            piece = &piece[end + 1..];
        }
        is_error
    }

    /// Ends a line. Returns `true` if it is an error.
    fn end_line(&mut self) -> bool {
        let line = &self.line;
        let is_error = match self.form {
            ErrorForm::Events => match line.strip_prefix(b"data:") {
                Some(data) => {
                    self.has_event |= data != b"[DONE]";
                    is_error_line(data)
                }
                None => line.starts_with(b"error:") || line == b"event:error",
            },
            ErrorForm::Lines | ErrorForm::Json => {
                self.has_event |= !line.is_empty();
                is_error_line(line)
            }
        };
        self.line.clear();
        is_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found_however_the_bytes_come() {
        for (text, is_error) in [
            ("data: {\"choices\":[]}\n\n", false),
            ("data: {\"choices\":[],\"error\":null}\n\n", false),
            ("data: {\"error\":null}\n\n", false),
            ("data: {\"error\": false, \"result\": 1}\n\n", false),
            ("data: {\"error\": \"\"}\n\n", false),
            ("data: {\"a\":\"{\\\"error\\\":1}\"}\n\n", false),
            ("event: errors\ndata: {}\n\n", false),
            ("data: { \"error\" : {\"message\":\"x\"}}\n\n", true),
            (
                "data: {\"type\": \"response.failed\", \"response\":{}}\r\n\r\n",
                true,
            ),
            ("event: error\r\ndata: {}\r\n\r\n", true),
            ("error: {\"code\":500}\n\n", true),
        ] {
            let text = format!("data: {{\"choices\":[]}}\n\n{text}data: [DONE]\n\n");
            for size in 1..text.len() {
                let mut reader = ErrorReader::new(ErrorForm::Events);
                let found = text
                    .as_bytes()
                    .chunks(size)
                    .filter(|piece| reader.read(piece));
                assert_eq!(found.count() > 0, is_error, "{size}: {text}");
                assert!(reader.has_event());
            }
        }
    }

    #[test]
    fn a_stream_without_an_event_is_told() {
        for text in ["", ": hi\n\n", "data: [DONE]\n\n", "event: ping\n\n"] {
            let mut reader = ErrorReader::new(ErrorForm::Events);
            reader.read(text.as_bytes());
            assert!(!reader.has_event(), "{text}");
        }
    }
}
