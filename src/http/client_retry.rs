//! The recognition of requests that a client tries again.

use http::{HeaderName, HeaderValue};

/// Returns `true` if a header of this name and value says that its request is a retry. A value that is not a number is
/// ignored.
pub(super) fn says_retry(name: &HeaderName, value: &HeaderValue) -> bool {
    let first_attempt: u64 = match name.as_str() {
        // The clients of OpenAI and Anthropic, and others, count retries.
        "x-stainless-retry-count" | "x-retry-attempt" => 0,
        // Envoy counts attempts.
        "x-envoy-attempt-count" => 1,
        _ => return false,
    };
    let count = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok());
    count.is_some_and(|count: u64| count > first_attempt)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_count_above_that_of_a_first_attempt_says_so() {
        let cases: [(&str, &[u8], bool); 14] = [
            ("x-stainless-retry-count", b"0", false),
            ("x-stainless-retry-count", b"1", true),
            ("x-stainless-retry-count", b" 2 ", true),
            ("x-retry-attempt", b"0", false),
            ("x-retry-attempt", b"3", true),
            ("x-envoy-attempt-count", b"0", false),
            ("x-envoy-attempt-count", b"1", false),
            ("x-envoy-attempt-count", b"2", true),
            ("x-retry-attempt", b"", false),
            ("x-retry-attempt", b"yes", false),
            ("x-retry-attempt", b"-1", false),
            ("x-retry-attempt", b"\xff", false),
            ("x-retry-attempt", b"99999999999999999999", false),
            ("x-retry", b"1", false),
        ];
        for (name, value, expected) in cases {
            let value = HeaderValue::from_bytes(value).unwrap();
            let name = HeaderName::from_static(name);
            assert_eq!(says_retry(&name, &value), expected, "{name}: {value:?}");
        }
    }
}
