//! Reads the body of a request that is to be stored.

use std::error::Error;
use std::pin::pin;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt;

use crate::rejection::Rejection;

/// Reads a body of at most `limit` bytes.
///
/// A larger body is read on and discarded, up to [`LARGEST_EXCESS`]. Otherwise a client that is still sending over
/// HTTP/1 would see a connection reset instead of the rejection.
///
/// # Errors
///
/// Returns a rejection if the body is larger or breaks off.
pub(super) async fn read_body<B>(body: B, limit: usize) -> Result<Bytes, Rejection>
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let mut body = pin!(body);
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced.saturating_sub(limit) > LARGEST_EXCESS {
        return Err(too_large(limit));
    }
    let mut whole = BytesMut::with_capacity(announced.min(limit));
    let mut length = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error: Box<dyn Error + Send + Sync> = error.into();
            let message = format!("the body can't be read: {error}");
            Rejection::new(StatusCode::BAD_REQUEST, "malformed_body", message)
        })?;
        let Ok(mut data) = frame.into_data() else {
            continue; // skips trailers
        };
        length = length.saturating_add(data.remaining());
        if length <= limit {
            whole.put(&mut data);
        } else if length - limit > LARGEST_EXCESS {
            break;
        }
    }
    match length <= limit {
        true => Ok(whole.freeze()),
        false => Err(too_large(limit)),
    }
}

/// The largest number of bytes beyond the limit that are read and discarded.
const LARGEST_EXCESS: usize = 64 << 20;

fn too_large(limit: usize) -> Rejection {
    let message = format!("the body of a stored request may have {limit} bytes");
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}
