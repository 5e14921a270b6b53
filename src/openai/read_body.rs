//! A future that reads a whole body, up to a limit.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use pin_project_lite::pin_project;

use crate::endpoints::RouteError;
use crate::http::{BodyMemory, EXCESS_LIMIT, MemoryShare, drain_frames};

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
    /// Resolves to [`RouteError::BodyTooLarge`] if the body exceeds the limit, to [`RouteError::MalformedBody`] if it breaks
    /// off, and to [`RouteError::BodyMemoryFull`] if all bodies together would exceed their
    /// [`BodyMemory`](super::BodyMemory).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops what was read, and gives its memory back.
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
        // The part of the memory that the kept bytes use. `None` if memory is unlimited, or if none are kept.
        share: Option<MemoryShare>,
        // `true` if the share goes with the bytes. `false` if it ends with this future.
        is_tied: bool,
        // `true` if a body that does not fit into memory is read to its end before it is refused.
        reads_on: bool,
        // The error of such a body, until its end.
        refused: Option<RouteError>,
    }
}

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
            share: None,
            is_tied: false,
            reads_on: false,
            refused: None,
        }
    }

    /// Counts the body in `memory` while it is read. If it does not fit any more, the future resolves to an error at once,
    /// and the rest stays unread.
    pub fn counted_in(mut self, memory: &BodyMemory) -> Self {
        self.share = Some(memory.share());
        self
    }

    /// Counts the body in `memory` until the last copy of it is dropped.
    pub(crate) fn kept_in(mut self, memory: &BodyMemory) -> Self {
        self.share = Some(memory.share());
        self.is_tied = true;
        self
    }

    /// Reads a body that does not fit into memory to its end before it is refused, and keeps nothing of it. This is for a
    /// body that is about to be there, so that the connection of its client can be used again.
    pub(crate) fn reading_on(mut self) -> Self {
        self.reads_on = true;
        self
    }

    /// Refuses a body at once if its announced length is too large. This is for a client that asks before it sends the
    /// body.
    pub(crate) fn announced(mut self) -> Self {
        self.excess_limit = 0;
        self
    }
}

impl<B: Body<Data = Bytes> + Send + 'static> ReadBody<B> {
    /// Reads and drops the rest of the body in a task of its own. A client that waits for the answer before it sends the
    /// body has nothing to drain.
    pub(crate) fn drain(mut self: Pin<Box<Self>>) {
        if self.excess_limit > 0 {
            drain_frames(move |cx| self.as_mut().project().body.poll_frame(cx));
        }
    }
}

impl<B: Body> ReadBody<B> {
    /// Returns the length that the body has at least, which is what was read and what is announced.
    pub(crate) fn least_length(&self) -> usize {
        self.length.saturating_add(announced(&self.body))
    }

    /// Returns `true` if the body is certainly longer than its limit. Such a body is not kept.
    pub(crate) fn is_too_large(&self) -> bool {
        self.least_length() > self.limit
    }
}

/// Returns the number of bytes that are certainly still to come.
fn announced(body: &impl Body) -> usize {
    usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX)
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
            let announced = announced(&*this.body);
            let at_least = this.length.saturating_add(announced);
            if at_least > *this.limit {
                (*this.kept, *this.share) = (None, None);
            }
            if at_least.saturating_sub(*this.limit) > *this.excess_limit {
                return Poll::Ready(Err(too_large));
            }
            if let Some(share) = this.share
                && !share.memory().has_room_for(announced)
            {
                let full = memory_full(this.kept, this.share);
                if !*this.reads_on || *this.excess_limit == 0 {
                    return Poll::Ready(Err(full));
                }
                *this.refused = Some(full);
            }
            match ready!(this.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue; // trailers are dropped
                    };
                    *this.length = this.length.saturating_add(data.len());
                    let Some(kept) = this.kept.as_mut().filter(|_| *this.length <= *this.limit)
                    else {
                        (*this.kept, *this.share) = (None, None);
                        continue;
                    };
                    if this
                        .share
                        .as_mut()
                        .is_some_and(|share| !share.grow(data.len()))
                    {
                        let full = memory_full(this.kept, this.share);
                        if !*this.reads_on {
                            return Poll::Ready(Err(full));
                        }
                        *this.refused = Some(full);
                        continue;
                    }
                    kept.push(data, this.body.size_hint().exact());
                }
                Some(Err(error)) => {
                    (*this.kept, *this.share) = (None, None);
                    let error: Box<dyn Error + Send + Sync> = error.into();
                    return Poll::Ready(Err(RouteError::broken_off(&*error)));
                }
                None => {
                    let share = this.share.take().filter(|_| *this.is_tied);
                    let bytes = match this.kept.take() {
                        Some(Kept::One(bytes)) => bytes,
                        Some(Kept::Many(bytes)) => bytes.freeze(),
                        None => return Poll::Ready(Err(this.refused.take().unwrap_or(too_large))),
                    };
                    return Poll::Ready(Ok(match share {
                        Some(share) => share.tie_to(bytes),
                        None => bytes,
                    }));
                }
            }
        }
    }
}

/// Drops what was read, and returns the error of a body that exceeds the memory for all bodies.
#[cold]
fn memory_full(kept: &mut Option<Kept>, share: &mut Option<MemoryShare>) -> RouteError {
    *kept = None;
    let limit = share.take().map_or(0, |share| share.memory().limit());
    RouteError::BodyMemoryFull { limit }
}

