//! A body that is read without a limit lets one client take all the memory there is.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use pin_project_lite::pin_project;

use super::RouteError;

pin_project! {
    /// Reads a body whole, up to a limit, for [`Requirements::from_json`](super::Requirements::from_json).
    ///
    /// A body that announces more than the limit is refused before any of it is read. One that arrives in
    /// a single piece is not copied. Trailers are dropped.
    ///
    /// # Errors
    ///
    /// [`RouteError::BodyTooLarge`], and [`RouteError::MalformedBody`] if the body breaks off.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ReadBody<B> {
        #[pin]
        body: B,
        limit: usize,
        read: Read,
    }
}

#[derive(Debug)]
enum Read {
    Nothing,
    One(Bytes),
    Many(BytesMut),
}

impl<B> ReadBody<B> {
    /// Reads `body`, of at most `limit` bytes.
    pub fn new(body: B, limit: usize) -> Self {
        let read = Read::Nothing;
        Self { body, limit, read }
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
        let limit = *this.limit;
        loop {
            let announced = usize::try_from(this.body.size_hint().lower()).unwrap_or(usize::MAX);
            if this.read.len().saturating_add(announced) > limit {
                return Poll::Ready(Err(RouteError::BodyTooLarge { limit }));
            }
            match ready!(this.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        if this.read.len().saturating_add(data.len()) > limit {
                            return Poll::Ready(Err(RouteError::BodyTooLarge { limit }));
                        }
                        this.read.push(data);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(RouteError::malformed(error.into()))),
                None => return Poll::Ready(Ok(this.read.take())),
            }
        }
    }
}

impl Read {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn push(&mut self, data: Bytes) {
        *self = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => Self::One(data),
            Self::One(first) => {
                let mut many = BytesMut::with_capacity(2 * (first.len() + data.len()));
                many.extend_from_slice(&first);
                many.extend_from_slice(&data);
                Self::Many(many)
            }
            Self::Many(mut many) => {
                many.extend_from_slice(&data);
                Self::Many(many)
            }
        }
    }

    fn take(&mut self) -> Bytes {
        match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes.freeze(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt, stream};
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;

    fn pieces(pieces: &[&'static str]) -> impl Body<Data = Bytes, Error = std::io::Error> + use<> {
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
    fn one_byte_more_is_too_large() {
        let too_large = |limit| Err(RouteError::BodyTooLarge { limit });
        assert_eq!(read(pieces(&["ab", "cd", "e"]), 4), too_large(4));
        assert_eq!(read(Full::from("abc"), 2), too_large(2));
    }

    #[test]
    fn an_announced_excess_is_refused_unread() {
        struct Announced;
        impl Body for Announced {
            type Data = Bytes;
            type Error = Infallible;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                panic!("nobody needs to read this");
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
    fn a_body_that_breaks_off_is_malformed() {
        let broken = StreamBody::new(stream::iter([
            Ok(Frame::data(Bytes::from("{"))),
            Err(std::io::Error::other("the line is dead")),
        ]));
        let error = read(broken, 9).unwrap_err();
        assert!(error.to_string().contains("the line is dead"), "{error}");
    }
}
