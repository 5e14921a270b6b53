//! The reasons for which a call of the files' and batches' API fails.

use std::borrow::Cow;

use http::StatusCode;

use super::super::StoreError;
use crate::rejection::{Rejection, ToRejection};

/// A call that failed: for the client's mistake, or for the store.
#[derive(Debug)]
pub(super) enum Failure {
    Rejected(Rejection),
    Store(StoreError),
}

impl Failure {
    /// Returns the failure of the system to give random bytes.
    pub(super) fn no_random(error: std::io::Error) -> Self {
        Self::Store(StoreError::Unavailable(format!(
            "the system has no random bytes: {error}"
        )))
    }

    /// Returns the answer to the client.
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

/// Returns the answer to a request that can't be served as it is.
pub(super) fn bad_request(code: &'static str, message: impl Into<Cow<'static, str>>) -> Rejection {
    Rejection::new(StatusCode::BAD_REQUEST, code, message)
}

/// Returns the answer to a request for what its tenant doesn't have. `thing`: `file` or `batch`.
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

/// Returns the answer to a request that can't be served in the present state of a file or batch.
pub(super) fn conflict(code: &'static str, message: impl Into<Cow<'static, str>>) -> Rejection {
    Rejection::new(StatusCode::CONFLICT, code, message)
}
