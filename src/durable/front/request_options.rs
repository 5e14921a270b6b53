//! The options that a caller sets for its request in headers.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, Uri};

use super::shared::{CheckWebhook, Front};
use crate::durable::headers::{self, Preferences};
use crate::durable::parse_duration;
use crate::durable::rejections::bad_request;
use crate::rejection::Rejection;

/// The options of a request that is to be stored, as its headers state them.
pub(super) struct RequestOptions {
    pub(super) prefer: Preferences,
    pub(super) idempotency_key: Option<String>,
    pub(super) cancel_after: Option<Duration>,
    pub(super) delay: Option<Duration>,
    pub(super) webhook: Option<String>,
    pub(super) cancels_on_disconnect: bool,
}

impl RequestOptions {
    /// Reads the options from the headers of a request.
    ///
    /// # Errors
    ///
    /// Returns a rejection if a value can't be read, because the caller relies on it. Only `Prefer` is a mere wish, so
    /// its unreadable values are ignored.
    pub(super) fn read(headers: &HeaderMap, front: &Front) -> Result<Self, Rejection> {
        let mut prefer = Preferences::from_headers(headers);
        prefer.wait = prefer.wait.map(|wait| wait.min(front.max_wait));
        Ok(Self {
            prefer,
            idempotency_key: idempotency_key(headers)?,
            cancel_after: read(headers, &headers::CANCEL_AFTER, parse_duration, || {
                bad_request(
                    "invalid_cancel_after",
                    "`Cancel-After` is a duration such as 90, 90s, 1.5m, 2h or 7d",
                )
            })?,
            delay: read(
                headers,
                &headers::NOT_BEFORE,
                |text| headers::parse_not_before(text, SystemTime::now()),
                || {
                    bad_request(
                        "invalid_not_before",
                        "`Not-Before` is a number of seconds, a duration such as 2h, or an HTTP date",
                    )
                },
            )?,
            webhook: webhook(headers, front.check_webhook.as_deref())?,
            cancels_on_disconnect: headers
                .get(&headers::CANCEL_ON_DISCONNECT)
                .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true")),
        })
    }

    /// Returns the value of the `Preference-Applied` header, or `None` if there is nothing to report.
    pub(super) fn applied(&self, is_receipt: bool) -> Option<String> {
        let respond_async = (is_receipt && self.prefer.respond_async).then(|| RESPOND_ASYNC.into());
        let wait = self.prefer.wait;
        let wait = wait.map(|wait| format!("wait={}", wait.as_secs()));
        let applied: Vec<String> = respond_async.into_iter().chain(wait).collect();
        (!applied.is_empty()).then(|| applied.join(", "))
    }
}

const RESPOND_ASYNC: &str = "respond-async";

/// The largest length of an idempotency key in characters.
const LONGEST_KEY: usize = 255;

fn read<T>(
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

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Rejection> {
    let is_allowed =
        |key: &str| (!key.is_empty() && key.len() <= LONGEST_KEY).then(|| key.to_owned());
    read(headers, &headers::IDEMPOTENCY_KEY, is_allowed, || {
        bad_request(
            "invalid_idempotency_key",
            "`Idempotency-Key` is 1 to 255 visible characters",
        )
    })
}

/// Reads the address in `Webhook-URL`. Without a `check`, no webhook is sent.
pub(in crate::durable) fn webhook(
    headers: &HeaderMap,
    check: Option<&CheckWebhook>,
) -> Result<Option<String>, Rejection> {
    let invalid = || {
        bad_request(
            "invalid_webhook_url",
            "`Webhook-URL` is an absolute URL of http or https",
        )
    };
    let parse = |text: &str| {
        let uri: Uri = text.parse().ok()?;
        matches!(uri.scheme_str(), Some("http" | "https")).then_some(uri)
    };
    let Some(uri) = read(headers, &headers::WEBHOOK_URL, parse, invalid)? else {
        return Ok(None);
    };
    match check {
        Some(check) => check(&uri)?,
        None => {
            return Err(bad_request(
                "webhook_not_allowed",
                "webhooks are not sent here",
            ));
        }
    }
    Ok(Some(uri.to_string()))
}