impl Kept {
    /// Adds a piece. `rest` is the number of bytes that follow, if it is known.
    fn push(&mut self, data: Bytes, rest: Option<u64>) {
        match self {
            Self::One(first) if first.is_empty() => *first = data,
            Self::One(first) => {
                let length = first.len() + data.len();
                // If the rest is unknown, room for twice as much saves the next copies.
                let rest = rest.map_or(Some(length), |rest| usize::try_from(rest).ok());
                let mut many = BytesMut::with_capacity(length + rest.unwrap_or(0));
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
        assert_eq!(
            read(Unread(u64::MAX), 9),
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

    /// A body that announces its length and must not be read.
    struct Unread(u64);

    impl Body for Unread {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            panic!("this must not be read");
        }
        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(self.0)
        }
    }

    #[test]
    fn a_body_that_does_not_fit_into_memory_is_refused_unread() {
        let memory = BodyMemory::new(10);
        let full = Err(RouteError::BodyMemoryFull { limit: 10 });
        let read = ReadBody::new(Unread(11), 100).counted_in(&memory);
        assert_eq!(read.now_or_never(), Some(full.clone()));

        let kept = ReadBody::new(Full::from("123456"), 100).kept_in(&memory);
        let kept = kept.now_or_never().unwrap().unwrap();
        let read = ReadBody::new(Unread(5), 100).counted_in(&memory);
        assert_eq!(read.now_or_never(), Some(full));
        drop(kept);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_body_of_unknown_length_is_refused_with_the_piece_that_does_not_fit() {
        let memory = BodyMemory::new(3);
        let mut body = pieces(&["ab", "cd", "ef"]);
        let read = ReadBody::new(&mut body, 100).counted_in(&memory);
        let full = RouteError::BodyMemoryFull { limit: 3 };
        assert_eq!(read.now_or_never(), Some(Err(full)));
        assert_eq!(memory.used(), 0);
        let rest = body.collect().now_or_never().unwrap().unwrap();
        assert_eq!(rest.to_bytes(), "ef");
    }

    #[test]
    fn a_small_body_is_read_to_its_end_before_it_is_refused() {
        let memory = BodyMemory::new(3);
        let mut body = pieces(&["ab", "cd", "ef"]);
        let read = ReadBody::new(&mut body, 100).kept_in(&memory).reading_on();
        let full = RouteError::BodyMemoryFull { limit: 3 };
        assert_eq!(read.now_or_never(), Some(Err(full)));
        assert_eq!(memory.used(), 0);
        assert!(body.frame().now_or_never().unwrap().is_none());
    }

    #[test]
    fn a_body_over_its_limit_needs_no_memory() {
        let memory = BodyMemory::new(3);
        let read = ReadBody::new(pieces(&["ab", "cd", "ef"]), 2).counted_in(&memory);
        let too_large = RouteError::BodyTooLarge { limit: 2 };
        assert_eq!(read.now_or_never(), Some(Err(too_large)));
        assert_eq!(memory.used(), 0);
    }

    mod memory {
        use futures_util::StreamExt;
        use proptest::prelude::*;

        use super::*;

        #[derive(Debug, Clone)]
        enum End {
            Whole,
            Broken,
            Stalled,
        }

        fn body(
            pieces: &[usize],
            end: &End,
        ) -> impl Body<Data = Bytes, Error = std::io::Error> + use<> {
            let data = |length| Ok(Frame::data(Bytes::from(vec![1; length])));
            let frames: Vec<_> = pieces.iter().copied().map(data).collect();
            let last = match end {
                End::Whole => stream::empty().boxed(),
                End::Broken => stream::once(async { Err(std::io::Error::other("broken")) }).boxed(),
                End::Stalled => stream::pending().boxed(),
            };
            StreamBody::new(stream::iter(frames).chain(last))
        }

        proptest! {
            #[test]
            fn every_way_out_gives_the_memory_back_once(
                pieces in prop::collection::vec(0..40_usize, 0..6),
                end in prop_oneof![Just(End::Whole), Just(End::Broken), Just(End::Stalled)],
                limit in 0..200_usize,
                room in 0..200_usize,
                is_kept: bool,
            ) {
                let memory = BodyMemory::new(room);
                let read = ReadBody::new(body(&pieces, &end), limit);
                let read = match is_kept {
                    true => read.kept_in(&memory),
                    false => read.counted_in(&memory),
                };
                let mut read = Box::pin(read);
                let polled = read.as_mut().now_or_never();
                let length: usize = pieces.iter().sum();
                match &polled {
                    // Cancelled while it is read.
                    None => prop_assert_eq!(memory.used(), if length <= limit { length } else { 0 }),
                    Some(Ok(bytes)) => {
                        prop_assert_eq!(bytes.len(), length);
                        prop_assert_eq!(memory.used(), if is_kept { length } else { 0 });
                    }
                    Some(Err(_)) => prop_assert_eq!(memory.used(), 0),
                }
                drop(read);
                let copy = polled.as_ref().and_then(|it| it.as_ref().ok()).cloned();
                drop(polled);
                let kept = copy.as_ref().map_or(0, |bytes| if is_kept { bytes.len() } else { 0 });
                prop_assert_eq!(memory.used(), kept);
                drop(copy);
                prop_assert_eq!(memory.used(), 0);
            }
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
