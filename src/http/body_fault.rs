//! The faults of a client for which a layer in front of the router or the queue ends its body.

use std::error::Error;
use std::io;
use std::iter::successors;

use http::StatusCode;

use super::Rejection;

/// A fault of a client that a layer in front tells by the error of the body.
///
/// The limits of axum, `http_body_util` and tower-http end a body with an error when it is too large or too late. A service
/// that reads the body takes that error for a broken connection, unless it looks for the fault:
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::{BodyExt, Full, Limited};
/// use tower_triage::rejection::BodyFault;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let body = Limited::new(Full::<Bytes>::from("four"), 3);
/// let error = body.collect().await.unwrap_err();
/// let fault = BodyFault::of(&*error).unwrap();
/// assert_eq!(fault.to_rejection().status(), 413);
/// # });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyFault {
    /// The body is larger than the layer allows.
    TooLarge,
    /// The body did not arrive in the time that the layer allows.
    TimedOut,
}

/// The text of the error of `http_body_util::Limited`, which tower-http's `RequestBodyLimitLayer` and axum's limits use.
const LENGTH_LIMIT: &str = "length limit exceeded";

/// The text of the error of tower-http's `RequestBodyTimeoutLayer`. This crate does not depend on tower-http.
const TIMEOUT: &str = "data was not received within the designated timeout";

impl BodyFault {
    /// Returns the fault that `error` or one of its causes is about. Returns `None` for any other error, such as that of a
    /// connection that broke.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut causes = successors(Some(error), |&error| error.source());
        causes.find_map(Self::of_one)
    }

    fn of_one(error: &(dyn Error + 'static)) -> Option<Self> {
        let io = error.downcast_ref::<io::Error>();
        let is_late = error.is::<tokio::time::error::Elapsed>()
            || io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
        if is_late {
            return Some(Self::TimedOut);
        }
        match error.to_string().as_str() {
            LENGTH_LIMIT => Some(Self::TooLarge),
            TIMEOUT => Some(Self::TimedOut),
            _ => None,
        }
    }

    /// Returns the rejection of the body.
    #[must_use]
    pub fn to_rejection(self) -> Rejection {
        let (status, code) = self.status_and_code();
        Rejection::new(status, code, self.message())
    }

    /// Returns the status and the code of the rejection, which are those of the limits of this crate.
    pub(crate) fn status_and_code(self) -> (StatusCode, &'static str) {
        match self {
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::TimedOut => (StatusCode::REQUEST_TIMEOUT, "request_body_timeout"),
        }
    }

    /// Returns the cause for people.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::TooLarge => "The request body is larger than the service allows",
            Self::TimedOut => "The request body did not arrive in time",
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the body failed")]
    struct Wrapped(#[source] Box<dyn Error + Send + Sync>);

    #[test]
    fn a_fault_is_found_among_the_causes() {
        let limit = || Box::<dyn Error + Send + Sync>::from(LENGTH_LIMIT);
        let late = io::Error::from(io::ErrorKind::TimedOut);
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        for (error, expected) in [
            (limit(), Some(BodyFault::TooLarge)),
            (Box::new(Wrapped(limit())).into(), Some(BodyFault::TooLarge)),
            (
                Box::new(Wrapped(TIMEOUT.into())).into(),
                Some(BodyFault::TimedOut),
            ),
            (
                Box::new(Wrapped(late.into())).into(),
                Some(BodyFault::TimedOut),
            ),
            (broken.into(), None),
        ] {
            let error: Box<dyn Error + Send + Sync> = error;
            assert_eq!(BodyFault::of(&*error), expected, "{error}");
        }
    }
}
