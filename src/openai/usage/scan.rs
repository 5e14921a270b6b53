//! A scanner of the JSON of an answer that goes by in pieces, which picks out the numbers of tokens wherever they stand.
//!
//! It knows the place of each field by the objects that are open, so that a model cannot write a number of its own: the
//! arguments of a tool are JSON within an answer, but deeper than any `usage`. It keeps one short name or number at a time.

use memchr::{memchr2, memchr3};

/// The numbers of tokens that an answer says, as they stand there.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Usage {
    pub(super) prompt: Option<f64>,
    pub(super) output: Option<f64>,
}

/// A scanner of one JSON text after the other.
#[derive(Debug, Default)]
pub(super) struct UsageScanner {
    pub(super) usage: Usage,
    state: State,
    /// The number of objects that are open.
    depth: u32,
    /// The open objects that have numbers of tokens, as a set of the values that `depth` has in them.
    usages: u32,
    /// The beginning of the string or number that is being read, which is at most [`LONGEST`].
    word: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    /// Between the strings and the braces.
    #[default]
    Outside,
    InString,
    /// Behind a backslash in a string.
    Escaped,
    /// Behind a string that may be the name of this field.
    Named(Field),
    /// Behind the colon of this field.
    Value(Field),
    /// In the number of tokens of this field.
    Number(Field),
}

#[derive(Debug, Clone, Copy)]
enum Field {
    /// An object with numbers of tokens.
    Usage,
    PromptTokens,
    OutputTokens,
}

/// The most bytes of a name or a number that are kept. Any longer one is none of those that count.
const LONGEST: usize = 32;

/// The objects within which a `usage` may stand: those of the answer itself, and of the message, the response or the choice in
/// it.
const DEEPEST_USAGE: u32 = 2;

impl UsageScanner {
    /// Begins another text, and keeps the numbers.
    pub(super) fn restart(&mut self) {
        (self.state, self.depth, self.usages) = (State::Outside, 0, 0);
    }

    /// Scans a piece of a text.
    pub(super) fn read(&mut self, mut piece: &[u8]) {
        // The loop ends because each round takes a byte, or changes a state that waits for one into one that takes it.
        while let Some(&next) = piece.first() {
            piece = match self.state {
                State::Outside => self.outside(piece),
                State::InString => self.in_string(piece),
                State::Escaped => {
                    self.keep(b"\\"); // no name that counts has one
                    self.state = State::InString;
                    &piece[1..]
                }
                State::Named(_) | State::Value(_) if next.is_ascii_whitespace() => &piece[1..],
                State::Named(field) if next == b':' => {
                    self.state = State::Value(field);
                    &piece[1..]
                }
                State::Value(Field::Usage) if next == b'{' => {
                    self.usages |= 2 << self.depth; // which is small
                    self.outside(piece)
                }
                State::Value(field) if is_of_number(next) => {
                    self.word.clear();
                    self.state = State::Number(field);
                    piece
                }
                State::Named(_) | State::Value(_) => self.outside(piece),
                State::Number(field) => self.number(field, piece),
            };
        }
    }

