//! How many tokens an answer has, by its `usage` or by its length.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use memchr::memchr;
use memchr::memmem::{find, rfind_iter};

use crate::http::is_event_stream;

/// The form of an answer, which says how its tokens are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerForm {
    /// A stream of events, with a `usage` in the last ones.
    Events,
    /// JSON, with a `usage` near its end. So counts an answer that does not say what it is.
    Json,
    /// Any other text. A `usage` in it would be the model's own words.
    Text,
    /// Compressed, though the endpoint was asked for something else.
    Encoded,
    /// Audio, images and other data without tokens.
    Data,
}

impl AnswerForm {
    /// Returns the form of an answer with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let encoding = headers.get(CONTENT_ENCODING);
        if encoding.is_some_and(|it| !it.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Self::Encoded;
        }
        if is_event_stream(headers) {
            return Self::Events;
        }
        let Some(kind) = headers.get(CONTENT_TYPE) else {
            return Self::Json;
        };
        let kind = kind.as_bytes().to_ascii_lowercase();
        if find(&kind, b"json").is_some() {
            Self::Json
        } else if kind.starts_with(b"text/") {
            Self::Text
        } else {
            Self::Data
        }
    }
}

/// Reads an answer as it goes by, and keeps no more of it than its beginning and its end.
#[derive(Debug)]
pub(crate) struct UsageReader {
    form: AnswerForm,
    bytes: u64,
    /// How many lines with `data:` there were, in a stream.
    pieces: u64,
    /// How much of `data:` the present line begins with; `None` once it is known whether it does.
    matched: Option<usize>,
    /// The first bytes, at most [`HEAD`] of them.
    head: Vec<u8>,
    /// The end of what was read: at least [`TAIL`] bytes, if there were so many.
    tail: Vec<u8>,
}

/// An answer with embeddings shows within so many bytes that it is one.
const HEAD: usize = 512;
/// `usage` is in the last event, or near the end of a body.
const TAIL: usize = 4 << 10;
/// A token has about so many characters. Compression makes about one byte of them.
const BYTES_PER_TOKEN: u64 = 4;
const DATA: &[u8] = b"data:";

impl UsageReader {
    pub(crate) fn new(form: AnswerForm) -> Self {
        Self {
            form,
            bytes: 0,
            pieces: 0,
            matched: Some(0),
            head: Vec::new(),
            tail: Vec::new(),
        }
    }

    pub(crate) fn read(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        match self.form {
            AnswerForm::Events => self.count_pieces(data),
            AnswerForm::Json => {
                let missing = HEAD.saturating_sub(self.head.len()).min(data.len());
                self.head.extend_from_slice(&data[..missing]);
            }
            AnswerForm::Text | AnswerForm::Encoded | AnswerForm::Data => return,
        }
        if data.len() >= TAIL {
            self.tail.clear();
            self.tail.extend_from_slice(&data[data.len() - TAIL..]);
            return;
        }
        // Not with each piece: that would copy the whole tail each time.
        if self.tail.len() + data.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
        self.tail.extend_from_slice(data);
    }

    fn count_pieces(&mut self, mut data: &[u8]) {
        // Ends because each round takes a line, or the rest.
        loop {
            if let Some(matched) = self.matched {
                let rest = &DATA[matched..];
                let same = rest.iter().zip(data).take_while(|(a, b)| a == b).count();
                data = &data[same..];
                if same == rest.len() {
                    self.pieces += 1;
                } else if data.is_empty() {
                    // The line may go on in the next chunk.
                    self.matched = Some(matched + same);
                    return;
                }
                self.matched = None;
            }
            let Some(end) = memchr(b'\n', data) else {
                return;
            };
            data = &data[end + 1..];
            self.matched = Some(0);
        }
    }

    /// Returns the number of tokens of the answer, which had at most `most`. A `usage` of 0 or above `most` is false and
    /// is ignored. `is_whole` is `true` if the answer was read to its end.
    pub(crate) fn output_tokens(&self, is_whole: bool, most: u64) -> u64 {
        let counted = self.counted().min(most);
        let said = self.said(["completion_tokens", "output_tokens"]);
        let believed = |tokens: &f64| *tokens >= 1.0 && *tokens <= most as f64;
        match said {
            Some(said) if believed(&said) && is_whole => said as u64,
            // What an earlier event said.
            Some(said) if believed(&said) => counted.max(said as u64),
            // An answer without text, such as embeddings, says only how long its prompt was.
            None if self.prompt_tokens(u64::MAX).is_some() => 0,
            _ => counted,
        }
    }

