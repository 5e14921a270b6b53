//! Rejections, which are the responses to requests that are not served.
//!
//! A [`Rejection`] tells the client the problem, if a retry helps, and the time of that retry.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use super::ErrorCode;
use super::render::{self, grpc_content_type};
use crate::admit::RejectReason;

/// The response to a request that is not served, with its status, code, message and `Retry-After`.
///
/// ```
/// use http::StatusCode;
/// use tower_triage::rejection::Rejection;
///
/// let rejection = Rejection::new(StatusCode::NOT_FOUND, "model_not_found", "no such model: gpt-5")
///     .with_param("model");
/// assert_eq!(rejection.kind(), "invalid_request_error");
/// assert_eq!(rejection.grpc_status(), 5);
///
/// let response = rejection.into_response();
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
    pub(super) message: Cow<'static, str>,
    param: Option<Cow<'static, str>>,
    retry_after: Option<Duration>,
}

impl Rejection {
    /// Creates a rejection. Its `kind` and its gRPC status follow from the HTTP status:
    ///
    /// | HTTP | kind | gRPC |
    /// |---|---|---|
    /// | 400 | `invalid_request_error` | 3 `INVALID_ARGUMENT` |
    /// | 404 | `invalid_request_error` | 5 `NOT_FOUND` |
    /// | 408 | `invalid_request_error` | 4 `DEADLINE_EXCEEDED` |
    /// | 413 | `invalid_request_error` | 8 `RESOURCE_EXHAUSTED` |
    /// | 429 | `rate_limit_error` | 8 `RESOURCE_EXHAUSTED` |
    /// | 503 | `server_error` | 14 `UNAVAILABLE` |
    /// | 504 | `server_error` | 4 `DEADLINE_EXCEEDED` |
    /// | 415 | `invalid_request_error` | 12 `UNIMPLEMENTED` |
    /// | other 4xx | `invalid_request_error` | 2 `UNKNOWN` |
    /// | any other | `server_error` | 2 `UNKNOWN` |
    ///
    /// `code` is for programs and must stay the same from release to release, while `message` is for people.
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
        }
    }

    /// Replaces the HTTP status. The kind and the gRPC status follow from it, as in [`new`](Self::new), and a kind that
    /// was set before is lost. The wait before a retry stays if trying again helps with the new status, too.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_triage::RejectReason;
    /// use tower_triage::rejection::ToRejection;
    ///
    /// let full = RejectReason::<std::convert::Infallible>::Full.to_rejection();
    /// assert_eq!((full.status().as_u16(), full.grpc_status()), (503, 14));
    /// let full = full.with_status(StatusCode::TOO_MANY_REQUESTS);
    /// assert_eq!((full.status().as_u16(), full.grpc_status()), (429, 8));
    /// assert_eq!((full.kind(), full.code()), ("rate_limit_error", "queue_full"));
    /// ```
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        (self.status, self.kind) = (status, kind(status));
        self.grpc_status = grpc_status(status);
        self.retry_after = self.retry_after.filter(|_| is_overload(status));
        self
    }

    /// Sets the parameter of the request that is at fault.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Replaces the kind that followed from the status.
    #[must_use]
    pub fn with_kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the wait before the client tries again. Over HTTP it is sent as `Retry-After` in whole seconds, rounded up,
    /// and as `retry-after-ms`. Both are at most 120 s, and a wait of zero is sent as 1 s. Over gRPC it is sent in
    /// milliseconds.
    ///
    /// The wait is ignored unless trying again helps (see [`is_retryable`](Self::is_retryable)).
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = self.is_retryable().then_some(wait);
        self
    }

    /// Returns `true` if the same request may be served later, which is so for the statuses 503 and 429.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        is_overload(self.status)
    }

    /// Returns `true` if the same request would be rejected again, which is so for the statuses 4xx other than 408, 409 and
    /// 429. Over HTTP, the response then has the header `x-should-retry: false`.
    pub(super) fn is_final(&self) -> bool {
        self.status.is_client_error() && !matches!(self.status.as_u16(), 408 | 409 | 429)
    }

    /// Returns the HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the gRPC status code as a number.
    #[must_use]
    pub fn grpc_status(&self) -> i32 {
        self.grpc_status
    }

    /// Returns the class of the error, which is the `type` in the body, in the words that OpenAI's clients know.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the cause for programs, such as `queue_full` or `model_not_found`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns the cause for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the parameter of the request that is at fault.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// Returns the wait before the client should try again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the response over HTTP, with a JSON body shaped like OpenAI's errors. The SDKs of OpenAI and Anthropic read
    /// its headers `retry-after-ms`, and `x-should-retry: false` where the same request would be rejected again. The response
    /// has its [`ErrorCode`] as an extension.
    #[must_use]
    pub fn into_response(self) -> Response<Bytes> {
        self.with_code(render::http(&self))
    }

    /// Returns the JSON body of the response over HTTP.
    pub(crate) fn to_json(&self) -> String {
        render::json(self)
    }

    /// Returns the response to the client that sent these headers. The content type of the request decides its form:
    ///
    /// | request | response |
    /// |---|---|
    /// | `application/grpc`, `application/grpc+...` | a trailers-only gRPC response: HTTP 200, no body, the gRPC status in the headers |
    /// | `application/grpc-web...`, `application/grpc-web-text...` | the same with the content type of gRPC-Web: its clients read the status from the headers, too. Browsers show it to a page of another origin only if CORS exposes `grpc-status` and `grpc-message` |
    /// | any other, or none | HTTP with a JSON body shaped like OpenAI's errors |
    ///
    /// The response has its [`ErrorCode`] as an extension.
    #[must_use]
    pub fn into_response_to(self, request: &HeaderMap) -> Response<Bytes> {
        self.with_code(self.render_to(request))
    }

    /// Returns the same response without its `ErrorCode`, for rejections that have their
    /// [`RejectReason`](crate::RejectReason) instead.
    pub(crate) fn render_to(&self, request: &HeaderMap) -> Response<Bytes> {
        match grpc_content_type(request) {
            None => render::http(self),
            Some(content_type) => render::grpc(self, content_type),
        }
    }

    fn with_code(&self, mut response: Response<Bytes>) -> Response<Bytes> {
        response.extensions_mut().insert(ErrorCode(self.code));
        response
    }
}

