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
    let micros = waited.as_micros();
    let millis = format!("queue;dur={}.{:03}", micros / 1000, micros % 1000);
    let millis = millis.trim_end_matches('0').trim_end_matches('.');
    let value = HeaderValue::from_str(millis).expect("digits and letters are a header value");
    // This fails if the map can hold no more headers. The response is then sent without this one.
    let _ = headers.try_append(SERVER_TIMING, value);
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
            (Duration::MAX, "queue;dur=18446744073709551615999.999"),
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
