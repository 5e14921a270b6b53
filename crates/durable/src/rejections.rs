//! The rejections that callers of stored requests get.

use std::time::Duration;

use http::StatusCode;

use super::{RequestId, RequestInfo, RequestStatus, StoreError};
use tower_triage::rejection::{Rejection, ToRejection};

impl ToRejection for StoreError {
    /// Returns the rejection for a caller, with the time after which another try is worthwhile.
    fn to_rejection(&self) -> Rejection {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let (status, code, again) = match self {
            Self::QueueFull { .. } => (unavailable, "queue_full", 5),
            Self::TenantQueueFull { .. } => (StatusCode::TOO_MANY_REQUESTS, "tenant_queue_full", 5),
            Self::IdempotencyKeyReused => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency_key_reused",
                0,
            ),
            Self::StorageFull(_) => (unavailable, "storage_full", 10),
            Self::NotReplicated { .. } => (unavailable, "not_replicated", 1),
            Self::Unsupported(_) => (StatusCode::NOT_IMPLEMENTED, "not_supported", 0),
            Self::Unavailable(_) => (unavailable, "store_unavailable", 1),
        };
        let message = match self {
            // The details, such as the address of a server, belong only in the operator's log.
            Self::StorageFull(_) => "the storage of requests is full".to_owned(),
            Self::Unavailable(_) => "the store of requests is unavailable".to_owned(),
            Self::Unsupported(_) => "the store of requests has no such operation".to_owned(),
            other => other.to_string(),
        };
        let rejection = Rejection::new(status, code, message);
        rejection.with_retry_after(Duration::from_secs(again))
    }
}

/// Returns `true` if a request may be stored although storing it failed with this error.
pub(super) fn may_be_stored(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NotReplicated { .. } | StoreError::Unavailable(_)
    )
}

/// Returns the rejection of a request with an idempotency key that may be stored all the same.
pub(super) fn with_key(error: &StoreError, id: RequestId) -> Rejection {
    let what = "it may be stored and run: repeat it with its Idempotency-Key, which starts it once";
    doubtful(error, id, what)
}

/// Returns the rejection of a request that may be stored, and is therefore cancelled.
pub(super) fn without_key(error: &StoreError, id: RequestId) -> Rejection {
    let what =
        "it may be stored, and is cancelled as soon as the store answers, but may run until then";
    doubtful(error, id, what)
}

fn doubtful(error: &StoreError, id: RequestId, what: &str) -> Rejection {
    let rejection = error.to_rejection();
    let message = format!("{}; request {id}: {what}", rejection.message());
    let doubtful = Rejection::new(rejection.status(), rejection.code(), message);
    match rejection.retry_after() {
        Some(wait) => doubtful.with_retry_after(wait),
        None => doubtful,
    }
}

