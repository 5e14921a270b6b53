//! The beginning of a multipart form, which is read up to the part that names the model.
//!
//! Audio and images come as `multipart/form-data`. Their files may be large, so a form is not kept as a whole: only its
//! beginning is read, and the rest is streamed behind it.

mod disposition;
mod scan;

use std::error::Error;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use crate::endpoints::RouteError;
use crate::http::{BodyMemory, MemoryShare, drain};
use scan::{FormScan, Found};

type BoxError = Box<dyn Error + Send + Sync>;

/// A form whose beginning is being read.
pub(crate) struct ReadForm<B> {
    rest: RestOfForm<B>,
    scan: FormScan,
    read: BytesMut,
    limit: usize,
    /// The part of the memory for all bodies that the beginning uses. `None` if memory is unlimited.
    share: Option<MemoryShare>,
}

/// The beginning of a form, and the rest that is still to come.
pub(crate) struct FormStart<B> {
    pub(crate) bytes: Bytes,
    /// The range of the model's name in `bytes`. `None` if no part of the form names a model.
    pub(crate) model_at: Option<Range<usize>>,
    /// The rest of the form. `None` if `bytes` are all of it.
    pub(crate) rest: Option<RestOfForm<B>>,
}

impl<B> ReadForm<B>
where
    B: Body<Data = Bytes> + Send + 'static,
{
    /// Creates a reader of the form in `body`, whose parts the `boundary` separates. It reads at most `limit` bytes, and
    /// counts them in `memory`.
    pub(crate) fn new(body: B, boundary: &[u8], limit: usize, memory: Option<&BodyMemory>) -> Self {
        Self {
            rest: RestOfForm {
                body: Some(Box::pin(body)),
                drain,
                later: None,
            },
            scan: FormScan::new(boundary),
            read: BytesMut::new(),
            limit,
            share: memory.map(BodyMemory::share),
        }
    }
}

impl<B> ReadForm<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    /// Reads the form up to the name of the model. Resolves to an error if the form cannot be read, or if the name is not
    /// among its first bytes. The rest is drained then, so that the client can read the answer.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<FormStart<B>, RouteError>> {
        loop {
            let found = self
                .scan
                .advance(&self.read)
                .map_err(RouteError::malformed)?;
            match found {
                Some(Found::Model(model_at)) => {
                    return Poll::Ready(self.start_watched(Some(model_at)));
                }
                Some(Found::End) => return Poll::Ready(self.start_watched(None)),
                Some(Found::SecondModel) => {
                    return Poll::Ready(Err(RouteError::malformed(TWO_MODELS)));
                }
                None if self.read.len() >= self.limit => {
                    return Poll::Ready(Err(name_too_late(self.limit)));
                }
                None => {}
            }
            match ready!(Pin::new(&mut self.rest).poll_frame(cx)) {
                Some(Ok(frame)) => self.keep(frame)?,
                Some(Err(error)) => return Poll::Ready(Err(RouteError::broken_off(&*error))),
                None => return Poll::Ready(Ok(self.start(None))),
            }
        }
    }

    /// Keeps a piece of the form. Trailers are dropped.
    fn keep(&mut self, frame: Frame<Bytes>) -> Result<(), RouteError> {
        let Ok(data) = frame.into_data() else {
            return Ok(());
        };
        if let Some(share) = &mut self.share
            && !share.grow(data.len())
        {
            let limit = share.memory().limit();
            return Err(RouteError::BodyMemoryFull { limit });
        }
        if !self.read.is_empty() && self.read.capacity() - self.read.len() < data.len() {
            self.read.reserve(data.len() + self.announced());
        }
        self.read.extend_from_slice(&data);
        Ok(())
    }

    /// Returns the number of bytes that may still be kept, if the length of the form was announced. Room for all of them saves
    /// the copies, and the doubled buffer, of a large file before the model.
    fn announced(&self) -> usize {
        let rest = self.rest.size_hint().exact().unwrap_or(0);
        let room = self.limit.saturating_sub(self.read.len());
        usize::try_from(rest).map_or(room, |rest| rest.min(room))
    }

    /// Starts a form whose rest must name no other model, because servers differ in the one that counts.
    fn start_watched(
        &mut self,
        model_at: Option<Range<usize>>,
    ) -> Result<FormStart<B>, RouteError> {
        let scan = std::mem::replace(&mut self.scan, FormScan::new(b""));
        let later = LaterParts::new(scan, &self.read).map_err(RouteError::malformed)?;
        self.rest.later = Some(Box::new(later));
        Ok(self.start(model_at))
    }

    fn start(&mut self, model_at: Option<Range<usize>>) -> FormStart<B> {
        let bytes = std::mem::take(&mut self.read).freeze();
        FormStart {
            bytes: match self.share.take() {
                Some(share) => share.tie_to(bytes),
                None => bytes,
            },
            model_at,
            rest: (!self.rest.is_end_stream()).then(|| self.rest.take()),
        }
    }
}