/// A reason for which a request is not served, as a [`Rejection`].
///
/// ```
/// use http::StatusCode;
/// use tower_triage::rejection::{Rejection, ToRejection};
///
/// struct NoSuchModel(String);
///
/// impl ToRejection for NoSuchModel {
///     fn to_rejection(&self) -> Rejection {
///         let message = format!("no such model: {}", self.0);
///         Rejection::new(StatusCode::NOT_FOUND, "model_not_found", message)
///     }
/// }
/// assert_eq!(NoSuchModel("gpt-5".to_owned()).to_rejection().kind(), "invalid_request_error");
/// ```
pub trait ToRejection {
    /// Returns the rejection for this reason. The layer adds the time of a retry.
    fn to_rejection(&self) -> Rejection;
}

impl<N: ToRejection> ToRejection for RejectReason<N> {
    fn to_rejection(&self) -> Rejection {
        let (code, message) = match self {
            Self::Full => (
                "queue_full",
                "every slot is busy and the waiting room is full",
            ),
            Self::Overloaded { .. } => (
                "overloaded",
                "every slot is busy and the wait would be too long",
            ),
            Self::TenantFull => (
                "tenant_queue_full",
                "this tenant has all the slots and places in the waiting room that it may have",
            ),
            Self::TimedOut => (
                "queue_timeout",
                "no slot became free within the longest wait allowed",
            ),
            Self::DeadlinePassed => (
                "deadline_exceeded",
                "the request's own deadline passed while it waited for a slot",
            ),
            Self::HeldTooLong => (
                "slot_timeout",
                "the answer had not begun when the request's time with its slot was over",
            ),
            Self::Stalled => (
                "request_body_timeout",
                "the rest of the request's body did not arrive in time, and others needed its slot",
            ),
            Self::Disabled => (
                "queue_disabled",
                "every slot is busy and queueing is disabled",
            ),
            Self::Shed => (
                "overloaded",
                "the service is overloaded: every slot is busy",
            ),
            Self::NotQueued => ("not_queued", NOT_TO_WAIT),
            Self::Displaced => (
                "displaced",
                "a request of higher priority, or of a tenant or level further below its share, took this request's place",
            ),
            Self::ShuttingDown => ("shutting_down", "the service is shutting down"),
            Self::Unservable(reason) => return reason.to_rejection(),
        };
        let status = match self {
            Self::TenantFull => StatusCode::TOO_MANY_REQUESTS,
            Self::DeadlinePassed | Self::HeldTooLong => StatusCode::GATEWAY_TIMEOUT,
            Self::Stalled => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Rejection::new(status, code, message)
    }
}

impl<N: ToRejection> RejectReason<N> {
    /// Returns `true` if the same request may be served later. Its rejection then has the time to
    /// [try again](Rejection::retry_after).
    ///
    /// ```
    /// use tower_triage::RejectReason;
    ///
    /// assert!(RejectReason::<std::convert::Infallible>::Full.is_retryable());
    /// assert!(!RejectReason::<std::convert::Infallible>::DeadlinePassed.is_retryable());
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.to_rejection().is_retryable()
    }
}

