//! The number of tokens in an answer, taken from its `usage` or estimated from its length.

mod scan;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use memchr::memchr;
use memchr::memmem::find;

use scan::UsageScanner;

use crate::http::names_event_stream;

/// The form of an answer, which decides the way to count its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerForm {
    /// A stream of events, with a `usage` in the last ones, or in the first one, too.
    Events,
    /// Lines of JSON, as Ollama streams them, with the numbers of tokens in the last one.
    Lines,
    /// JSON with a `usage`. An answer without a content type is counted as JSON, too.
    Json,
    /// Any other text. A `usage` in such a text would be the model's own words.
    Text,
    /// A compressed answer, although the endpoint was asked for an uncompressed one.
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
        let Some(kind) = headers.get(CONTENT_TYPE) else {
            return Self::Json;
        };
        let kind = kind.as_bytes();
        let start = kind.get(..5).unwrap_or_default();
        let has = |word: &[u8]| {
            let mut words = kind.windows(word.len());
            words.any(|it| it.eq_ignore_ascii_case(word))
        };
        if names_event_stream(kind) {
            Self::Events
        } else if has(b"json") {
            match has(b"ndjson") || has(b"jsonl") {
                true => Self::Lines,
                false => Self::Json,
            }
        } else if start.eq_ignore_ascii_case(b"text/") {
            Self::Text
        } else {
            Self::Data
        }
    }
}

impl AnswerForm {
    /// Returns `true` if an answer of this form may say how many tokens it has.
    pub(crate) fn may_have_usage(self) -> bool {
        matches!(self, Self::Events | Self::Lines | Self::Json)
    }

    /// Returns the beginning of each line that counts as a piece.
    fn piece(self) -> &'static [u8] {
        match self {
            Self::Lines => b"{",
            _ => b"data:",
        }
    }
}

/// A reader of an answer that goes by. It keeps only the beginning of the answer.
#[derive(Debug)]
pub(crate) struct UsageReader {
    form: AnswerForm,
    bytes: u64,
    /// The number of lines of a stream that begin with `data:`, or with a JSON object, other than those of pings.
    pieces: u64,
    line: Line,
    /// `true` if the line before the current one was a piece. Lines of data in a row are one event.
    follows_piece: bool,
    /// The number of bytes of [`PING`] that the current piece has matched so far. `None` once it differed.
    ping: Option<usize>,
    /// The first bytes of the answer, which are at most [`HEAD`].
    head: Vec<u8>,
    scanner: UsageScanner,
}

/// The state of the current line of a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Line {
    /// So many bytes of the beginning of a piece have matched so far.
    Begun {
        matched: usize,
    },
    Piece,
    Other,
}

/// The number of bytes at the start of an answer within which embeddings can be recognised.
const HEAD: usize = 512;
/// The beginning of the data of an event that only shows that the stream is alive, without its spaces.
const PING: &[u8] = b"{\"type\":\"ping\"";
/// The average number of characters in a token. Compression turns them into about one byte.
const BYTES_PER_TOKEN: u64 = 4;

impl UsageReader {
    pub(crate) fn new(form: AnswerForm) -> Self {
        Self {
            form,
            bytes: 0,
            pieces: 0,
            line: Line::Begun { matched: 0 },
            follows_piece: false,
            ping: None,
            head: Vec::new(),
            scanner: UsageScanner::default(),
        }
    }

    pub(crate) fn read(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        match self.form {
            AnswerForm::Events | AnswerForm::Lines => self.read_lines(data),
            AnswerForm::Json => {
                let missing = HEAD.saturating_sub(self.head.len()).min(data.len());
                self.head.extend_from_slice(&data[..missing]);
                self.scanner.read(data);
            }
            AnswerForm::Text | AnswerForm::Encoded | AnswerForm::Data => {}
        }
    }

