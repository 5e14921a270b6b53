//! The reasons for which a call of the API for files and batches fails.

use std::borrow::Cow;

use http::StatusCode;

use tower_triage::rejection::{Rejection, ToRejection};
use tower_triage_durable::QuotaError;
use tower_triage_durable::StoreError;

/// The failure of a call, caused by a mistake of the client or by the store.
#[derive(Debug)]
pub(super) enum Failure {
    Rejected(Rejection),
    Store(StoreError),
}

impl Failure {
    /// Returns a failure for a system that can't provide random bytes.
    pub(super) fn no_random(error: std::io::Error) -> Self {
        Self::Store(StoreError::Unavailable(format!(
            "the system has no random bytes: {error}"
        )))
    }

    /// Returns the response to the client.
    pub(super) fn into_rejection(self) -> Rejection {
        match self {
            Self::Rejected(rejection) => rejection,
            Self::Store(error) => error.to_rejection(),
        }
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<QuotaError> for Failure {
    fn from(error: QuotaError) -> Self {
        match error {
            QuotaError::Full(rejection) => Self::Rejected(rejection),
            QuotaError::Store(error) => Self::Store(error),
        }
    }
}

/// Returns the response to an invalid request.
pub(super) fn bad_request(code: &'static str, message: impl Into<Cow<'static, str>>) -> Rejection {
    Rejection::new(StatusCode::BAD_REQUEST, code, message)
}

/// Returns the response to a request for an object that its tenant does not have. `thing` is `file` or `batch`.
pub(super) fn not_found(thing: &str, id: &str) -> Rejection {
    let code = match thing {
        "file" => "file_not_found",
        _ => "batch_not_found",
    };
    Rejection::new(
        StatusCode::NOT_FOUND,
        code,
        format!("no such {thing}: {id}"),
    )
}

/// Returns the response to a request that conflicts with the current state of a file or batch.
pub(super) fn conflict(code: &'static str, message: impl Into<Cow<'static, str>>) -> Rejection {
    Rejection::new(StatusCode::CONFLICT, code, message)
}
