//! The `server-timing` header, which tells the client the wait of its request.
//!
//! Browsers and tracing tools show this header, so users can separate the time in the queue from the time in the
//! service.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

/// Adds `server-timing: queue;dur=<ms>`, in milliseconds with at most three decimals.
///
/// If the inner service has set a `server-timing`, that header stays beside this one.
pub(crate) fn insert_server_timing(headers: &mut HeaderMap, waited: Duration) {
    let (mut text, mut length) = ([0; 40], 0);
    let mut push = |part: &[u8]| {
        text[length..][..part.len()].copy_from_slice(part); // at most 10, 20 and 4 bytes
        length += part.len();
    };
    push(b"queue;dur=");
    let (seconds, below) = (waited.as_secs(), waited.subsec_micros());
    let millis = seconds
        .saturating_mul(1000)
        .saturating_add(u64::from(below / 1000));
    push(itoa::Buffer::new().format(millis).as_bytes());
    match below % 1000 {
        0 => {}
        below => push(decimals(below, &mut [0; 4])),
    }
    let value =
        HeaderValue::from_bytes(&text[..length]).expect("digits and letters are a header value");
    // This fails if the map can hold no more headers. The response is then sent without this one.
    let _ = headers.try_append(SERVER_TIMING, value);
}

/// Writes the decimals of a number to `text` and returns them, with their point and without zeros at their end. The decimals
/// are given as 1 to 999 `thousandths`.
fn decimals(thousandths: u32, text: &mut [u8; 4]) -> &[u8] {
    let digit = |number: u32| b'0' + (number % 10) as u8;
    *text = [
        b'.',
        digit(thousandths / 100),
        digit(thousandths / 10),
        digit(thousandths),
    ];
    let zeros = text
        .iter()
        .rev()
        .take_while(|digit| **digit == b'0')
        .count();
    &text[..text.len() - zeros]
}

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_at_most_three_decimals() {
        let cases = [
            (Duration::ZERO, "queue;dur=0"),
            (Duration::from_nanos(999), "queue;dur=0"),
            (Duration::from_micros(1), "queue;dur=0.001"),
            (Duration::from_micros(250), "queue;dur=0.25"),
            (Duration::from_millis(7), "queue;dur=7"),
            (Duration::from_millis(100), "queue;dur=100"),
            (Duration::from_micros(12_345_600), "queue;dur=12345.6"),
            (Duration::from_nanos(1_234_567_899), "queue;dur=1234.567"),
            (Duration::MAX, "queue;dur=18446744073709551615.999"),
        ];
        for (waited, expected) in cases {
            let mut headers = HeaderMap::new();
            insert_server_timing(&mut headers, waited);
            assert_eq!(headers["server-timing"], expected);
        }
    }

    #[test]
    fn what_the_inner_service_said_stays() {
        let mut headers = HeaderMap::new();
        headers.insert(SERVER_TIMING, HeaderValue::from_static("db;dur=3"));
        insert_server_timing(&mut headers, Duration::from_millis(2));
        let values: Vec<_> = headers.get_all(SERVER_TIMING).iter().collect();
        assert_eq!(values, ["db;dur=3", "queue;dur=2"]);
    }
}