impl<N> RejectReason<N> {
    /// Returns `true` if every slot is busy and the request may not wait, or not any longer. The status of these
    /// rejections is configured.
    fn is_overload(&self) -> bool {
        match self {
            Self::Full
            | Self::Overloaded { .. }
            | Self::TimedOut
            | Self::Disabled
            | Self::Shed
            | Self::NotQueued
            | Self::Displaced => true,
            // A tenant's own limit is 429 in any case, and its own deadline 504.
            Self::TenantFull | Self::DeadlinePassed | Self::HeldTooLong | Self::Stalled => false,
            Self::ShuttingDown | Self::Unservable(_) => false,
        }
    }
}

/// Returns the rejection for a reason, with the status `overload` if the reason is that every slot is busy.
pub(crate) fn rejection<N: ToRejection>(
    reason: &RejectReason<N>,
    overload: StatusCode,
) -> Rejection {
    let rejection = reason.to_rejection();
    match reason.is_overload() {
        true => rejection.with_status(overload),
        false => rejection,
    }
}

impl ToRejection for Infallible {
    fn to_rejection(&self) -> Rejection {
        match *self {}
    }
}

fn grpc_status(status: StatusCode) -> i32 {
    match status.as_u16() {
        400 => 3,
        404 => 5,
        413 | 429 => 8,
        415 => 12,
        503 => 14,
        408 | 504 => 4,
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

const NOT_TO_WAIT: &str = "every slot is busy and this request is not to wait";

/// Returns the rejection of a stream that may not wait because it is one.
pub(crate) fn streaming_not_queued(status: StatusCode) -> Rejection {
    Rejection::new(status, "streaming_not_queued", NOT_TO_WAIT)
}

/// Returns `true` if a service reports with this status that it has too much to do.
pub(crate) fn is_overload(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const REASONS: [(RejectReason, u16, i32, &str); 12] = [
        (
            RejectReason::Overloaded {
                retry_after: Duration::ZERO,
            },
            503,
            14,
            "overloaded",
        ),
        (RejectReason::Full, 503, 14, "queue_full"),
        (RejectReason::Shed, 503, 14, "overloaded"),
        (RejectReason::TimedOut, 503, 14, "queue_timeout"),
        (RejectReason::Disabled, 503, 14, "queue_disabled"),
        (RejectReason::ShuttingDown, 503, 14, "shutting_down"),
        (RejectReason::Displaced, 503, 14, "displaced"),
        (RejectReason::NotQueued, 503, 14, "not_queued"),
        (RejectReason::TenantFull, 429, 8, "tenant_queue_full"),
        (RejectReason::DeadlinePassed, 504, 4, "deadline_exceeded"),
        (RejectReason::HeldTooLong, 504, 4, "slot_timeout"),
        (RejectReason::Stalled, 408, 4, "request_body_timeout"),
    ];

    #[test]
    fn every_reason_has_its_status_and_code() {
        for (reason, status, grpc_status, code) in REASONS {
            let rejection = reason.to_rejection();
            assert_eq!(rejection.status(), status, "{reason:?}");
            assert_eq!(rejection.grpc_status(), grpc_status, "{reason:?}");
            assert_eq!(rejection.code(), code, "{reason:?}");
            assert_eq!(
                rejection.is_retryable(),
                ![408, 504].contains(&status),
                "{reason:?}"
            );
        }
    }

    #[test]
    fn the_client_and_the_log_read_the_same() {
        for (reason, ..) in REASONS {
            assert_eq!(reason.to_rejection().message(), reason.to_string());
        }
    }

    #[test]
    fn a_rejection_can_be_built_from_its_parts() {
        for rejection in REASONS.map(|(reason, ..)| reason.to_rejection()) {
            let fresh = Rejection::new(
                rejection.status(),
                rejection.code(),
                rejection.message().to_owned(),
            );
            assert_eq!(fresh.kind(), rejection.kind());
            assert_eq!(
                fresh.into_response().body(),
                rejection.into_response().body()
            );
        }
    }

    #[test]
    fn a_new_status_changes_kind_and_grpc_status_and_keeps_the_wait() {
        let wait = Duration::from_secs(3);
        let full = RejectReason::<Infallible>::Full.to_rejection();
        let full = full.with_kind("busy").with_retry_after(wait);
        let limited = full.clone().with_status(StatusCode::TOO_MANY_REQUESTS);
        assert_eq!((limited.status().as_u16(), limited.grpc_status()), (429, 8));
        assert_eq!(limited.kind(), "rate_limit_error");
        assert_eq!(limited.retry_after(), Some(wait));
        assert_eq!(limited.code(), full.code());
        let teapot = full.with_status(StatusCode::IM_A_TEAPOT);
        assert_eq!(
            (teapot.kind(), teapot.grpc_status()),
            ("invalid_request_error", 2)
        );
        assert_eq!(teapot.retry_after(), None);
    }

    #[test]
    fn the_status_of_overload_replaces_503_only_where_slots_are_busy() {
        for (reason, status, ..) in REASONS {
            let changed = rejection(&reason, StatusCode::TOO_MANY_REQUESTS);
            let expected = match reason {
                RejectReason::ShuttingDown
                | RejectReason::DeadlinePassed
                | RejectReason::HeldTooLong
                | RejectReason::Stalled => status,
                _ => 429,
            };
            assert_eq!(changed.status(), expected, "{reason:?}");
            assert_eq!(
                rejection(&reason, StatusCode::SERVICE_UNAVAILABLE),
                reason.to_rejection()
            );
        }
    }

    #[test]
    fn a_changed_rejection_is_rendered_as_changed() {
        let body = |rejection: Rejection| rejection.into_response().into_body();
        let full = || RejectReason::<Infallible>::Full.to_rejection();
        assert!(
            body(full().with_param("model")).ends_with(br#""param":"model","code":"queue_full"}}"#)
        );
        assert!(
            body(full().with_kind("overloaded"))
                .ends_with(br#""type":"overloaded","param":null,"code":"queue_full"}}"#)
        );
    }

    #[test]
    fn only_retryable_rejections_say_when() {
        let wait = Duration::from_secs(3);
        for (reason, status, ..) in REASONS {
            let retry_after = reason.to_rejection().with_retry_after(wait).retry_after();
            assert_eq!(
                retry_after.is_some(),
                ![408, 504].contains(&status),
                "{reason:?}"
            );
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