const TWO_MODELS: &str = "two parts of the form name a model";

/// Returns the error of a form that has other parts, such as a large file, before that of the model.
fn name_too_late(limit: usize) -> RouteError {
    RouteError::ModelMissing {
        place: format!(
            "part `model` of its form, which must come before the file, within the first {limit} bytes"
        ),
    }
}

/// The rest of a form whose beginning was read. A rest that is dropped is drained, because a client that is still sending
/// when its connection is closed gets a reset in place of the answer.
pub(crate) struct RestOfForm<B> {
    /// The body, in a box that outlives the request if it is drained. `None` after its end.
    body: Option<Pin<Box<B>>>,
    /// The way to drain the body, which is a pointer because a destructor knows nothing of the body's type.
    drain: fn(Pin<Box<B>>),
    /// The watch on the parts behind the model. `None` if the form was read to the end of its body.
    later: Option<Box<LaterParts>>,
}

/// The parts of a form behind the one that names the model.
struct LaterParts {
    scan: FormScan,
    /// The bytes that the scan still needs.
    unread: Vec<u8>,
}

/// The memory that is kept between two pieces of a form, in bytes. It spares an allocation for each piece of a usual size.
const KEPT_MEMORY: usize = 64 << 10;

impl LaterParts {
    /// Looks at the `form` behind its model, as far as it was read. Returns an error if it names a second model, or if it is
    /// malformed.
    fn new(scan: FormScan, form: &[u8]) -> Result<Self, &'static str> {
        let mut later = Self {
            scan,
            unread: Vec::new(),
        };
        let read = later.look(form)?;
        later.unread = form[read..].to_vec();
        Ok(later)
    }

    /// Looks at the next bytes. Returns an error if the form names a second model, or if it is malformed.
    fn admit(&mut self, data: &[u8]) -> Result<(), &'static str> {
        let mut unread = std::mem::take(&mut self.unread);
        unread.extend_from_slice(data);
        let read = self.look(&unread)?;
        unread.drain(..read);
        unread.shrink_to(KEPT_MEMORY);
        self.unread = unread;
        Ok(())
    }

    /// Looks at the bytes of the form that have come, and returns the number of those that are not needed any more.
    fn look(&mut self, form: &[u8]) -> Result<usize, &'static str> {
        loop {
            match self.scan.advance(form)? {
                None => return Ok(self.scan.forget()),
                Some(Found::End) => {}
                Some(Found::Model(_) | Found::SecondModel) => return Err(TWO_MODELS),
            }
        }
    }
}

impl<B> RestOfForm<B> {
    /// Takes the body, so that nothing is left to drain here.
    fn take(&mut self) -> Self {
        Self {
            body: self.body.take(),
            drain: self.drain,
            later: self.later.take(),
        }
    }
}

