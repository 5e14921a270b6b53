//! The rendering of a [`Rejection`] as HTTP or as gRPC.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::Rejection;
use super::retry_after::whole_seconds;

/// Renders the HTTP status and a JSON body shaped like OpenAI's errors.
pub(super) fn http(rejection: &Rejection) -> Response<Bytes> {
    let mut response = Response::new(json(rejection).into());
    *response.status_mut() = rejection.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    if let Some(wait) = rejection.retry_after() {
        let wait = match wait.min(MAX_WAIT) {
            Duration::ZERO => Duration::from_secs(1), // 0 would mean at once
            wait => wait,
        };
        let millis = wait.as_nanos().div_ceil(1_000_000) as u64;
        headers.insert(RETRY_AFTER, whole_seconds(wait).into());
        headers.insert(RETRY_AFTER_MS, millis.into());
    }
    if rejection.is_final() {
        headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    response
}

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

/// The longest wait that a client is told over HTTP. The SDKs of OpenAI and Anthropic take a longer one for a mistake and
/// retry early.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// The wait in milliseconds, which the SDKs of OpenAI and Anthropic read before `Retry-After`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// The advice that the same SDKs follow before they look at the status.
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
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
    HeaderValue::try_from(percent_encoded(rejection.message()))
        .expect("percent-encoded text is a header value")
}

/// Returns the text with all bytes except printable ASCII as `%XX`, as the gRPC protocol defines it.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => {
                out.push('%');
                push_hex(byte, &mut out);
            }
        }
    }
    out
}

fn push_hex(byte: u8, out: &mut String) {
    for digit in [byte >> 4, byte & 0xf] {
        out.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
    }
}

/// Returns the content type of the gRPC answer that the client of a request with these headers can read. Returns `None`
/// if the answer is plain HTTP.
///
/// gRPC-Web differs only in its content type. Its clients read the status from the headers, too, and the body of a
/// rejection is empty, so Base64 would not change it.
pub(crate) fn grpc_content_type(request: &HeaderMap) -> Option<&'static str> {
    let value = request.get(CONTENT_TYPE)?;
    let rest = strip(value.as_bytes(), b"application/grpc")?; // most requests end here
    let web = strip(rest, b"-web");
    let text = web.and_then(|rest| strip(rest, b"-text"));
    let (content_type, rest) = match (web, text) {
        (_, Some(rest)) => ("application/grpc-web-text", rest),
        (Some(rest), None) => ("application/grpc-web", rest),
        (None, None) => ("application/grpc", rest),
    };
    matches!(rest, [] | [b'+' | b';' | b' ' | b'\t', ..]).then_some(content_type)
}

/// Returns the rest of `value` after `prefix`, which is compared without regard to case.
fn strip<'a>(value: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = value.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(all(test, not(loom)))]
mod tests {
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
        assert_eq!(response.headers().len(), 3);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        assert_eq!(response.headers()[RETRY_AFTER_MS], "1500");
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
        assert!(!http(&busy("x")).headers().contains_key(RETRY_AFTER_MS));
        assert!(!grpc(&busy("x")).headers().contains_key(GRPC_PUSHBACK));
    }

    #[test]
    fn waits_are_whole_seconds_and_fit_the_reader() {
        let cases = [
            (Duration::ZERO, "1", "1000", "0"),
            (Duration::from_nanos(1), "1", "1", "0"),
            (Duration::from_millis(250), "1", "250", "250"),
            (Duration::from_secs(9), "9", "9000", "9000"),
            (Duration::from_millis(9_001), "10", "9001", "9001"),
            (Duration::from_secs(120), "120", "120000", "120000"),
            (Duration::from_millis(120_001), "120", "120000", "120001"),
            (Duration::MAX, "120", "120000", "2147483647"),
        ];
        for (wait, seconds, millis, pushback) in cases {
            let rejection = busy("x").with_retry_after(wait);
            assert_eq!(http(&rejection).headers()[RETRY_AFTER], seconds);
            assert_eq!(http(&rejection).headers()[RETRY_AFTER_MS], millis);
            assert_eq!(grpc(&rejection).headers()[GRPC_PUSHBACK], pushback);
        }
    }

    #[test]
    fn clients_are_told_that_a_retry_is_useless() {
        for (status, is_useless) in [
            (400, true),
            (401, true),
            (404, true),
            (408, false),
            (409, false),
            (413, true),
            (415, true),
            (429, false),
            (500, false),
            (502, false),
            (503, false),
            (504, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let response = http(&Rejection::new(status, "x", "x"));
            let advice = response.headers().get(X_SHOULD_RETRY);
            let expected = is_useless.then_some("false");
            assert_eq!(advice.map(|it| it.to_str().unwrap()), expected, "{status}");
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

    #[test]
    fn the_content_type_tells() {
        const GRPC: Option<&str> = Some("application/grpc");
        const WEB: Option<&str> = Some("application/grpc-web");
        const WEB_TEXT: Option<&str> = Some("application/grpc-web-text");
        let cases: [(&[u8], Option<&str>); 15] = [
            (b"application/grpc", GRPC),
            (b"application/grpc+proto", GRPC),
            (b"Application/GRPC; charset=utf-8", GRPC),
            (b"application/grpc ;x=y", GRPC),
            (b"application/grpc-web", WEB),
            (b"application/grpc-web+json", WEB),
            (b"application/GRPC-Web-Text", WEB_TEXT),
            (b"application/grpc-web-text+proto;x=y", WEB_TEXT),
            (b"application/grpcfoo", None),
            (b"application/grpc-foo", None),
            (b"application/grpc-web-", None),
            (b"application/grpc-web-texts", None),
            (b"application/json", None),
            (b"application/grp", None),
            (b"", None),
        ];
        for (value, expected) in cases {
            let value = HeaderValue::from_bytes(value).unwrap();
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, value.clone())]);
            assert_eq!(grpc_content_type(&headers), expected, "{value:?}");
        }
        assert_eq!(grpc_content_type(&HeaderMap::new()), None);
    }
}
