//! The options that a caller sets for its request in headers.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

use super::shared::Front;
use crate::headers::{self, Preferences, read};
use crate::parse_duration;
use crate::rejections::bad_request;
use crate::webhooks;
use tower_triage::rejection::Rejection;

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
            webhook: webhooks::requested(headers, front.check_webhook.as_deref())?,
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