    /// Returns the number of tokens of the prompt, if `usage` says so and it is neither 0 nor above `most`.
    pub(crate) fn prompt_tokens(&self, most: u64) -> Option<u64> {
        let said = self.said(["prompt_tokens", "input_tokens"])?;
        (said >= 1.0 && said <= most as f64).then_some(said as u64)
    }

    /// Estimates the tokens by what was read: of a stream the events, of another text a quarter of its bytes.
    fn counted(&self) -> u64 {
        match self.form {
            AnswerForm::Events => self.pieces,
            // Numbers, which are no text. Not found in a text: quotes are escaped there.
            AnswerForm::Json if find(&self.head, b"\"embedding\"").is_some() => 0,
            AnswerForm::Json | AnswerForm::Text => self.bytes / BYTES_PER_TOKEN,
            AnswerForm::Encoded => self.bytes,
            AnswerForm::Data => 0,
        }
    }

    /// Returns the number in the last field with one of these names that has a number. Not found in a text: quotes are
    /// escaped there.
    fn said(&self, names: [&str; 2]) -> Option<f64> {
        let last = names.map(|name| {
            let quoted = format!("\"{name}\"");
            let mut found = rfind_iter(&self.tail, &quoted);
            found.find_map(|at| Some((at, number(&self.tail[at + quoted.len()..])?)))
        });
        let last = last.into_iter().flatten().max_by_key(|(at, _)| *at);
        last.map(|(_, number)| number)
    }
}

