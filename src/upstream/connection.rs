//! A connection to an endpoint that can still be read after a write has failed.
//!
//! An endpoint may answer before it has read the whole request, and then close the connection, which makes the next
//! write fail. At that error hyper gives up and never reads the answer, although it has arrived. A [`Connection`] hides
//! such an error, so that hyper goes on to read. Its [`ConnectionState`] tells, after the connection has ended, if the
//! endpoint had closed it before it saw the request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};

use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::http2::HeadLimit;

/// A connection to an endpoint, as hyper reads and writes it.
pub(super) struct Connection<S> {
    io: TokioIo<S>,
    state: ConnectionState,
    limit: Limit,
    /// Is notified, and then dropped, when something is written after the endpoint's first bytes.
    on_reply: Option<Arc<Notify>>,
}

/// A bound on what comes before an answer, which ends the connection.
enum Limit {
    None,
    /// No more than [`MOST_BEFORE_HEAD`] bytes may come before the head of the only answer.
    OneAnswer,
    Streams(HeadLimit),
}

/// The number of bytes that may come before the head of an answer has been read, with that head. An answer may be preceded by any
/// number of interim ones (1xx), which hyper reads without a pause, so an endpoint that sends them without an end would keep the
/// thread from everything else. hyper reads heads of up to 400 KiB, and about as much of a body before it is asked for.
const MOST_BEFORE_HEAD: u32 = 1 << 20;

/// The state of a connection, which can be read from outside of hyper.
#[derive(Debug, Clone)]
pub(super) struct ConnectionState(Arc<Flags>);

/// The state that a connection shares with its [`ConnectionState`]s.
///
/// All values are `Relaxed`, because each is read by itself and guards no other memory.
#[derive(Debug)]
struct Flags {
    /// `true` while hyper has nothing left to write.
    flushed: AtomicBool,
    /// `true` once a write has failed because the endpoint has closed the connection.
    write_failed: AtomicBool,
    /// The number of reads that gave bytes. It wraps around.
    reads: AtomicU32,
    /// The number of reads at the time at which the current request began.
    reads_at_begin: AtomicU32,
    /// The number of bytes that have come since the current request began, until the head of its answer was read.
    before_head: AtomicU32,
    /// `true` while the head of an answer is awaited.
    awaits_head: AtomicBool,
}

impl ConnectionState {
    /// Records that a request begins.
    pub(super) fn begin(&self) {
        self.0.reads_at_begin.store(self.reads(), Relaxed);
        self.0.before_head.store(0, Relaxed);
        self.0.awaits_head.store(true, Relaxed);
    }

    /// Records that the head of the answer to the current request was read.
    pub(super) fn on_head(&self) {
        self.0.awaits_head.store(false, Relaxed);
    }

    /// Counts bytes that have come. Returns `false` if they are too many for an answer whose head is still awaited.
    fn may_come(&self, bytes: usize) -> bool {
        if !self.0.awaits_head.load(Relaxed) {
            return true;
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let before = self.0.before_head.load(Relaxed).saturating_add(bytes);
        self.0.before_head.store(before, Relaxed);
        before <= MOST_BEFORE_HEAD
    }

    /// Returns `true` if hyper has written everything that it had, and the endpoint still accepted it.
    pub(super) fn is_flushed(&self) -> bool {
        self.0.flushed.load(Relaxed) && !self.0.write_failed.load(Relaxed)
    }

    /// Returns `true` if a byte of an answer to the current request has come.
    pub(super) fn has_answered(&self) -> bool {
        self.reads() != self.0.reads_at_begin.load(Relaxed)
    }

    /// Returns the number of reads that gave bytes, which wraps around.
    pub(super) fn reads(&self) -> u32 {
        self.0.reads.load(Relaxed)
    }
}

impl<S> Connection<S> {
    pub(super) fn new(io: S) -> Self {
        Self {
            io: TokioIo::new(io),
            state: ConnectionState(Arc::new(Flags {
                flushed: AtomicBool::new(true),
                write_failed: AtomicBool::new(false),
                reads: AtomicU32::new(0),
                reads_at_begin: AtomicU32::new(0),
                before_head: AtomicU32::new(0),
                awaits_head: AtomicBool::new(false),
            })),
            limit: Limit::None,
            on_reply: None,
        }
    }

