//! A future that reads a whole body, up to a limit.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use pin_project_lite::pin_project;

use crate::endpoints::RouteError;

pin_project! {
    /// A future that reads a whole body, up to a limit, for
    /// [`Requirements::from_json`](crate::endpoints::Requirements::from_json).
    ///
    /// A body that arrives in a single piece is not copied, and trailers are dropped. A body that is too large is not
    /// kept, but up to 64 MiB beyond the limit are read. The reason is HTTP/1, where a client that is still sending
    /// when it is refused gets a connection reset instead of the response.
    ///
    /// # Errors
    ///
    /// Resolves to [`RouteError::BodyTooLarge`] if the body exceeds the limit, and to [`RouteError::MalformedBody`] if
    /// it breaks off.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ReadBody<B> {
        #[pin]
        body: B,
        limit: usize,
        excess_limit: usize,
        // The number of bytes that were read.
        length: usize,
        // The bytes that were read. `None` once they exceed the limit.
        kept: Option<Kept>,
    }
}

/// The number of bytes beyond the limit that are read of a body that is too large. After them, the connection is cut.
const EXCESS_LIMIT: usize = 64 << 20;

#[derive(Debug)]
enum Kept {
    One(Bytes),
    Many(BytesMut),
}

impl<B> ReadBody<B> {
    /// Creates a future that reads `body`, which may have at most `limit` bytes.
    pub fn new(body: B, limit: usize) -> Self {
        Self {
            body,
            limit,
            excess_limit: EXCESS_LIMIT,
            length: 0,
            kept: Some(Kept::One(Bytes::new())),
        }
    }

    /// Refuses a body at once if its announced length is too large. This is for a client that asks before it sends the
    /// body.
    pub(crate) fn announced(mut self) -> Self {
        self.excess_limit = 0;
        self
    }
}

impl<B> Future for ReadBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Output = Result<Bytes, RouteError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let too_large = RouteError::BodyTooLarge { limit: *this.limit };
        loop {
            // At least the announced bytes are still to come, so a body may be known to be too large before it is read.
            let announced = usize::try_from(this.body.size_hint().lower()).unwrap_or(usize::MAX);
            let at_least = this.length.saturating_add(announced);
            if at_least > *this.limit {
                *this.kept = None;
            }
            if at_least.saturating_sub(*this.limit) > *this.excess_limit {
                return Poll::Ready(Err(too_large));
            }
            match ready!(this.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue; // trailers are dropped
                    };
                    *this.length = this.length.saturating_add(data.len());
                    match this.kept {
                        Some(kept) if *this.length <= *this.limit => kept.push(data),
                        _ => *this.kept = None,
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(RouteError::malformed(error.into()))),
                None => {
                    return Poll::Ready(match this.kept.take() {
                        Some(Kept::One(bytes)) => Ok(bytes),
                        Some(Kept::Many(bytes)) => Ok(bytes.freeze()),
                        None => Err(too_large),
                    });
                }
            }
        }
    }
}

impl Kept {
    fn push(&mut self, data: Bytes) {
        match self {
            Self::One(first) if first.is_empty() => *first = data,
            Self::One(first) => {
                // More pieces will follow, so room for twice as much saves the next copies.
                let mut many = BytesMut::with_capacity(2 * (first.len() + data.len()));
                many.extend_from_slice(first);
                many.extend_from_slice(&data);
                *self = Self::Many(many);
            }
            Self::Many(many) => many.extend_from_slice(&data),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt, stream};
    use http_body::Frame;
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    fn pieces(
        pieces: &[&'static str],
    ) -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin + use<> {
        let frames: Vec<_> = pieces
            .iter()
            .map(|&piece| Ok(Frame::data(Bytes::from(piece))))
            .collect();
        StreamBody::new(stream::iter(frames))
    }

    fn read<B>(body: B, limit: usize) -> Result<Bytes, RouteError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        ReadBody::new(body, limit)
            .now_or_never()
            .expect("these bodies never wait")
    }

    #[test]
    fn a_body_up_to_the_limit_is_read_whole() {
        assert_eq!(read(pieces(&["ab", "cd", "e"]), 5).unwrap(), "abcde");
        assert_eq!(read(pieces(&[]), 0).unwrap(), "");
        let whole = Bytes::from_static(b"abc");
        assert_eq!(
            read(Full::new(whole.clone()), 3).unwrap().as_ptr(),
            whole.as_ptr()
        );
    }

    #[test]
    fn a_body_up_to_the_limit_is_no_excess() {
        for body in [&["abc"][..], &["a", "b", "c"]] {
            let read = ReadBody::new(pieces(body), 3).announced();
            assert_eq!(read.now_or_never().unwrap().unwrap(), "abc");
        }
        let read = ReadBody::new(Full::from("abc"), 3).announced();
        assert_eq!(read.now_or_never().unwrap().unwrap(), "abc");
    }

    #[test]
    fn one_byte_more_is_too_large() {
        let too_large = |limit| Err(RouteError::BodyTooLarge { limit });
        assert_eq!(read(pieces(&["ab", "cd", "e"]), 4), too_large(4));
        assert_eq!(read(Full::from("abc"), 2), too_large(2));
    }

    #[test]
    fn a_body_slightly_too_large_is_read_to_its_end() {
        let mut body = pieces(&["abc", "d", "ef"]);
        assert!(read(&mut body, 2).is_err());
        assert!(body.frame().now_or_never().unwrap().is_none());
        let mut body = pieces(&["abc", "d", "ef"]);
        let refused = ReadBody::new(&mut body, 2).announced();
        assert!(refused.now_or_never().unwrap().is_err());
        assert!(body.frame().now_or_never().unwrap().is_some());
    }

    #[test]
    fn a_large_announced_excess_is_refused_unread() {
        struct Announced;
        impl Body for Announced {
            type Data = Bytes;
            type Error = Infallible;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                panic!("this must not be read");
            }
            fn size_hint(&self) -> http_body::SizeHint {
                http_body::SizeHint::with_exact(u64::MAX)
            }
        }
        assert_eq!(
            read(Announced, 9),
            Err(RouteError::BodyTooLarge { limit: 9 })
        );
    }

    #[test]
    fn the_excess_counts_from_the_limit() {
        struct Unsent(u64); // the length of the body is announced
        impl Body for Unsent {
            type Data = Bytes;
            type Error = Infallible;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                Poll::Pending
            }
            fn size_hint(&self) -> http_body::SizeHint {
                http_body::SizeHint::with_exact(self.0)
            }
        }
        let limit = 2 * EXCESS_LIMIT;
        for (excess, is_read) in [(1, true), (EXCESS_LIMIT, true), (EXCESS_LIMIT + 1, false)] {
            let read = ReadBody::new(Unsent((limit + excess) as u64), limit);
            assert_eq!(read.now_or_never().is_none(), is_read, "{excess}");
        }
    }

    #[test]
    fn a_body_that_breaks_off_is_malformed() {
        let broken = StreamBody::new(stream::iter([
            Ok(Frame::data(Bytes::from("{"))),
            Err(std::io::Error::other("the line is dead")),
        ]));
        let error = read(broken, 9).unwrap_err();
        assert!(error.to_string().contains("the line is dead"), "{error}");
    }
}
