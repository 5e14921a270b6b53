//! The body of a request over HTTP/2.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::Reason;
use http_body::{Body, Frame, SizeHint};

use crate::upstream::upload::Upload;

/// The body of a request, as hyper reads it.
///
/// hyper sends it in a task of its own, and resets the stream if the body fails. So the body fails once its stream is over,
/// which ends an upload together with its answer. hyper may keep a request that was given up until the endpoint admits
/// another stream, so the upload itself is held together with the stream.
pub(super) struct RequestBody<B>(Option<Shared<B>>);

/// The largest piece of a body that hyper gets at once, in bytes. hyper queues a whole piece as soon as the endpoint takes its
/// first byte, so smaller pieces show how far the endpoint reads. Few endpoints take larger frames than this.
const LARGEST_PIECE: usize = 16 << 10;

/// The body of a request, which its stream and hyper share.
pub(super) struct Shared<B>(Arc<Mutex<State<B>>>);

struct State<B> {
    /// `None` once the stream is over, or hyper has dropped the body.
    upload: Option<Upload<B>>,
    /// `true` once hyper has begun to read the body.
    is_read: bool,
    /// The task that reads the body.
    reader: Option<Waker>,
}

/// The end of a body together with its stream.
pub(super) struct EndsBody<B>(Shared<B>);

impl<B> RequestBody<B> {
    /// Returns the body of a request, with what its stream shares of it. The latter is `None` if the body is empty.
    pub(super) fn new(upload: Upload<B>) -> (Self, Option<Shared<B>>) {
        if upload.progress().is_none() {
            return (Self(None), None);
        }
        let shared = Shared(Arc::new(Mutex::new(State {
            upload: Some(upload.in_pieces_of(LARGEST_PIECE)),
            is_read: false,
            reader: None,
        })));
        (Self(Some(shared.clone())), Some(shared))
    }
}

impl<B> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a body that hyper has not begun to read.
    pub(super) fn take_unread(&self) -> Option<Upload<B>> {
        let mut state = self.lock();
        match state.is_read {
            true => None,
            false => state.upload.take(),
        }
    }

    /// Returns a guard that ends the body when it is dropped.
    pub(super) fn ends(&self) -> EndsBody<B> {
        EndsBody(self.clone())
    }
}

impl<B> Clone for Shared<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Drop for EndsBody<B> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let (upload, reader) = (state.upload.take(), state.reader.take());
        drop(state); // both may run code of others
        drop(upload);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl<B> Drop for RequestBody<B> {
    fn drop(&mut self) {
        let Some(shared) = &self.0 else { return };
        let mut state = shared.lock();
        let upload = if state.is_read {
            state.upload.take()
        } else {
            None
        };
        drop(state);
        drop(upload);
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(shared) = &self.0 else {
            return Poll::Ready(None);
        };
        let state = &mut *shared.lock();
        state.is_read = true;
        let Some(upload) = &mut state.upload else {
            return Poll::Ready(Some(Err(h2::Error::from(Reason::CANCEL).into())));
        };
        let frame = Pin::new(upload).poll_frame(cx);
        state.reader = frame.is_pending().then(|| cx.waker().clone());
        frame
    }

    fn is_end_stream(&self) -> bool {
        // A body that has ended with its stream has an error to return.
        let has_ended = |shared: &Shared<B>| {
            let state = shared.lock();
            state.upload.as_ref().is_some_and(Body::is_end_stream)
        };
        self.0.as_ref().is_none_or(has_ended)
    }

    fn size_hint(&self) -> SizeHint {
        let Some(shared) = &self.0 else {
            return SizeHint::with_exact(0);
        };
        let state = shared.lock();
        state
            .upload
            .as_ref()
            .map(Body::size_hint)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tokio::time::Instant;

    use super::*;

    fn body() -> (RequestBody<Full<Bytes>>, Shared<Full<Bytes>>) {
        let upload = Upload::new(Full::from("text"), Some(4), Instant::now());
        let (body, shared) = RequestBody::new(upload);
        (body, shared.unwrap())
    }

    fn poll(body: &mut RequestBody<Full<Bytes>>) -> Option<Result<Bytes, String>> {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(body).poll_frame(&mut cx) {
            Poll::Ready(frame) => frame.map(|frame| {
                let frame = frame.map_err(|error| error.to_string())?;
                Ok(frame.into_data().unwrap())
            }),
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn a_body_is_read_to_its_end() {
        let (mut body, shared) = body();
        assert_eq!(poll(&mut body), Some(Ok(Bytes::from("text"))));
        assert!(body.is_end_stream());
        assert!(shared.take_unread().is_none());
        drop(body);
        assert!(shared.lock().upload.is_none());
    }

    #[test]
    fn an_unread_body_comes_back() {
        let (body, shared) = body();
        drop(body);
        assert!(shared.take_unread().is_some());
    }

    #[test]
    fn a_body_that_hyper_keeps_is_dropped_with_its_stream() {
        let (mut body, shared) = body();
        drop(shared.ends());
        assert!(shared.lock().upload.is_none());
        assert!(!body.is_end_stream());
        assert!(matches!(poll(&mut body), Some(Err(_))));
    }
}
