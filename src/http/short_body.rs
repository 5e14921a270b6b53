//! A reader for the body of a failed response, if that body is short.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body;

/// The longest body in bytes that is kept. Error messages are short, so longer bodies are given up.
const LENGTH_LIMIT: usize = 64 << 10;

/// Reads the rest of a body into `read`, without the trailers. Resolves to `true` if the whole body was read, and to
/// `false` if it is too long or breaks off.
pub(crate) fn read_short<R>(
    mut body: Pin<&mut R>,
    read: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<bool>
where
    R: Body<Data = Bytes>,
{
    loop {
        // At least the announced bytes are still to come, so a body may be known to be too long before it is read.
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
                    read.extend_from_slice(&data); // trailers are dropped
                }
            }
            Some(Err(_)) => return Poll::Ready(false),
            None => return Poll::Ready(true),
        }
    }
}