    /// Moves to the next string, or past the next brace, and returns the rest.
    fn outside<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        self.state = State::Outside;
        let Some(at) = memchr3(b'"', b'{', b'}', piece) else {
            return &[];
        };
        match piece[at] {
            b'"' => {
                self.word.clear();
                self.state = State::InString;
            }
            b'{' => self.depth = self.depth.saturating_add(1),
            _ => {
                self.depth = self.depth.saturating_sub(1);
                self.usages &= u32::MAX >> 31_u32.saturating_sub(self.depth);
            }
        }
        &piece[at + 1..]
    }

    /// Moves behind the end of the string, or to the next backslash in it, and returns the rest.
    fn in_string<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        let end = memchr2(b'"', b'\\', piece);
        self.keep(&piece[..end.unwrap_or(piece.len())]);
        let Some(end) = end else {
            return &[];
        };
        self.state = match piece[end] {
            b'"' => self.field().map_or(State::Outside, State::Named),
            _ => State::Escaped,
        };
        &piece[end + 1..]
    }

    /// Reads the digits of a number, and returns the rest.
    fn number<'p>(&mut self, field: Field, piece: &'p [u8]) -> &'p [u8] {
        let length = piece.iter().take_while(|byte| is_of_number(**byte)).count();
        let (digits, rest) = piece.split_at(length);
        self.keep(digits);
        if !rest.is_empty() {
            self.state = State::Outside;
            self.set(field);
        }
        rest
    }

    /// Adds to the word that is being read.
    fn keep(&mut self, bytes: &[u8]) {
        let room = LONGEST - self.word.len();
        self.word.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns the field with the name that was read, if it counts where it stands.
    fn field(&self) -> Option<Field> {
        let is_in_usage = self
            .usages
            .checked_shr(self.depth)
            .is_some_and(|it| it & 1 == 1);
        let is_among_tokens = self.depth == 1 || is_in_usage;
        match &*self.word {
            // The second one is Cohere's, whose `usage` or `meta` has it.
            b"usage" | b"billed_units" if self.depth <= DEEPEST_USAGE => Some(Field::Usage),
            b"prompt_tokens" | b"input_tokens" if is_among_tokens => Some(Field::PromptTokens),
            b"completion_tokens" | b"output_tokens" if is_among_tokens => Some(Field::OutputTokens),
            // Of Ollama and of llama.cpp.
            b"prompt_eval_count" | b"tokens_evaluated" if self.depth == 1 => {
                Some(Field::PromptTokens)
            }
            b"eval_count" | b"tokens_predicted" if self.depth == 1 => Some(Field::OutputTokens),
            _ => None,
        }
    }

    /// Sets the number that was read. The last one counts, but a later 0 does not: the last event of a stream may repeat
    /// fields of the first one without their numbers.
    fn set(&mut self, field: Field) {
        let said = match field {
            Field::Usage => return,
            Field::PromptTokens => &mut self.usage.prompt,
            Field::OutputTokens => &mut self.usage.output,
        };
        let number = std::str::from_utf8(&self.word).ok();
        let number: Option<f64> = number.and_then(|text| text.parse().ok());
        if let Some(number) = number.filter(|_| self.word.len() < LONGEST)
            && (number >= 1.0 || said.is_none())
        {
            *said = Some(number);
        }
    }
}

fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || b"+-.eE".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scanned<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Option<f64>, Option<f64>) {
        let mut scanner = UsageScanner::default();
        for piece in pieces {
            scanner.read(piece);
            assert!(scanner.word.len() <= LONGEST);
        }
        (scanner.usage.prompt, scanner.usage.output)
    }

    fn text(text: &str) -> (Option<f64>, Option<f64>) {
        let bytes = text.as_bytes();
        let whole = scanned([bytes]);
        assert_eq!(scanned(bytes.chunks(1)), whole, "{text}");
        for at in 0..bytes.len() {
            assert_eq!(scanned([&bytes[..at], &bytes[at..]]), whole, "{text} {at}");
        }
        whole
    }

    #[test]
    fn usage_is_found_where_apis_have_it() {
        for (answer, expected) in [
            (
                r#"{"usage":{"prompt_tokens":3,"completion_tokens" : 7 },"prompt_token_ids":[1,2]}"#,
                (Some(3.0), Some(7.0)),
            ),
            (
                r#"{"message":{"content":[],"usage":{"input_tokens":9,"output_tokens":1}}}"#,
                (Some(9.0), Some(1.0)),
            ),
            (
                r#"{"response":{"output":[{"type":"message"}],"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":5},"output_tokens":1}}}"#,
                (Some(9.0), Some(1.0)),
            ),
            (
                r#"{"choices":[{"delta":{},"usage":{"prompt_tokens":4,"completion_tokens":2}}]}"#,
                (Some(4.0), Some(2.0)),
            ),
            (
                r#"{"usage":{"billed_units":{"input_tokens":4,"output_tokens":2},"tokens":{"input_tokens":70}}}"#,
                (Some(4.0), Some(2.0)),
            ),
            (
                r#"{"meta":{"billed_units":{"input_tokens":4}}}"#,
                (Some(4.0), None),
            ),
            (
                r#"{"prompt_eval_count":26,"eval_count":12}"#,
                (Some(26.0), Some(12.0)),
            ),
            (
                r#"{"tokens_predicted":5,"tokens_evaluated":6}"#,
                (Some(6.0), Some(5.0)),
            ),
            (r#"{"input_tokens":2095}"#, (Some(2095.0), None)),
            (r#"[{"usage":{"prompt_tokens":3}}]"#, (Some(3.0), None)),
        ] {
            assert_eq!(text(answer), expected, "{answer}");
        }
    }

    #[test]
    fn no_words_of_a_model_are_its_usage() {
        for answer in [
            r#"{"content":"{\"usage\":{\"output_tokens\":1}}"}"#,
            r#"{"content":"a\\\"","x":"{\"eval_count\":1}"}"#,
            r#"{"content":[{"type":"tool_use","input":{"usage":{"output_tokens":1}}}]}"#,
            r#"{"content":[{"type":"tool_use","input":{"output_tokens":1,"eval_count":1}}]}"#,
            r#"{"message":{"tool_calls":[{"function":{"arguments":{"usage":{"output_tokens":1}}}}]}}"#,
            r#"{"usage":"output_tokens","output_tokens":"1"}"#,
            r#"{"usage":{"details":{"output_tokens":1}}}"#,
            r#"{"usage":null,"x":{"output_tokens":1}}"#,
            r#"{"usage":{},"x":{"output_tokens":1}}"#,
            r#"["output_tokens",1,"output_tokens",{"x":1}]"#,
            r#"{"xoutput_tokens":1,"output_tokensx":1}"#,
        ] {
            assert_eq!(text(answer), (None, None), "{answer}");
        }
    }

    #[test]
    fn a_later_number_counts_unless_it_is_nothing() {
        let mut scanner = UsageScanner::default();
        for event in [
            r#"{"message":{"usage":{"input_tokens":1234,"output_tokens":1}}}"#,
            r#"{"usage":{"input_tokens":0,"output_tokens":777}}"#,
            r#"{"type":"message_stop""#,
        ] {
            scanner.restart();
            scanner.read(event.as_bytes());
        }
        let usage = scanner.usage;
        assert_eq!((usage.prompt, usage.output), (Some(1234.0), Some(777.0)));
    }

    #[test]
    fn a_number_that_is_too_long_is_none() {
        let answer = format!(r#"{{"usage":{{"output_tokens":{}}}}}"#, "1".repeat(40));
        assert_eq!(text(&answer), (None, None));
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<u32>().prop_map(Into::into),
            "[a\"\\\\{}:_]{0,6}".prop_map(Into::into),
            Just("usage".into()),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            let name = prop_oneof![
                Just("usage".to_owned()),
                Just("input_tokens".to_owned()),
                Just("output_tokens".to_owned()),
                Just("message".to_owned()),
                "[a\"{}]{0,3}",
            ];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::vec((name, inner), 0..5)
                    .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// The last number of `name` where it counts, found in a tree.
    fn last(json: &serde_json::Value, name: &str, depth: u32, in_usage: bool) -> Vec<f64> {
        let mut found = Vec::new();
        match json {
            serde_json::Value::Array(items) => {
                for item in items {
                    found.extend(last(item, name, depth, false));
                }
            }
            serde_json::Value::Object(fields) => {
                for (key, value) in fields {
                    if key == name
                        && (in_usage || depth == 0)
                        && let Some(number) = value.as_f64()
                    {
                        found.push(number);
                    }
                    let is_usage = key == "usage" && depth < DEEPEST_USAGE && value.is_object();
                    found.extend(last(value, name, depth + 1, is_usage));
                }
            }
            _ => {}
        }
        found
    }

    proptest! {
        #[test]
        fn a_scan_in_pieces_finds_what_a_tree_has(json in json(), size in 1..9_usize) {
            let text = json.to_string();
            let (prompt, output) = scanned(text.as_bytes().chunks(size));
            for (name, said) in [("input_tokens", prompt), ("output_tokens", output)] {
                let all = last(&json, name, 0, false);
                let counting = all.iter().rev().find(|number| **number >= 1.0);
                prop_assert_eq!(said, counting.or(all.first()).copied(), "{}: {}", name, text);
            }
        }
    }
}
