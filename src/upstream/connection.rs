//! A connection to an endpoint that can still be read after a write has failed, and that can be closed from outside of
//! hyper.
//!
//! An endpoint may answer before it has read the whole request, and then close the connection, which makes the next
//! write fail. At that error hyper gives up and never reads the answer, although it has arrived. A [`Connection`] hides
//! such an error, so that hyper goes on to read. A [`ConnectionHandle`] can close the connection while hyper still has
//! more to write. After a connection has ended, the handle also tells if the endpoint had closed it before it saw the
//! request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use http::Extensions;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{Connected, Connection as Describe};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A connection to an endpoint, as hyper reads and writes it.
pub(crate) struct Connection<S> {
    io: TokioIo<S>,
    handle: ConnectionHandle,
    /// Wakes hyper's task when a handle closes the connection.
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// A handle to a connection, which can close it and report its state from outside of hyper.
#[derive(Debug, Clone)]
pub(super) struct ConnectionHandle(Arc<Shared>);

/// A logical timestamp, of which later values are greater. One task drives a connection and the body that is sent on
/// it, so the timestamps of these two are in the order of that task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogicalTime(u64);

impl LogicalTime {
    pub(super) fn now() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed is enough, because only the numbers themselves are compared.
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}

/// The state of a connection, shared by the connection and its handles.
///
/// All flags are `Relaxed`, because each is read by itself and guards no other memory.
#[derive(Debug)]
struct Shared {
    /// `true` while hyper has nothing left to write.
    flushed: AtomicBool,
    /// The [`LogicalTime`] of the last flush.
    flushed_at: AtomicU64,
    /// `true` once a write has failed because the endpoint has closed the connection.
    write_failed: AtomicBool,
    /// Cancelled once the connection was closed through a handle.
    closed: CancellationToken,
    /// The [`LogicalTime`] at which the connection was made.
    opened_at: LogicalTime,
    /// `true` once a byte has come since the current request began.
    has_answered: AtomicBool,
    /// `true` once the connection carries a request after another one.
    is_reused: AtomicBool,
}

impl<S> Connection<S> {
    pub(super) fn new(io: S) -> Self {
        let shared = Shared {
            flushed: AtomicBool::new(true),
            flushed_at: AtomicU64::new(0),
            write_failed: AtomicBool::new(false),
            closed: CancellationToken::new(),
            opened_at: LogicalTime::now(),
            has_answered: AtomicBool::new(false),
            is_reused: AtomicBool::new(false),
        };
        Self {
            io: TokioIo::new(io),
            closing: Box::pin(shared.closed.clone().cancelled_owned()),
            handle: ConnectionHandle(Arc::new(shared)),
        }
    }

    #[cfg(test)]
    pub(super) fn handle(&self) -> ConnectionHandle {
        self.handle.clone()
    }

    /// Fails if the connection was closed through its handle.
    fn check_open(&self) -> io::Result<()> {
        match self.handle.0.closed.is_cancelled() {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
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
        self.check_open()?;
        let shared = &*self.handle.0;
        // The first write after a flush begins a request. A body that arrives in several pieces causes several such
        // writes, but a request is sent again only if all of its body was taken at once.
        if shared.flushed.load(Relaxed) && shared.has_answered.load(Relaxed) {
            shared.is_reused.store(true, Relaxed);
            shared.has_answered.store(false, Relaxed);
        }
        shared.flushed.store(false, Relaxed);
        if shared.write_failed.load(Relaxed) {
            return Poll::Ready(Ok(length)); // dropped, because the endpoint reads no more
        }
        match write(Pin::new(&mut self.io)) {
            Poll::Ready(Err(error)) if is_closed(&error) => {
                tracing::debug!(%error, "the endpoint reads no more of a request");
                shared.write_failed.store(true, Relaxed);
                Poll::Ready(Ok(length))
            }
            written => written,
        }
    }
}

impl Shared {
    /// Records that everything is written, together with the time.
    fn set_flushed(&self) {
        if !self.flushed.load(Relaxed) {
            self.flushed_at.store(LogicalTime::now().0, Relaxed);
            self.flushed.store(true, Relaxed);
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

impl ConnectionHandle {
    /// Returns the handle that a [`Connection`] put into hyper's description of the connection.
    pub(super) fn of(connected: &Connected) -> Option<Self> {
        let mut extras = Extensions::new();
        connected.get_extras(&mut extras);
        extras.remove()
    }

    /// Returns `true` if hyper has written everything that it had, and the endpoint still accepted it.
    pub(super) fn is_flushed(&self) -> bool {
        self.0.flushed.load(Relaxed) && !self.0.write_failed.load(Relaxed)
    }

    /// Returns `true` if hyper has written everything that it had at `moment`. Unlike [`is_flushed`](Self::is_flushed),
    /// this stays `true` while the next request is being written.
    pub(super) fn is_flushed_since(&self, moment: LogicalTime) -> bool {
        self.0.flushed_at.load(Relaxed) > moment.0 || self.is_flushed()
    }

    /// Returns `true` if this connection was kept from before a request that began at `begun`, and has brought no byte
    /// since.
    pub(super) fn was_stale(&self, begun: LogicalTime) -> bool {
        // A kept connection may be one without an earlier request, if another connection became free sooner.
        let is_kept = self.0.opened_at < begun || self.0.is_reused.load(Relaxed);
        is_kept && !self.0.has_answered.load(Relaxed)
    }

    /// Closes the connection, even if hyper has more to write.
    pub(super) fn close(&self) {
        self.0.closed.cancel();
    }
}

impl<S: Read + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let has_answered = &self.handle.0.has_answered;
        // The flag is loaded first, because most reads belong to an answer that has begun.
        if buf.filled().len() > before && !has_answered.load(Relaxed) {
            has_answered.store(true, Relaxed);
        }
        if read.is_pending() {
            ready!(self.closing.as_mut().poll(cx));
        }
        self.check_open()?;
        match read {
            // The endpoint closed the connection with a part of the request unread. Everything that it sent is read by
            // now, so this is the end of the stream.
            Poll::Ready(Err(error)) if is_closed(&error) && !self.handle.is_flushed() => {
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
        self.check_open()?;
        if self.handle.0.write_failed.load(Relaxed) {
            return Poll::Ready(Ok(())); // the endpoint reads no more
        }
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Ready(Ok(())) => self.handle.0.set_flushed(),
            Poll::Ready(Err(error)) if is_closed(&error) => {
                self.handle.0.write_failed.store(true, Relaxed);
            }
            other => return other,
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_open()?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<S: Describe> Describe for Connection<S> {
    fn connected(&self) -> Connected {
        self.io.inner().connected().extra(self.handle.clone())
    }
}
