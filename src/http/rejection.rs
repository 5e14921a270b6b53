//! "503" alone leaves a client guessing: is it my fault, does trying again help, and when?
//!
//! A [`Rejection`] says all of it once; [`Rejection::into_response`] says it in the client's protocol.
//! Whatever can keep a request from being served implements [`ToRejection`].

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use super::{AnswerFormat, render};
use crate::admit::RejectReason;

/// What a client is told when its request is not served.
///
/// ```
/// use http::StatusCode;
/// use tower_triage::Rejection;
///
/// let rejection = Rejection::new(StatusCode::NOT_FOUND, "model_not_found", "no such model: gpt-5")
///     .with_param("model");
/// assert_eq!(rejection.kind(), "invalid_request_error");
/// assert_eq!(rejection.grpc_status(), 5);
///
/// let response = rejection.into_response(false);
/// assert_eq!(
///     response.body(),
///     r#"{"error":{"message":"no such model: gpt-5","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#,
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    status: StatusCode,
    grpc_status: i32,
    kind: &'static str,
    code: &'static str,
    message: Cow<'static, str>,
    param: Option<Cow<'static, str>>,
    retry_after: Option<Duration>,
    /// The JSON body, where it was known before the program ran: a full room says no very often.
    printed: Option<&'static str>,
}

impl Rejection {
    /// A rejection whose `kind` and gRPC status follow from the HTTP status:
    ///
    /// | HTTP | kind | gRPC |
    /// |---|---|---|
    /// | 400 | `invalid_request_error` | 3 `INVALID_ARGUMENT` |
    /// | 404 | `invalid_request_error` | 5 `NOT_FOUND` |
    /// | 413 | `invalid_request_error` | 8 `RESOURCE_EXHAUSTED` |
    /// | 429 | `rate_limit_error` | 8 `RESOURCE_EXHAUSTED` |
    /// | 503 | `server_error` | 14 `UNAVAILABLE` |
    /// | 504 | `server_error` | 4 `DEADLINE_EXCEEDED` |
    /// | 415 | `invalid_request_error` | 12 `UNIMPLEMENTED` |
    /// | other 4xx | `invalid_request_error` | 2 `UNKNOWN` |
    /// | any other | `server_error` | 2 `UNKNOWN` |
    ///
    /// `code` is for programs and must stay the same from release to release; `message` is for people.
    #[must_use]
    pub fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            grpc_status: grpc_status(status),
            kind: kind(status),
            code,
            message: message.into(),
            param: None,
            retry_after: None,
            printed: None,
        }
    }

    /// Names the parameter of the request that is at fault.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(param.into());
        self.printed = None;
        self
    }

    /// Replaces the kind that followed from the status.
    #[must_use]
    pub fn with_kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self.printed = None;
        self
    }

    /// Says when to try again: sent as whole seconds, rounded up, at least 1; to gRPC as milliseconds.
    ///
    /// Ignored unless trying again helps (see [`is_retryable`](Self::is_retryable)).
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = self.is_retryable().then_some(wait);
        self
    }

    /// Whether the same request may be served later: the status is 503 or 429.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        )
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The gRPC status code, as a number.
    #[must_use]
    pub fn grpc_status(&self) -> i32 {
        self.grpc_status
    }

    /// The class of the error, `type` in the body, in the words that OpenAI's clients know.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The cause, for programs: `queue_full`, `model_not_found`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The cause, for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The parameter of the request that is at fault.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// When to try again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The answer as it goes out: HTTP with a JSON body shaped like OpenAI's errors, or, for a client that
    /// [speaks gRPC](super::is_grpc), a trailers-only gRPC response.
    #[must_use]
    pub fn into_response(self, is_grpc: bool) -> Response<Bytes> {
        self.into_response_in(match is_grpc {
            true => AnswerFormat::Grpc,
            false => AnswerFormat::Http,
        })
    }

    /// The answer as it goes out to the client whose request has these headers. By the request's content type:
    ///
    /// | request | answer |
    /// |---|---|
    /// | `application/grpc`, `application/grpc+...` | a trailers-only gRPC response: HTTP 200, no body, the gRPC status in the headers |
    /// | `application/grpc-web...`, `application/grpc-web-text...` | the same with the content type of gRPC-Web, whose clients read the status from the headers, too. Browsers show it to a page of another origin only if CORS exposes `grpc-status` and `grpc-message` |
    /// | any other, or none | HTTP with a JSON body shaped like OpenAI's errors |
    #[must_use]
    pub fn into_response_to(self, request: &HeaderMap) -> Response<Bytes> {
        self.into_response_in(AnswerFormat::of(request))
    }

    pub(crate) fn into_response_in(self, format: AnswerFormat) -> Response<Bytes> {
        match format {
            AnswerFormat::Http => render::http(&self),
            _ => render::grpc(&self, format.grpc_content_type()),
        }
    }

    pub(super) fn static_message(&self) -> Option<&'static str> {
        match self.message {
            Cow::Borrowed(message) => Some(message),
            Cow::Owned(_) => None,
        }
    }

    pub(super) fn printed(&self) -> Option<&'static str> {
        self.printed
    }
}

