//! Reads the body of a failed response, as long as it is short.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body;

/// Longer bodies are not kept: error messages are short.
const LENGTH_LIMIT: usize = 64 << 10;

/// Reads on, without the trailers. Resolves to whether the whole body was read: it may be too long, or break off.
pub(crate) fn read_short<R>(
    mut body: Pin<&mut R>,
    read: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<bool>
where
    R: Body<Data = Bytes>,
{
    loop {
        // At least this much is still to come: a body that is too long may be known before it is read.
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if read.len().saturating_add(announced) > LENGTH_LIMIT {
            return Poll::Ready(false);
        }
        if body.is_end_stream() {
            return Poll::Ready(true);
        }
        match ready!(body.as_mut().poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    read.extend_from_slice(&data); // not the trailers
                }
            }
            Some(Err(_)) => return Poll::Ready(false),
            None => return Poll::Ready(true),
        }
    }
}