/// Returns the number of a field, whose name `rest` comes after.
fn number(rest: &[u8]) -> Option<f64> {
    let value = rest
        .trim_ascii_start()
        .strip_prefix(b":")?
        .trim_ascii_start();
    let is_part = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let length = value.iter().take_while(is_part).count();
    std::str::from_utf8(&value[..length]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens of an answer, whole or broken off, wherever it is split.
    fn tokens(is_stream: bool, is_whole: bool, answer: &str) -> u64 {
        let form = match is_stream {
            true => AnswerForm::Events,
            false => AnswerForm::Json,
        };
        let read = |chunks: &[&[u8]]| {
            let mut reader = UsageReader::new(form);
            chunks.iter().for_each(|chunk| reader.read(chunk));
            assert!(reader.tail.len() <= 2 * TAIL);
            reader.output_tokens(is_whole, 10_000)
        };
        let answer = answer.as_bytes();
        let whole = read(&[answer]);
        for at in 0..answer.len().min(300) {
            let (first, second) = answer.split_at(at);
            assert_eq!(read(&[first, second]), whole, "{at}");
        }
        let bytes: Vec<_> = answer.chunks(1).collect();
        assert_eq!(read(&bytes), whole);
        whole
    }

    #[test]
    fn usage_at_the_end_of_a_body_counts() {
        let text = "x".repeat(3 * TAIL);
        let body = format!(
            r#"{{"choices":[{{"message":{{"content":"{text}"}}}}],"usage":{{"prompt_tokens":12, "completion_tokens" : 345,"completion_tokens_details":{{"reasoning_tokens":9}}}}}}"#
        );
        assert_eq!(tokens(false, true, &body), 345);
        let body = r#"{"content":[],"usage":{"input_tokens":7,"output_tokens":89}}"#;
        assert_eq!(tokens(false, true, body), 89);
    }

    #[test]
    fn a_text_that_speaks_of_usage_is_none() {
        let body = r#"{"content":"{\"completion_tokens\": 999999}"}"#;
        assert_eq!(tokens(false, true, body), body.len() as u64 / 4);
    }

    #[test]
    fn without_usage_a_quarter_of_the_bytes_counts() {
        for usage in ["", "null", "{}", r#"{"completion_tokens":null}"#] {
            let body = format!("{:400}", format!(r#"{{"usage":{usage}}}"#));
            assert_eq!(tokens(false, true, &body), 100, "{usage}");
        }
        assert_eq!(tokens(false, true, ""), 0);
    }

    #[test]
    fn an_answer_that_says_only_how_long_its_prompt_was_has_no_tokens() {
        let body = format!(
            r#"{{"data":[{}1],"usage":{{"prompt_tokens":8,"total_tokens":8}}}}"#,
            "0.1,".repeat(2_000)
        );
        assert_eq!(tokens(false, true, &body), 0);
    }

    #[test]
    fn a_usage_of_nothing_or_too_much_is_ignored() {
        for lie in [
            "0",
            "-7",
            "1e300",
            "18446744073709551615",
            "10001",
            "0.0",
            "-",
            "1e999",
        ] {
            let body = format!(
                "{:400}",
                format!(r#"{{"usage":{{"completion_tokens":{lie}}}}}"#)
            );
            assert_eq!(tokens(false, true, &body), 100, "{lie}");
            let stream = format!("data: x\n\ndata: {body}\n\n");
            assert_eq!(tokens(true, true, &stream), 2, "{lie}");
        }
        let long = format!("{{{}}}", " ".repeat(80_000));
        assert_eq!(tokens(false, true, &long), 10_000);
    }

    #[test]
    fn a_field_of_that_name_without_a_number_is_passed_over() {
        let body = r#"{"usage":{"output_tokens":9.0},"metadata":{"output_tokens":"1"}}"#;
        assert_eq!(tokens(false, true, body), 9);
    }

    #[test]
    fn embeddings_have_no_output_wherever_their_usage_is() {
        let data = format!(r#""data":[{{"embedding":"{}"}}]"#, "AAAA".repeat(4_000));
        for body in [
            format!(r#"{{"usage":{{"prompt_tokens":8}},{data}}}"#),
            format!(r#"{{{data},"usage":{{"prompt_tokens":8,"completion_tokens":0}}}}"#),
        ] {
            assert_eq!(tokens(false, true, &body), 0);
        }
    }

    #[test]
    fn the_form_follows_from_the_headers() {
        let of = |lines: &[(&'static str, &'static str)]| {
            let lines = lines.iter();
            let lines = lines.map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    http::HeaderValue::from_static(value),
                )
            });
            AnswerForm::of(&lines.collect())
        };
        for (kind, form) in [
            ("application/json; charset=utf-8", AnswerForm::Json),
            ("application/x-ndjson", AnswerForm::Json),
            ("text/event-stream", AnswerForm::Events),
            ("text/plain", AnswerForm::Text),
            ("audio/mpeg", AnswerForm::Data),
        ] {
            assert_eq!(of(&[("content-type", kind)]), form, "{kind}");
            let identity = [("content-type", kind), ("content-encoding", "identity")];
            assert_eq!(of(&identity), form, "{kind}");
            let gzip = [("content-type", kind), ("content-encoding", "gzip")];
            assert_eq!(of(&gzip), AnswerForm::Encoded, "{kind}");
        }
        assert_eq!(of(&[]), AnswerForm::Json);
    }

    #[test]
    fn data_has_no_tokens_and_compressed_text_a_token_a_byte() {
        for (form, expected) in [
            (AnswerForm::Data, 0),
            (AnswerForm::Text, 25),
            (AnswerForm::Encoded, 100),
        ] {
            let mut reader = UsageReader::new(form);
            reader.read(format!("{:100}", r#"{"completion_tokens":7}"#).as_bytes());
            assert_eq!(reader.output_tokens(true, 10_000), expected, "{form:?}");
        }
    }

    #[test]
    fn pieces_of_a_stream_count_unless_it_says_how_many_tokens() {
        let pieces = "data: {\"choices\":[{\"delta\":{\"content\":\"data:\"}}]}\n\n: a comment\n\n";
        let pieces = pieces.repeat(50);
        assert_eq!(tokens(true, true, &pieces), 50);
        let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":7}}"#;
        let stream = format!("{pieces}{usage}\r\n\r\ndata: [DONE]\n\n");
        assert_eq!(tokens(true, true, &stream), 7);
    }

    #[test]
    fn a_stream_that_breaks_off_has_at_least_its_pieces() {
        let begin = r#"data: {"message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#;
        let stream = format!("event: message_start\n{begin}\n\ndata: a\n\ndata: b\n\n");
        assert_eq!(tokens(true, false, &stream), 3);
        assert_eq!(tokens(true, true, &stream), 1);
    }
}
