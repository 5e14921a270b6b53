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
/// A body that is too large is read on without being kept, up to a limit: over HTTP/1, a client that is still sending when it
/// is refused gets a reset instead of the answer.
///
/// # Errors
///
/// The rejection of a body that is larger or breaks off.
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
            continue; // trailers
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

/// The largest excess that is read, in bytes.
const LARGEST_EXCESS: usize = 64 << 20;

fn too_large(limit: usize) -> Rejection {
    let message = format!("the body of a stored request may have {limit} bytes");
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}