    /// Counts the pieces of a stream, and scans them.
    fn read_lines(&mut self, mut data: &[u8]) {
        let start = self.form.piece();
        // The loop ends because each round takes a part of the line, or leaves the state in which it takes none.
        while !data.is_empty() {
            if let Line::Begun { matched } = self.line {
                let rest = &start[matched..];
                let same = rest.iter().zip(data).take_while(|(a, b)| a == b).count();
                data = &data[same..];
                if same == rest.len() {
                    self.begin_piece();
                } else if data.is_empty() {
                    // The line may go on in the next chunk.
                    self.line = Line::Begun {
                        matched: matched + same,
                    };
                } else {
                    self.line = Line::Other;
                }
                continue;
            }
            let end = memchr(b'\n', data);
            let (line, rest) = data.split_at(end.unwrap_or(data.len()));
            if self.line == Line::Piece {
                self.scanner.read(line);
                self.look_for_ping(line, end.is_some());
            }
            data = rest.get(1..).unwrap_or_default();
            if end.is_some() {
                self.follows_piece = self.line == Line::Piece;
                self.line = Line::Begun { matched: 0 };
            }
        }
    }

    /// Looks at the next bytes of a piece, which are its last ones if it `is_whole`. A ping, or a piece without data, does not
    /// count.
    fn look_for_ping(&mut self, line: &[u8], is_whole: bool) {
        let Some(mut matched) = self.ping else {
            return;
        };
        for byte in line.iter().filter(|byte| !byte.is_ascii_whitespace()) {
            if *byte != PING[matched] {
                self.ping = None;
                return;
            }
            matched += 1;
            if matched == PING.len() {
                self.pieces -= 1;
                self.ping = None;
                return;
            }
        }
        if is_whole && matched == 0 {
            self.pieces -= 1;
        }
        self.ping = Some(matched);
    }

    fn begin_piece(&mut self) {
        self.pieces += 1;
        self.line = Line::Piece;
        self.ping = (self.form == AnswerForm::Events).then_some(0);
        if self.form == AnswerForm::Lines {
            self.scanner.restart();
            self.scanner.read(self.form.piece()); // which is a part of the JSON
        } else if !self.follows_piece {
            self.scanner.restart();
        }
    }

    /// Returns the number of events of a stream so far, which is about that of its tokens. Returns 0 for other answers.
    pub(crate) fn events(&self) -> u64 {
        self.pieces
    }

    /// Returns the number of tokens of the prompt, if the answer reports it, and of the answer.
    ///
    /// They may be `most_prompt` and `most_output` at most. A `usage` of 0 or above these is false and is ignored. `is_whole`
    /// is `true` if the answer was read to its end.
    pub(crate) fn tokens(
        &self,
        is_whole: bool,
        most_prompt: u64,
        most_output: u64,
    ) -> (Option<u64>, u64) {
        let usage = self.scanner.usage;
        let prompt = usage.prompt.filter(|said| is_credible(*said, most_prompt));
        let counted = || self.counted().min(most_output);
        let output = match usage.output {
            Some(said) if !is_credible(said, most_output) => counted(),
            Some(said) if is_whole => said as u64,
            // The number is from an earlier event, so the events that followed may have added to it.
            Some(said) => counted().max(said as u64),
            // An answer without text, such as embeddings, reports only the length of its prompt.
            None if usage.prompt.is_some_and(|said| is_credible(said, u64::MAX)) => 0,
            None => counted(),
        };
        (prompt.map(|said| said as u64), output)
    }

    /// Estimates the tokens from the part that was read. A stream counts its events, and another text a quarter of its
    /// bytes.
    fn counted(&self) -> u64 {
        match self.form {
            AnswerForm::Events | AnswerForm::Lines => self.pieces,
            // Embeddings are numbers and not text. The word cannot match inside a text, because quotes are escaped
            // there.
            AnswerForm::Json if find(&self.head, b"\"embedding\"").is_some() => 0,
            AnswerForm::Json | AnswerForm::Text => self.bytes / BYTES_PER_TOKEN,
            AnswerForm::Encoded => self.bytes,
            AnswerForm::Data => 0,
        }
    }
}