    /// Notifies `on_reply` once something was written after the endpoint's first bytes.
    pub(super) fn replying(mut self, on_reply: &Arc<Notify>) -> Self {
        self.on_reply = Some(Arc::clone(on_reply));
        self
    }

    /// Fails if too much comes before the head of an answer. This is for connections with one request at a time.
    pub(super) fn limiting_heads(mut self) -> Self {
        self.limit = Limit::OneAnswer;
        self
    }

    /// Fails if the headers of one answer are too many. This is for connections of HTTP/2.
    pub(super) fn limiting_heads_of_streams(mut self) -> Self {
        self.limit = Limit::Streams(HeadLimit::default());
        self
    }

    /// Returns the state of the connection, which can be read while hyper owns the connection.
    pub(super) fn state(&self) -> ConnectionState {
        self.state.clone()
    }

    /// Writes `length` bytes with `write`. If the endpoint has closed the connection and reads no more, the bytes are
    /// dropped and reported as written.
    fn write(
        &mut self,
        length: usize,
        write: impl FnOnce(Pin<&mut TokioIo<S>>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>>
    where
        S: Unpin,
    {
        if self.on_reply.is_some()
            && self.state.reads() > 0
            && let Some(on_reply) = self.on_reply.take()
        {
            on_reply.notify_one();
        }
        let flags = &*self.state.0;
        flags.flushed.store(false, Relaxed);
        if flags.write_failed.load(Relaxed) {
            return Poll::Ready(Ok(length)); // dropped, because the endpoint reads no more
        }
        match write(Pin::new(&mut self.io)) {
            Poll::Ready(Err(error)) if is_closed(&error) => {
                tracing::debug!(%error, "the endpoint reads no more of a request");
                flags.write_failed.store(true, Relaxed);
                Poll::Ready(Ok(length))
            }
            written => written,
        }
    }
}

/// Returns `true` if the endpoint has closed the connection. Bytes that it sent before can still be read.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset
    )
}

impl<S: Read + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let length = buf.filled().len() - before;
        if length > 0 {
            // Nobody else writes the number.
            self.state
                .0
                .reads
                .store(self.state.reads().wrapping_add(1), Relaxed);
            let this = &mut *self;
            let may_come = match &mut this.limit {
                Limit::None => true,
                Limit::OneAnswer => this.state.may_come(length),
                Limit::Streams(limit) => limit.read(&buf.filled()[before..]),
            };
            if !may_come {
                let error = "the endpoint sends interim responses without an end";
                return Poll::Ready(Err(io::Error::other(error)));
            }
        }
        match read {
            // The endpoint closed the connection with a part of the request unread. Everything that it sent is read by
            // now, so this is the end of the stream.
            Poll::Ready(Err(error)) if is_closed(&error) && !self.state.is_flushed() => {
                Poll::Ready(Ok(()))
            }
            read => read,
        }
    }
}

impl<S: Write + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(buf.len(), |io| io.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bufs.iter().map(|buf| buf.len()).sum();
        self.write(length, |io| io.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// Flushes the connection. hyper calls this once it has written everything that it has.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.0.write_failed.load(Relaxed) {
            return Poll::Ready(Ok(())); // the endpoint reads no more
        }
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Ready(Ok(())) => self.state.0.flushed.store(true, Relaxed),
            Poll::Ready(Err(error)) if is_closed(&error) => {
                self.state.0.write_failed.store(true, Relaxed);
            }
            other => return other,
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
