//! The times of a streamed answer's tokens.

use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::live::Facts;
use crate::metrics::Generated;

/// The content types of answers that are sent token by token: those of OpenAI and Anthropic, and Ollama's.
const STREAMS: [&[u8]; 2] = [b"text/event-stream", b"application/x-ndjson"];

/// The time of an answer's first token, if the answer is a stream. Other answers have all of their tokens at once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StreamTiming {
    is_stream: bool,
    first: Option<Instant>,
}

impl StreamTiming {
    /// Begins the timing of a successful answer with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
        let is_stream = kind.is_some_and(|kind| STREAMS.iter().any(|it| kind.starts_with(it)));
        Self {
            is_stream,
            first: None,
        }
    }

    /// Returns `true` if `data` may have the first token. A line that begins with a colon is a comment, which engines send
    /// to keep a connection alive.
    pub(super) fn awaits_first(self, data: &[u8]) -> bool {
        self.is_stream && self.first.is_none() && data.first().is_some_and(|byte| *byte != b':')
    }

    /// Records that the first token came now.
    pub(super) fn first(&mut self) {
        self.first = Some(Instant::now());
    }

    /// Returns the measures of an answer to a request that began at `start` and ended at `end`.
    pub(super) fn answer(
        self,
        (start, end): (Instant, Instant),
        is_complete: bool,
        facts: &Facts,
    ) -> Generated {
        let prompt_tokens = facts.prompt_tokens;
        let after_first = facts.tokens.and_then(|tokens| tokens.checked_sub(1));
        let after_first = after_first.filter(|count| *count > 0 && is_complete);
        let streamed = self.first.map(|first| end.saturating_duration_since(first));
        Generated {
            first_token: self
                .first
                .map(|first| first.saturating_duration_since(start)),
            per_token: streamed
                .zip(after_first)
                .map(|(took, count)| per(took, count)),
            prompt_tokens,
            // Without a `usage` the number is an estimate, which is good enough for a mean time alone.
            output_tokens: prompt_tokens.and(facts.tokens).filter(|count| *count > 0),
        }
    }
}

fn per(took: Duration, count: u64) -> Duration {
    took / u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const SECOND: Duration = Duration::from_secs(1);

    fn headers(kind: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))])
    }

    fn facts(prompt_tokens: Option<u64>, tokens: u64) -> Facts {
        let mut facts = Facts::default();
        (facts.prompt_tokens, facts.tokens) = (prompt_tokens, Some(tokens));
        facts
    }

    #[test]
    fn only_data_of_a_stream_may_be_the_first_token() {
        let stream = StreamTiming::of(&headers("text/event-stream; charset=utf-8"));
        assert!(stream.awaits_first(b"data: {}"));
        assert!(!stream.awaits_first(b": processing"));
        assert!(!stream.awaits_first(b""));
        assert!(StreamTiming::of(&headers("application/x-ndjson")).awaits_first(b"{"));
        assert!(!StreamTiming::of(&headers("application/json")).awaits_first(b"{"));
    }

    #[test]
    fn the_time_per_token_leaves_the_first_one_out() {
        let start = Instant::now();
        let timing = StreamTiming {
            is_stream: true,
            first: Some(start + SECOND),
        };
        let times = (start, start + 9 * SECOND);
        let whole = timing.answer(times, true, &facts(Some(7), 5));
        let expected = Generated {
            first_token: Some(SECOND),
            per_token: Some(2 * SECOND),
            prompt_tokens: Some(7),
            output_tokens: Some(5),
        };
        assert_eq!(whole, expected);
        let broken = timing.answer(times, false, &facts(Some(7), 5));
        assert_eq!((broken.per_token, broken.first_token), (None, Some(SECOND)));
        let one = timing.answer(times, true, &facts(None, 1));
        assert_eq!((one.per_token, one.output_tokens), (None, None));
    }
}
