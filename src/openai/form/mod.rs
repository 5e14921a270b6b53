//! The beginning of a multipart form, which is read up to the part that names the model.
//!
//! Audio and images come as `multipart/form-data`. Their files may be large, so a form is not kept as a whole: only its
//! beginning is read, and the rest is streamed behind it.

mod boundary;
mod scan;

use std::error::Error;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use super::body_memory::MemoryShare;
use super::{BodyMemory, ReadBody};
use crate::endpoints::RouteError;
pub(crate) use boundary::form_boundary;
use scan::{FormScan, Found};

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
                drain: |body| Box::pin(ReadBody::new(body, 0)).drain(),
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
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
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
                Some(Found::Model(model_at)) => return Poll::Ready(Ok(self.start(Some(model_at)))),
                Some(Found::End) => return Poll::Ready(Ok(self.start(None))),
                None if self.read.len() >= self.limit => {
                    return Poll::Ready(Err(name_too_late(self.limit)));
                }
                None => {}
            }
            match ready!(Pin::new(&mut self.rest).poll_frame(cx)) {
                Some(Ok(frame)) => self.keep(frame)?,
                Some(Err(error)) => return Poll::Ready(Err(RouteError::malformed(error.into()))),
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
        self.read.extend_from_slice(&data);
        Ok(())
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
}

impl<B> RestOfForm<B> {
    /// Takes the body, so that nothing is left to drain here.
    fn take(&mut self) -> Self {
        Self {
            body: self.body.take(),
            drain: self.drain,
        }
    }
}

impl<B: Body<Data = Bytes>> Body for RestOfForm<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(body.as_mut().poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
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
