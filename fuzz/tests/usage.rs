//! The tokens in answers of backends.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use tower_triage::fuzz::usage;

/// The largest number of tokens that is believed.
const MOST: u64 = 10_000;

#[test]
fn tokens_are_bounded_and_pieces_do_not_matter() {
    bolero::check!()
        .with_iterations(super::RANDOM_INPUTS)
        .for_each(|input| {
            let (kind, answer) = super::first_line(input);
            let Ok(kind) = HeaderValue::from_bytes(kind) else {
                return;
            };
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
            for is_whole in [false, true] {
                let read = |length| usage(&headers, answer.chunks(length), is_whole, MOST);
                let (output, prompt) = read(usize::MAX);
                assert!(output <= MOST);
                assert!(prompt.is_none_or(|prompt| (1..=MOST).contains(&prompt)));
                for length in [1, 2, 7] {
                    assert_eq!(read(length), (output, prompt), "in pieces of {length}");
                }
            }
        });
}
