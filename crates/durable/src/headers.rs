//! The headers of stored requests.
//!
//! Callers ask with some of them for a request to be stored, and workers add others for the inner service. This module
//! also decides which headers of a request the store keeps.

use std::time::{Duration, SystemTime};

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName};
use httpdate::parse_http_date;
use tower_triage::rejection::Rejection;

use super::duration::parse_duration;

pub(super) const PREFER: HeaderName = HeaderName::from_static("prefer");
pub(super) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(super) const CANCEL_AFTER: HeaderName = HeaderName::from_static("cancel-after");
pub(super) const NOT_BEFORE: HeaderName = HeaderName::from_static("not-before");
pub(super) const WEBHOOK_URL: HeaderName = HeaderName::from_static("webhook-url");
pub(super) const CANCEL_ON_DISCONNECT: HeaderName =
    HeaderName::from_static("x-cancel-on-disconnect");
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-triage-request-id");
pub(super) const ATTEMPT: HeaderName = HeaderName::from_static("x-triage-attempt");

/// The headers that steer the storing of a request or that workers set themselves. They are dropped from a stored
/// request, so a caller's values can't reach the inner service.
const DURABLE: [HeaderName; 8] = [
    PREFER,
    IDEMPOTENCY_KEY,
    CANCEL_AFTER,
    NOT_BEFORE,
    WEBHOOK_URL,
    CANCEL_ON_DISCONNECT,
    REQUEST_ID,
    ATTEMPT,
];

/// Returns `true` if the store keeps a header of this name. `Content-Length` is dropped because it follows from the
/// body.
pub(super) fn is_stored(name: &HeaderName) -> bool {
    *name != CONTENT_LENGTH && !DURABLE.contains(name) && !HOP_BY_HOP.contains(&name.as_str())
}

/// The headers that describe one connection, even if `Connection` does not name them.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authenticate",
    "proxy-authorization",
    "expect",
];

/// Returns the headers that `Connection` names, which describe one connection, too.
pub(super) fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let values = headers.get_all(CONNECTION).into_iter();
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
}

/// The preferences of a caller, as its `Prefer` headers state them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Preferences {
    /// `true` while the caller wants a receipt at once instead of the answer.
    pub(super) respond_async: bool,
    /// The time for which the caller waits for the answer before it accepts a receipt instead.
    pub(super) wait: Option<Duration>,
}

impl Preferences {
    /// Reads the preferences from all `Prefer` headers. If a preference appears twice, its first readable value counts,
    /// and an unreadable value is ignored.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        let values = headers.get_all(&PREFER).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        for preference in values.flat_map(|value| value.split(',')) {
            // Parameters follow a semicolon, and this module ignores all of them.
            let preference = preference.split(';').next().unwrap_or_default();
            let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
            let (name, value) = (name.trim(), value.trim().trim_matches('"'));
            if name.eq_ignore_ascii_case("respond-async") {
                found.respond_async = true;
            } else if name.eq_ignore_ascii_case("wait") && found.wait.is_none() {
                found.wait = whole_seconds(value);
            }
        }
        found
    }
}

/// Parses a number of whole seconds that consists of digits only.
pub(super) fn whole_seconds(text: &str) -> Option<Duration> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number that overflows `u64` becomes 2^32 - 1 seconds, about 136 years.
    is_digits.then(|| Duration::from_secs(text.parse().unwrap_or(u64::from(u32::MAX))))
}

/// Parses `Not-Before`, which is a duration from `now` or an HTTP date. A date in the past gives a duration of zero.
pub(super) fn parse_not_before(text: &str, now: SystemTime) -> Option<Duration> {
    parse_duration(text).or_else(|| {
        let time = parse_http_date(text.trim()).ok()?;
        Some(time.duration_since(now).unwrap_or_default())
    })
}

/// Returns `true` if a request with these headers asks to be stored.
pub(super) fn asks_to_be_stored(headers: &HeaderMap) -> bool {
    let has_own = [&IDEMPOTENCY_KEY, &CANCEL_AFTER, &NOT_BEFORE, &WEBHOOK_URL]
        .into_iter()
        .any(|name| headers.contains_key(name));
    has_own || {
        let prefer = Preferences::from_headers(headers);
        prefer.respond_async || prefer.wait.is_some()
    }
}

/// Reads the value of a header. Returns the rejection if the value can't be parsed.
pub(crate) fn read<T>(
    headers: &HeaderMap,
    name: &HeaderName,
    parse: impl FnOnce(&str) -> Option<T>,
    rejection: impl FnOnce() -> Rejection,
) -> Result<Option<T>, Rejection> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let read = value.to_str().ok().and_then(parse);
    read.map(Some).ok_or_else(rejection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().cloned();
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn preferences_are_read_as_they_are_written() {
        let cases = [
            ("respond-async", true, None),
            ("Respond-Async", true, None),
            ("wait=10", false, Some(10)),
            ("WAIT = \"10\"", false, Some(10)),
            ("respond-async, wait=5", true, Some(5)),
            ("wait=5;x=y, respond-async;q=1", true, Some(5)),
            ("wait=1, wait=2", false, Some(1)),
            ("wait=0", false, Some(0)),
            ("wait=99999999999999999999", false, Some(u32::MAX.into())),
            ("wait", false, None),
            ("wait=-1", false, None),
            ("wait=+1", false, None),
            ("wait=1.5", false, None),
            ("wait=1s", false, None),
            ("return=minimal", false, None),
            ("respond-asynchronously", false, None),
            ("", false, None),
        ];
        for (value, respond_async, wait) in cases {
            let wait = wait.map(Duration::from_secs);
            let expected = Preferences {
                respond_async,
                wait,
            };
            let read = Preferences::from_headers(&headers(&[(PREFER, value)]));
            assert_eq!(read, expected, "{value}");
        }
        let several = headers(&[(PREFER, "wait=7"), (PREFER, "respond-async")]);
        let read = Preferences::from_headers(&several);
        assert!(read.respond_async && read.wait == Some(Duration::from_secs(7)));
    }

    #[test]
    fn only_these_headers_ask_to_be_stored() {
        for (name, value, expected) in [
            (PREFER, "respond-async", true),
            (PREFER, "wait=1", true),
            (PREFER, "wait=soon", false),
            (PREFER, "return=minimal", false),
            (IDEMPOTENCY_KEY, "", true),
            (CANCEL_AFTER, "1m", true),
            (NOT_BEFORE, "1", true),
            (WEBHOOK_URL, "https://example.com", true),
            (CANCEL_ON_DISCONNECT, "true", false),
        ] {
            let asks = asks_to_be_stored(&headers(&[(name.clone(), value)]));
            assert_eq!(asks, expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_start_is_in_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, seconds) in [
            ("90", Some(90)),
            ("2h", Some(7_200)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("Mon, 06 Nov 1994 08:49:37 GMT", None), // that was a Sunday
            ("Thu, 31 Feb 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 24:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 +0000", None),
            ("tomorrow", None),
            ("", None),
        ] {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(parse_not_before(text, now), expected, "{text}");
        }
    }
}