/// Something that keeps a request from being served, and can tell the client what.
pub trait ToRejection {
    /// What the client is told. When to come back is added by who knows how fast things move.
    fn to_rejection(&self) -> Rejection;
}

impl<N: ToRejection> ToRejection for RejectReason<N> {
    fn to_rejection(&self) -> Rejection {
        match self {
            Self::Full => QUEUE_FULL,
            Self::TenantFull => TENANT_QUEUE_FULL,
            Self::TimedOut => QUEUE_TIMEOUT,
            Self::DeadlinePassed => DEADLINE_EXCEEDED,
            Self::Disabled => QUEUE_DISABLED,
            Self::NotQueued => STREAMING_NOT_QUEUED,
            Self::Displaced => DISPLACED,
            Self::ShuttingDown => SHUTTING_DOWN,
            Self::Unservable(reason) => reason.to_rejection(),
        }
    }
}

impl ToRejection for Infallible {
    fn to_rejection(&self) -> Rejection {
        match *self {}
    }
}

/// The HTTP answer of a full room to a request that has not waited. Nothing in it differs but the seconds, so each is
/// made once and then copied: a copy hashes no header name.
pub(crate) fn queue_full(retry_after: u64) -> Response<Bytes> {
    static KEPT: [OnceLock<Response<Bytes>>; MOST_KEPT] = [const { OnceLock::new() }; MOST_KEPT];
    let write = || {
        let rejection = QUEUE_FULL.with_retry_after(Duration::from_secs(retry_after));
        rejection.into_response_in(AnswerFormat::Http)
    };
    let seconds = usize::try_from(retry_after).unwrap_or(usize::MAX);
    match KEPT.get(seconds) {
        Some(kept) => kept.get_or_init(write).clone(),
        None => write(),
    }
}

/// Clients are told to come back within a minute, unless it is configured otherwise.
const MOST_KEPT: usize = 61;

const fn grpc_status(status: StatusCode) -> i32 {
    match status.as_u16() {
        400 => 3,
        404 => 5,
        413 | 429 => 8,
        415 => 12,
        503 => 14,
        504 => 4,
        _ => 2,
    }
}

fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        _ if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    }
}

/// A rejection whose body is put together by the compiler. Its texts need no escaping.
macro_rules! print {
    ($name:ident: $status:ident, $kind:literal, $code:literal, $message:literal) => {
        const $name: Rejection = Rejection {
            status: StatusCode::$status,
            grpc_status: grpc_status(StatusCode::$status),
            kind: $kind,
            code: $code,
            message: Cow::Borrowed($message),
            param: None,
            retry_after: None,
            printed: Some(concat!(
                r#"{"error":{"message":""#,
                $message,
                r#"","type":""#,
                $kind,
                r#"","param":null,"code":""#,
                $code,
                r#""}}"#
            )),
        };
    };
}

print!(QUEUE_FULL: SERVICE_UNAVAILABLE, "server_error", "queue_full",
    "every slot is busy and the waiting room is full");
print!(TENANT_QUEUE_FULL: TOO_MANY_REQUESTS, "rate_limit_error", "tenant_queue_full",
    "every slot is busy and this tenant's share of the waiting room is full");
