//! Which statuses say that a service has too much to do.

use http::StatusCode;

/// Whether a service that answers so has too much to do.
pub(crate) fn is_overload(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}
