//! The HTTP responses to requests that were rejected without a lock. Only the status and the seconds differ, so each
//! response is built once and then cloned, because cloning headers hashes no names.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::{rejection, render};
use crate::admit::RejectReason;

/// The number of cached responses, for 0 s up to the default maximum of 60 s.
const MAX_CACHED: usize = 61;

/// One response for each number of seconds.
type BySeconds = [OnceLock<Response<Bytes>>; MAX_CACHED];

/// Returns the HTTP response to a request that has not waited, because the waiting room is full
/// ([`Full`](RejectReason::Full)) or because requests are [`Shed`](RejectReason::Shed).
pub(crate) fn at_once(
    reason: &RejectReason,
    status: StatusCode,
    retry_after: u64,
) -> Response<Bytes> {
    // By reason, and then by status.
    static CACHED: [[BySeconds; 2]; 2] =
        [const { [const { [const { OnceLock::new() }; MAX_CACHED] }; 2] }; 2];
    let write = || {
        let wait = Duration::from_secs(retry_after);
        render::http(&rejection(reason, status).with_retry_after(wait))
    };
    let by_status = match reason {
        RejectReason::Full => &CACHED[0],
        RejectReason::Shed => &CACHED[1],
        _ => return write(),
    };
    let by_seconds = match status {
        StatusCode::SERVICE_UNAVAILABLE => &by_status[0],
        StatusCode::TOO_MANY_REQUESTS => &by_status[1],
        _ => return write(),
    };
    let seconds = usize::try_from(retry_after).unwrap_or(usize::MAX);
    match by_seconds.get(seconds) {
        Some(kept) => kept.get_or_init(write).clone(),
        None => write(), // the configured maximum is longer than the cache
    }
}