print!(QUEUE_TIMEOUT: SERVICE_UNAVAILABLE, "server_error", "queue_timeout",
    "no slot became free within the longest wait allowed");
print!(DEADLINE_EXCEEDED: GATEWAY_TIMEOUT, "server_error", "deadline_exceeded",
    "the request's own deadline passed while it waited for a slot");
print!(QUEUE_DISABLED: SERVICE_UNAVAILABLE, "server_error", "queue_disabled",
    "every slot is busy and queueing is disabled");
print!(DISPLACED: SERVICE_UNAVAILABLE, "server_error", "displaced",
    "a request of higher priority took this request's place in the full waiting room");
print!(SHUTTING_DOWN: SERVICE_UNAVAILABLE, "server_error", "shutting_down",
    "the service is shutting down");
print!(STREAMING_NOT_QUEUED: SERVICE_UNAVAILABLE, "server_error", "streaming_not_queued",
    "every slot is busy and this request is not to wait");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const REASONS: [(RejectReason, u16, i32, &str); 8] = [
        (RejectReason::Full, 503, 14, "queue_full"),
        (RejectReason::TimedOut, 503, 14, "queue_timeout"),
        (RejectReason::Disabled, 503, 14, "queue_disabled"),
        (RejectReason::ShuttingDown, 503, 14, "shutting_down"),
        (RejectReason::Displaced, 503, 14, "displaced"),
        (RejectReason::NotQueued, 503, 14, "streaming_not_queued"),
        (RejectReason::TenantFull, 429, 8, "tenant_queue_full"),
        (RejectReason::DeadlinePassed, 504, 4, "deadline_exceeded"),
    ];

    #[test]
    fn every_reason_has_its_status_and_code() {
        for (reason, status, grpc_status, code) in REASONS {
            let rejection = reason.to_rejection();
            assert_eq!(rejection.status(), status, "{reason:?}");
            assert_eq!(rejection.grpc_status(), grpc_status, "{reason:?}");
            assert_eq!(rejection.code(), code, "{reason:?}");
            assert_eq!(rejection.is_retryable(), status != 504, "{reason:?}");
        }
    }

    #[test]
    fn clients_read_what_the_log_says() {
        for (reason, ..) in REASONS {
            assert_eq!(reason.to_rejection().message(), reason.to_string());
        }
    }

    #[test]
    fn what_was_printed_beforehand_is_what_would_be_rendered() {
        for rejection in REASONS.map(|(reason, ..)| reason.to_rejection()) {
            let fresh = Rejection::new(
                rejection.status(),
                rejection.code(),
                rejection.message().to_owned(),
            );
            assert_eq!(fresh.kind(), rejection.kind());
            assert_eq!(
                fresh.into_response(false).body(),
                rejection.into_response(false).body()
            );
        }
    }

    #[test]
    fn a_changed_rejection_is_rendered_anew() {
        let body = |rejection: Rejection| rejection.into_response(false).into_body();
        assert!(
            body(QUEUE_FULL.with_param("model"))
                .ends_with(br#""param":"model","code":"queue_full"}}"#)
        );
        assert!(
            body(QUEUE_FULL.with_kind("overloaded"))
                .ends_with(br#""type":"overloaded","param":null,"code":"queue_full"}}"#)
        );
    }

    #[test]
    fn only_who_may_try_again_is_told_when() {
        let wait = Duration::from_secs(3);
        for (reason, status, ..) in REASONS {
            let told = reason.to_rejection().with_retry_after(wait).retry_after();
            assert_eq!(told.is_some(), status != 504, "{reason:?}");
        }
    }

    #[test]
    fn a_capacity_explains_its_own_reasons() {
        struct NoSuchModel;
        impl ToRejection for NoSuchModel {
            fn to_rejection(&self) -> Rejection {
                Rejection::new(StatusCode::NOT_FOUND, "model_not_found", "no such model")
            }
        }
        assert_eq!(
            RejectReason::Unservable(NoSuchModel).to_rejection().code(),
            "model_not_found"
        );
    }
}
