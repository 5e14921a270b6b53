//! The statuses by which a service reports that it has too much to do.

use http::StatusCode;

/// Returns `true` if a service reports with this status that it has too much to do.
pub(crate) fn is_overload(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}