impl<B> Body for RestOfForm<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(body.as_mut().poll_frame(cx));
        if let (Some(Ok(frame)), Some(later)) = (&frame, &mut self.later)
            && let Some(data) = frame.data_ref()
            && let Err(error) = later.admit(data)
        {
            // An error, because a server may take a form that just ends for a whole one.
            tracing::warn!(error, "a form was cut off");
            if let Some(body) = self.body.take() {
                (self.drain)(body);
            }
            return Poll::Ready(Some(Err(error.into())));
        }
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl<B> Drop for RestOfForm<B> {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            (self.drain)(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--b\r\n\
                        Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--b--\r\n";

    fn pieces(
        text: &'static str,
        length: usize,
    ) -> impl Body<Data = Bytes, Error = std::io::Error> + Send {
        let pieces = text.as_bytes().chunks(length);
        let frames: Vec<_> = pieces
            .map(|piece| Ok(Frame::data(Bytes::from(piece))))
            .collect();
        StreamBody::new(stream::iter(frames))
    }

    fn read<B>(form: &mut ReadForm<B>) -> Result<FormStart<B>, RouteError>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let read = std::future::poll_fn(|cx| form.poll_read(cx));
        read.now_or_never().expect("these bodies never wait")
    }

    #[test]
    fn a_form_is_replayed_whole_behind_its_model() {
        for length in [1, 7, 60, 1_000] {
            let start = read(&mut ReadForm::new(pieces(FORM, length), b"b", 1_000, None)).unwrap();
            assert_eq!(&start.bytes[start.model_at.unwrap()], b"whisper");
            let rest = start.rest.unwrap().collect().now_or_never().unwrap();
            let all = [&start.bytes[..], &rest.unwrap().to_bytes()].concat();
            assert_eq!(all, FORM.as_bytes());
        }
    }

    #[test]
    fn a_name_beyond_the_limit_is_missing() {
        for (limit, is_found) in [(60, false), (70, true)] {
            let read = read(&mut ReadForm::new(pieces(FORM, 10), b"b", limit, None));
            match read.map(|start| start.model_at.is_some()) {
                Ok(found) => assert!(found && is_found, "{limit}"),
                Err(error) => {
                    assert!(!is_found, "{limit}");
                    assert_eq!(error.code(), "model_missing");
                    assert!(error.to_string().contains("before the file"), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_second_model_is_refused_or_cut_off() {
        const TWO: &str = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--b\r\n\
                           Content-Disposition: form-data; name=\"model\"\r\n\r\nb\r\n--b--\r\n";
        let whole = read(&mut ReadForm::new(pieces(TWO, 1_000), b"b", 1_000, None));
        assert_eq!(
            whole.err().map(|error| error.code()),
            Some("malformed_body")
        );
        for length in [1, 7, 20] {
            let start = read(&mut ReadForm::new(pieces(TWO, length), b"b", 1_000, None)).unwrap();
            let mut rest = start.rest.unwrap();
            let mut all = start.bytes.to_vec();
            let error = loop {
                match rest.frame().now_or_never().unwrap() {
                    Some(Ok(frame)) => all.extend_from_slice(frame.data_ref().unwrap()),
                    Some(Err(error)) => break error,
                    None => panic!("the form ends like a whole one"),
                }
            };
            assert!(error.to_string().contains("two parts"), "{error}");
            assert!(TWO.as_bytes().starts_with(&all), "{length}");
            let content = TWO.len() - "b\r\n--b--\r\n".len();
            assert!(all.len() < content, "{length}"); // its headers are unfinished
        }
    }

    #[test]
    fn the_watch_on_later_parts_needs_little_memory() {
        let file = "x".repeat(1 << 20);
        let part = "--b\r\nContent-Disposition: form-data; name=";
        let form = format!(
            "{part}\"file\"\r\n\r\n{file}\r\n{part}\"model\"\r\n\r\na\r\n{part}\"file\"\r\n\r\n{file}"
        );
        let form: &'static str = form.leak();
        for length in [9_000, 1_600_000] {
            let mut form = ReadForm::new(pieces(form, length), b"b", 2 << 20, None);
            let mut rest = read(&mut form).unwrap().rest.unwrap();
            loop {
                let memory = rest.later.as_ref().unwrap().unread.capacity();
                assert!(memory <= KEPT_MEMORY, "{memory}");
                if rest.frame().now_or_never().unwrap().is_none() {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_form_counts_in_the_memory_while_it_is_kept() {
        let memory = BodyMemory::new(80);
        let start = read(&mut ReadForm::new(
            pieces(FORM, 1),
            b"b",
            1_000,
            Some(&memory),
        ))
        .unwrap();
        assert_eq!(memory.used(), start.bytes.len());
        let full = read(&mut ReadForm::new(
            pieces(FORM, 1),
            b"b",
            1_000,
            Some(&memory),
        ));
        assert_eq!(full.err(), Some(RouteError::BodyMemoryFull { limit: 80 }));
        drop(start);
        assert_eq!(memory.used(), 0);
    }
}
