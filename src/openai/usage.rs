//! How many tokens an answer has, by its `usage` or by its length.

use memchr::memchr;
use memchr::memmem::rfind;

/// Reads an answer as it goes by, a JSON body or a stream of events, and keeps no more of it than its end.
#[derive(Debug)]
pub(crate) struct UsageReader {
    is_stream: bool,
    bytes: u64,
    /// How many lines with `data:` there were, in a stream.
    pieces: u64,
    /// How much of `data:` the present line begins with; `None` once it is known whether it does.
    matched: Option<usize>,
    /// The end of what was read: at least [`TAIL`] bytes, if there were so many.
    tail: Vec<u8>,
}

/// `usage` is in the last event, or near the end of a body.
const TAIL: usize = 4 << 10;
/// A token has about so many characters.
const BYTES_PER_TOKEN: u64 = 4;
const DATA: &[u8] = b"data:";

impl UsageReader {
    /// `is_stream`: whether the answer is a stream of events.
    pub(crate) fn new(is_stream: bool) -> Self {
        Self {
            is_stream,
            bytes: 0,
            pieces: 0,
            matched: Some(0),
            tail: Vec::new(),
        }
    }

    pub(crate) fn read(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        if self.is_stream {
            self.count_pieces(data);
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

    /// How many tokens the answer has, as its `usage` says; else of a stream the pieces, of another one a quarter of its
    /// bytes. `is_whole`: whether it was read to its end.
    pub(crate) fn output_tokens(&self, is_whole: bool) -> u64 {
        let said = self.said(["completion_tokens", "output_tokens"]);
        // An answer without text, such as embeddings, says only how long its prompt was.
        let said = said.or_else(|| self.prompt_tokens().map(|_| 0));
        let counted = match self.is_stream {
            true => self.pieces,
            false => self.bytes / BYTES_PER_TOKEN,
        };
        match said {
            Some(said) if is_whole => said,
            // What an earlier event said.
            Some(said) => said.max(counted),
            None => counted,
        }
    }

    /// How many tokens the prompt had, if `usage` says so.
    pub(crate) fn prompt_tokens(&self) -> Option<u64> {
        self.said(["prompt_tokens", "input_tokens"])
    }

    /// The number in the last field with one of these names. Not found in a text: quotes are escaped there.
    fn said(&self, names: [&str; 2]) -> Option<u64> {
        let last = names.map(|name| {
            let quoted = format!("\"{name}\"");
            Some(rfind(&self.tail, quoted.as_bytes())? + quoted.len())
        });
        let value = self.tail[last.into_iter().flatten().max()?..].trim_ascii_start();
        let value = value.strip_prefix(b":")?.trim_ascii_start();
        let digits = value.iter().take_while(|byte| byte.is_ascii_digit());
        let digits = &value[..digits.count()];
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens of an answer, whole or broken off, wherever it is split.
    fn tokens(is_stream: bool, is_whole: bool, answer: &str) -> u64 {
        let read = |chunks: &[&[u8]]| {
            let mut reader = UsageReader::new(is_stream);
            chunks.iter().for_each(|chunk| reader.read(chunk));
            assert!(reader.tail.len() <= 2 * TAIL);
            reader.output_tokens(is_whole)
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
