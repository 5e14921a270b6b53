//! The rendering of a [`Rejection`] as HTTP or as gRPC.
//!
//! An overloaded service rejects more than it serves, so texts that are known at compile time are not formatted here.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::Rejection;
use super::retry_after::whole_seconds;

/// Renders the HTTP status and a JSON body shaped like OpenAI's errors.
pub(super) fn http(rejection: &Rejection) -> Response<Bytes> {
    let body = match rejection.prerendered {
        Some(prerendered) => Bytes::from_static(prerendered.as_bytes()),
        None => json(rejection).into(),
    };
    let mut headers = HeaderMap::with_capacity(MOST_HEADERS); // one allocation for all headers
    headers.insert(CONTENT_TYPE, JSON);
    if let Some(wait) = rejection.retry_after() {
        headers.insert(RETRY_AFTER, number(whole_seconds(wait).max(1))); // 0 would mean at once
    }
    let mut response = Response::new(body);
    *response.status_mut() = rejection.status();
    *response.headers_mut() = headers;
    response
}

/// The number of headers over HTTP, including `server-timing`.
const MOST_HEADERS: usize = 3;

/// Renders a trailers-only response with the status HTTP 200, the trailers as headers, and an empty body.
pub(super) fn grpc(rejection: &Rejection, content_type: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(GRPC_STATUS, rejection.grpc_status().into());
    headers.insert(GRPC_MESSAGE, grpc_message(rejection));
    if let Some(wait) = rejection.retry_after() {
        let millis = wait.as_millis().min(MAX_PUSHBACK) as u64;
        headers.insert(GRPC_PUSHBACK, millis.into());
    }
    response
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The longest pushback in milliseconds. Clients read it into 32 bits, and take a number that does not fit for "never
/// try again".
const MAX_PUSHBACK: u128 = i32::MAX as u128;

pub(super) fn json(rejection: &Rejection) -> String {
    let mut out = String::with_capacity(128 + rejection.message().len());
    out.push_str(r#"{"error":{"message":"#);
    quote(rejection.message(), &mut out);
    out.push_str(r#","type":"#);
    quote(rejection.kind(), &mut out);
    out.push_str(r#","param":"#);
    match rejection.param() {
        Some(param) => quote(param, &mut out),
        None => out.push_str("null"),
    }
    out.push_str(r#","code":"#);
    quote(rejection.code(), &mut out);
    out.push_str("}}");
    out
}

/// Appends `text` as a JSON string.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' => {
                out.push_str("\\u00");
                push_hex(char as u8, out);
            }
            _ => out.push(char),
        }
    }
    out.push('"');
}

fn grpc_message(rejection: &Rejection) -> HeaderValue {
    match rejection.message {
        // The message is known at compile time and needs no encoding, so it is not copied.
        Cow::Borrowed(message) if message.bytes().all(is_plain) => {
            HeaderValue::from_static(message)
        }
        _ => HeaderValue::try_from(percent_encoded(rejection.message()))
            .expect("percent-encoded text is a header value"),
    }
}

/// Returns the text with all bytes except printable ASCII as `%XX`, as the gRPC protocol defines it.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            push_hex(byte, &mut out);
        }
    }
    out
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'%'
}

fn push_hex(byte: u8, out: &mut String) {
    for digit in [byte >> 4, byte & 0xf] {
        out.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
    }
}

/// Returns a number as a header value. Numbers up to 99 need no allocation.
fn number(number: u64) -> HeaderValue {
    const TWO_DIGITS: &str = "\
        00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748\
        49505152535455565758596061626364656667686970717273747576777879808182838485868788899091929394959697\
        9899";
    match usize::try_from(number) {
        Ok(one @ 0..=9) => HeaderValue::from_static(&TWO_DIGITS[2 * one + 1..2 * one + 2]),
        Ok(two @ 10..=99) => HeaderValue::from_static(&TWO_DIGITS[2 * two..2 * two + 2]),
        _ => number.into(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;

    fn grpc(rejection: &Rejection) -> Response<Bytes> {
        super::grpc(rejection, "application/grpc")
    }

    fn busy(message: &'static str) -> Rejection {
        Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
    }

    #[test]
    fn http_is_status_headers_and_an_error_object() {
        let response = http(&busy("all busy").with_retry_after(Duration::from_millis(1_500)));
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers().len(), 2);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        assert_eq!(
            response.body(),
            r#"{"error":{"message":"all busy","type":"server_error","param":null,"code":"busy"}}"#
        );
    }

    #[test]
    fn grpc_is_trailers_only() {
        let response = grpc(&busy("50% busy").with_retry_after(Duration::from_millis(1_500)));
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers().len(), 4);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
        assert_eq!(response.headers()["grpc-status"], "14");
        assert_eq!(response.headers()["grpc-message"], "50%25 busy");
        assert_eq!(response.headers()["grpc-retry-pushback-ms"], "1500");
        assert!(response.body().is_empty());
    }

    #[test]
    fn without_a_wait_nothing_is_said_of_one() {
        assert!(!http(&busy("x")).headers().contains_key(RETRY_AFTER));
        assert!(!grpc(&busy("x")).headers().contains_key(GRPC_PUSHBACK));
    }

    #[test]
    fn waits_are_whole_seconds_and_fit_the_reader() {
        let cases = [
            (Duration::ZERO, "1", "0"),
            (Duration::from_nanos(1), "1", "0"),
            (Duration::from_secs(9), "9", "9000"),
            (Duration::from_millis(9_001), "10", "9001"),
            (Duration::from_secs(99), "99", "99000"),
            (Duration::from_secs(100), "100", "100000"),
            (Duration::MAX, "18446744073709551615", "2147483647"),
        ];
        for (wait, seconds, millis) in cases {
            let rejection = busy("x").with_retry_after(wait);
            assert_eq!(http(&rejection).headers()[RETRY_AFTER], seconds);
            assert_eq!(grpc(&rejection).headers()[GRPC_PUSHBACK], millis);
        }
    }

    #[test]
    fn numbers_are_written_in_full() {
        for n in 0..=120 {
            assert_eq!(number(n), n.to_string());
        }
    }

    #[test]
    fn json_strings_are_escaped() {
        let cases = [
            ("plain", r#""plain""#),
            ("", r#""""#),
            (r#"say "hi""#, r#""say \"hi\"""#),
            (r"C:\tmp", r#""C:\\tmp""#),
            ("a\nb\r\tc", r#""a\nb\r\tc""#),
            ("\0\x08\x1f\x7f", "\"\\u0000\\u0008\\u001F\x7f\""),
            ("größe 🏥", "\"größe 🏥\""),
        ];
        for (text, expected) in cases {
            let mut out = String::new();
            quote(text, &mut out);
            assert_eq!(out, expected);
            assert_eq!(
                serde_json::from_str::<String>(&out).ok().as_deref(),
                Some(text)
            );
        }
    }

    #[test]
    fn grpc_messages_are_percent_encoded() {
        let cases = [
            ("plain text ~", "plain text ~"),
            ("100%", "100%25"),
            ("a\nb", "a%0Ab"),
            ("größe", "gr%C3%B6%C3%9Fe"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(grpc_message(&busy(text)), expected);
            assert_eq!(
                grpc_message(&Rejection::new(StatusCode::OK, "x", text.to_owned())),
                expected
            );
        }
    }
}