fn is_credible(tokens: f64, most: u64) -> bool {
    tokens >= 1.0 && tokens <= most as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tokens of an answer that is whole or broken off, and checks that its division into pieces does not
    /// matter.
    fn tokens(is_stream: bool, is_whole: bool, answer: &str) -> u64 {
        let form = match is_stream {
            true => AnswerForm::Events,
            false => AnswerForm::Json,
        };
        let read = |chunks: &[&[u8]]| {
            let mut reader = UsageReader::new(form);
            chunks.iter().for_each(|chunk| reader.read(chunk));
            assert!(reader.head.len() <= HEAD);
            reader.tokens(is_whole, u64::MAX, 10_000).1
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
        let text = "x".repeat(12 << 10);
        let body = format!(
            r#"{{"choices":[{{"message":{{"content":"{text}"}}}}],"usage":{{"prompt_tokens":12, "completion_tokens" : 345,"completion_tokens_details":{{"reasoning_tokens":9}}}}}}"#
        );
        assert_eq!(tokens(false, true, &body), 345);
        let body = r#"{"content":[],"usage":{"input_tokens":7,"output_tokens":89}}"#;
        assert_eq!(tokens(false, true, body), 89);
    }

    #[test]
    fn usage_counts_wherever_it_stands() {
        let ids = "7,".repeat(4_000);
        let usage = r#""usage":{"prompt_tokens":12,"completion_tokens":345}"#;
        let body = format!(r#"{{"choices":[],{usage},"prompt_token_ids":[{ids}7]}}"#);
        assert_eq!(tokens(false, true, &body), 345);
        let body = format!(r#"{{{usage},"choices":[{{"message":{{"content":"{ids}"}}}}]}}"#);
        assert_eq!(tokens(false, true, &body), 345);
    }

    #[test]
    fn a_streams_first_and_last_events_have_its_usage() {
        let mut reader = UsageReader::new(AnswerForm::Events);
        let begin = r#"{"type":"message_start","message":{"usage":{"input_tokens":1234,"output_tokens":1}}}"#;
        let word = r#"{"type":"content_block_delta","delta":{"text":"word "}}"#;
        let end = r#"{"type":"message_delta","usage":{"output_tokens":777}}"#;
        let word = format!("event: content_block_delta\ndata: {word}\n\n");
        let stream = format!(
            "event: message_start\ndata: {begin}\n\n{}event: message_delta\ndata: {end}\n\n",
            word.repeat(300)
        );
        for piece in stream.as_bytes().chunks(11) {
            reader.read(piece);
        }
        assert_eq!(reader.tokens(true, 10_000, 10_000), (Some(1234), 777));
    }

    #[test]
    fn one_event_may_have_several_lines_of_data() {
        let stream = "data: {\"usage\":{\ndata: \"output_tokens\":7}}\n\n";
        assert_eq!(tokens(true, true, stream), 7);
        let torn = "data: {\"content\":\"\n\ndata: {\"usage\":{\"output_tokens\":7}}\n\n";
        assert_eq!(tokens(true, true, torn), 7);
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
    fn pings_and_empty_events_are_no_tokens() {
        let alive = "event: ping\ndata: {\"type\": \"ping\"}\n\n: ping\n\ndata:\n\ndata: {\"type\":\"ping\"}\r\n\n";
        assert_eq!(tokens(true, true, alive), 0);
        let stream = format!("{alive}data: {{\"type\":\"text\"}}\n\n{alive}data: x\n\n");
        assert_eq!(tokens(true, true, &stream), 2);
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
            ("application/x-ndjson", AnswerForm::Lines),
            ("application/JSONL", AnswerForm::Lines),
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
            assert_eq!(
                reader.tokens(true, u64::MAX, 10_000).1,
                expected,
                "{form:?}"
            );
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
    fn answers_of_ollama_count_their_lines_unless_they_say_how_many_tokens() {
        let text = |answer: String| {
            let mut reader = UsageReader::new(AnswerForm::Lines);
            answer.as_bytes().chunks(7).for_each(|it| reader.read(it));
            reader.tokens(true, u64::MAX, 10_000)
        };
        let lines =
            "{\"message\":{\"content\":\"{\\\"eval_count\\\":99}\"},\"done\":false}\n".repeat(20);
        assert_eq!(text(lines.clone()), (None, 20));
        let last =
            r#"{"done":true,"prompt_eval_count":26,"prompt_eval_duration":5,"eval_count":12}"#;
        assert_eq!(text(format!("{lines}{last}\n")), (Some(26), 12));
        assert_eq!(tokens(false, true, last), 12);
    }

    #[test]
    fn a_stream_that_breaks_off_has_at_least_its_pieces() {
        let begin = r#"data: {"message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#;
        let stream = format!("event: message_start\n{begin}\n\ndata: a\n\ndata: b\n\n");
        assert_eq!(tokens(true, false, &stream), 3);
        assert_eq!(tokens(true, true, &stream), 1);
    }
}
