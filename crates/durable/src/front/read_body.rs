//! Reads the body of a request that is to be stored.

use std::error::Error;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::EXPECT;
use http::{HeaderMap, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;

use super::shared::Front;
use tower_triage::queue::{BodyMemory, MemoryShare};
use tower_triage::rejection::{BodyFault, Rejection, drain};

/// The largest number of bytes beyond the limit that are read and dropped before a body is refused.
const EXCESS_LIMIT: usize = 64 << 20;

/// Reads the body of a request with these headers, which counts in the memory of the front until the share is dropped.
///
/// A larger body than the front allows is read on and discarded, up to [`EXCESS_LIMIT`]. Otherwise a client that is
/// still sending over HTTP/1 would see a connection reset instead of the rejection. A body for which the memory has no room
/// is discarded behind the rejection.
///
/// # Errors
///
/// Returns a rejection if the body is larger, breaks off, or does not fit into the memory.
pub(super) async fn read_body<B>(
    body: B,
    headers: &HeaderMap,
    front: &Front,
) -> Result<(Bytes, Option<MemoryShare>), Rejection>
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let mut body = Box::pin(body);
    let limit = front.body_limit;
    let mut share = front.body_memory.as_ref().map(BodyMemory::share);
    let mut whole = BytesMut::new();
    let mut length = 0_usize;
    loop {
        // At least the announced bytes are still to come, so a body may be known to be too large before it is read.
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let at_least = length.saturating_add(announced);
        if at_least > limit {
            (whole, share) = (BytesMut::new(), None);
        }
        if at_least.saturating_sub(limit) > EXCESS_LIMIT {
            return Err(too_large(limit));
        }
        if let Some(share) = &share
            && !share.memory().has_room_for(announced)
        {
            return Err(refuse(body, headers, share.memory()));
        }
        let Some(frame) = body.frame().await else {
            break;
        };
        let frame = frame.map_err(|error| malformed(error.into()))?;
        let Ok(data) = frame.into_data() else {
            continue; // skips trailers
        };
        length = length.saturating_add(data.remaining());
        if length > limit {
            continue;
        }
        if let Some(share) = &mut share
            && !share.grow(data.remaining())
        {
            return Err(refuse(body, headers, share.memory()));
        }
        whole.reserve(announced);
        whole.put(data);
    }
    match length <= limit {
        true => Ok((whole.freeze(), share)),
        false => Err(too_large(limit)),
    }
}

fn malformed(error: Box<dyn Error + Send + Sync>) -> Rejection {
    if let Some(fault) = BodyFault::of(&*error) {
        return fault.to_rejection();
    }
    let message = format!("the body can't be read: {error}");
    Rejection::new(StatusCode::BAD_REQUEST, "malformed_body", message)
}

fn too_large(limit: usize) -> Rejection {
    let message = format!("the body of a stored request may have {limit} bytes");
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

/// Refuses a body for which `memory` has no room, and lets the rest of it be drained behind the rejection. A client that
/// waits for an answer before it sends the body has nothing to drain.
fn refuse<B>(body: Pin<Box<B>>, headers: &HeaderMap, memory: &BodyMemory) -> Rejection
where
    B: Body + Send + 'static,
{
    if !headers.contains_key(EXPECT) {
        drain(body);
    }
    let limit = memory.limit();
    let message =
        format!("the request bodies being read need all of the {limit} bytes allowed for them");
    let rejection = Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "body_memory_full", message);
    rejection.with_retry_after(Duration::from_secs(1))
}