/// Returns the rejection for a caller of a request that has ended without a response.
pub(super) fn without_response(info: &RequestInfo) -> Rejection {
    let bad_gateway = StatusCode::BAD_GATEWAY;
    if is_late(info) {
        let message = "the time that the request had was up";
        return Rejection::new(StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded", message);
    }
    match (info.status, info.reason.as_deref()) {
        (RequestStatus::Canceled, _) => Rejection::new(
            StatusCode::CONFLICT,
            "request_canceled",
            "the request was cancelled",
        ),
        (_, Some("attempt_timeout")) => Rejection::new(
            StatusCode::GATEWAY_TIMEOUT,
            "attempt_timeout",
            "the attempt took longer than an attempt may",
        ),
        (_, Some("worker_panicked")) => Rejection::new(
            bad_gateway,
            "worker_panicked",
            "the service failed while it worked on the request",
        ),
        (_, Some("invalid_request")) => Rejection::new(
            bad_gateway,
            "invalid_request",
            "the worker could not read the stored request",
        ),
        (_, Some("service_failed")) => Rejection::new(
            bad_gateway,
            "service_failed",
            "the service failed without a response",
        ),
        (_, Some("response_too_large")) => Rejection::new(
            bad_gateway,
            "response_too_large",
            "the response is larger than those that are stored",
        ),
        _ => Rejection::new(
            bad_gateway,
            "worker_lost",
            "the worker that ran the request was lost",
        ),
    }
}

/// Returns `true` if the request has ended because its deadline passed.
fn is_late(info: &RequestInfo) -> bool {
    let reason = info.reason.as_deref();
    info.status == RequestStatus::Aborted
        || info.status == RequestStatus::Canceled && reason == Some("deadline_exceeded")
}

/// Returns the reason that pages show to a caller, or `None` if the request has succeeded or has yet to end.
pub(super) fn reason(info: &RequestInfo) -> Option<&str> {
    let given = info.reason.as_deref();
    match info.status {
        RequestStatus::Failed if info.response_status.is_some() => {
            Some(given.unwrap_or("error_response"))
        }
        RequestStatus::Failed => Some(given.unwrap_or("worker_lost")),
        RequestStatus::Canceled => Some(given.unwrap_or("request_canceled")),
        RequestStatus::Aborted => Some(given.unwrap_or("deadline_exceeded")),
        _ => None,
    }
}

pub(super) fn not_found() -> Rejection {
    Rejection::new(
        StatusCode::NOT_FOUND,
        "request_not_found",
        "no such request, or it was forgotten after its retention",
    )
}

pub(super) fn not_finished() -> Rejection {
    Rejection::new(
        StatusCode::CONFLICT,
        "request_not_finished",
        "the request has no response yet",
    )
}

pub(super) fn bad_request(code: &'static str, message: &'static str) -> Rejection {
    Rejection::new(StatusCode::BAD_REQUEST, code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_a_response_is_answered_with_its_reason() {
        let at = std::time::SystemTime::UNIX_EPOCH;
        let mut info = RequestInfo::queued(crate::RequestId::from_bits(1), at);
        for (status, code, http_status) in [
            (RequestStatus::Aborted, "deadline_exceeded", 504),
            (RequestStatus::Canceled, "deadline_exceeded", 504),
            (RequestStatus::Canceled, "request_canceled", 409),
            (RequestStatus::Failed, "attempt_timeout", 504),
            (RequestStatus::Failed, "invalid_request", 502),
            (RequestStatus::Failed, "response_too_large", 502),
            (RequestStatus::Failed, "service_failed", 502),
            (RequestStatus::Failed, "worker_lost", 502),
            (RequestStatus::Failed, "worker_panicked", 502),
        ] {
            (info.status, info.reason) = (status, Some(code.to_owned()));
            let rejection = without_response(&info);
            assert_eq!(rejection.code(), code);
            assert_eq!(rejection.status(), http_status, "{code}");
            assert_eq!(reason(&info), Some(code));
        }
    }

    #[test]
    fn each_store_error_has_its_status_and_code() {
        let second = Duration::from_secs(1);
        for (error, status, code) in [
            (StoreError::QueueFull { max_size: 1 }, 503, "queue_full"),
            (
                StoreError::TenantQueueFull { max_size: 1 },
                429,
                "tenant_queue_full",
            ),
            (
                StoreError::IdempotencyKeyReused,
                422,
                "idempotency_key_reused",
            ),
            (StoreError::Unsupported("secret"), 501, "not_supported"),
            (
                StoreError::StorageFull("/secret".into()),
                503,
                "storage_full",
            ),
            (
                StoreError::NotReplicated {
                    wanted: 2,
                    within: second,
                },
                503,
                "not_replicated",
            ),
            (
                StoreError::Unavailable("secret:6379".into()),
                503,
                "store_unavailable",
            ),
        ] {
            let rejection = error.to_rejection();
            assert_eq!(rejection.status(), status);
            assert_eq!(rejection.code(), code);
            assert_eq!(
                rejection.retry_after().is_some(),
                ![422, 501].contains(&status),
                "{code}"
            );
            assert!(!rejection.message().contains("secret"), "{code}");
        }
    }
}
