//! A connection to an endpoint that still reads after a write has failed, and that can be closed from outside of hyper.
//!
//! An endpoint that answers before it has read the whole request, and then closes, makes the next write fail. hyper
//! gives up at that error and never reads the answer, which has arrived. A [`Connection`] hides such an error, so that
//! hyper goes on to read. A [`ConnectionHandle`] closes it, whatever hyper still has to write, and says of a connection
//! that has ended whether the endpoint had closed it before it saw the request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use http::Extensions;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{Connected, Connection as Describe};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection to an endpoint, as hyper reads and writes it.
pub(crate) struct Connection<S> {
    io: TokioIo<S>,
    handle: ConnectionHandle,
}

/// What can be known of a connection, and done to it, from outside of hyper.
#[derive(Debug, Clone)]
pub(super) struct ConnectionHandle(Arc<Shared>);

/// A logical timestamp: later ones are greater. One task drives a connection and the body that is sent on it, so that
/// the timestamps of these two have the order of that task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogicalTime(u64);

impl LogicalTime {
    pub(super) fn now() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers are compared.
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}

/// The flags are `Relaxed`: each is read by itself, and says nothing of other memory. That hyper's task sees `closed`
/// follows from the lock around the waker, which orders the wake-up after it.
#[derive(Debug)]
struct Shared {
    /// Whether hyper has nothing left to write.
    flushed: AtomicBool,
    /// The [`LogicalTime`] of the last flush.
    flushed_at: AtomicU64,
    /// Whether the endpoint has closed while something was being written.
    write_failed: AtomicBool,
    closed: AtomicBool,
    /// The [`LogicalTime`] at which the connection was made.
    opened_at: LogicalTime,
    /// `true` once a byte has come since the present request began.
    has_answered: AtomicBool,
    /// `true` once the connection carries a request after another one.
    is_reused: AtomicBool,
    /// hyper's task, if it waits to read.
    waker: Mutex<Option<Waker>>,
}

impl<S> Connection<S> {
    pub(super) fn new(io: S) -> Self {
        let shared = Shared {
            flushed: AtomicBool::new(true),
            flushed_at: AtomicU64::new(0),
            write_failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            opened_at: LogicalTime::now(),
            has_answered: AtomicBool::new(false),
            is_reused: AtomicBool::new(false),
            waker: Mutex::new(None),
        };
        let handle = ConnectionHandle(Arc::new(shared));
        let io = TokioIo::new(io);
        Self { io, handle }
    }

    #[cfg(test)]
    pub(super) fn handle(&self) -> ConnectionHandle {
        self.handle.clone()
    }

    /// Fails once the connection was closed through its handle.
    fn check_open(&self) -> io::Result<()> {
        match self.handle.0.closed.load(Relaxed) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// Writes `length` bytes, or drops them if the endpoint has closed the connection and reads no more.
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
        // The first write after a flush begins a request. A body in pieces that come later has several such writes; but
        // a request is sent again only if all of it was taken at once.
        if shared.flushed.load(Relaxed) && shared.has_answered.load(Relaxed) {
            shared.is_reused.store(true, Relaxed);
            shared.has_answered.store(false, Relaxed);
        }
        shared.flushed.store(false, Relaxed);
        if shared.write_failed.load(Relaxed) {
            return Poll::Ready(Ok(length)); // dropped: the endpoint reads no more
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
    /// Records that all is written, and when.
    fn set_flushed(&self) {
        if !self.flushed.load(Relaxed) {
            self.flushed_at.store(LogicalTime::now().0, Relaxed);
            self.flushed.store(true, Relaxed);
        }
    }
}

/// Whether the endpoint has closed the connection. What it sent before can still be read.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset
    )
}

impl ConnectionHandle {
    /// The handle that a [`Connection`] put into hyper's description of it.
    pub(super) fn of(connected: &Connected) -> Option<Self> {
        let mut extras = Extensions::new();
        connected.get_extras(&mut extras);
        extras.remove()
    }

    /// Whether hyper has written all that it had.
    pub(super) fn is_flushed(&self) -> bool {
        self.0.flushed.load(Relaxed) && !self.0.write_failed.load(Relaxed)
    }

    /// Whether hyper has written all that it had at `moment`. Unlike [`is_flushed`](Self::is_flushed), this stays true
    /// while the next request is being written.
    pub(super) fn is_flushed_since(&self, moment: LogicalTime) -> bool {
        self.0.flushed_at.load(Relaxed) > moment.0 || self.is_flushed()
    }

    /// Returns `true` if this connection was kept from before a request that began at `begun`, and has brought nothing
    /// since.
    pub(super) fn was_stale(&self, begun: LogicalTime) -> bool {
        // A connection may be kept that has carried no request yet, because another one was free sooner.
        let is_kept = self.0.opened_at < begun || self.0.is_reused.load(Relaxed);
        is_kept && !self.0.has_answered.load(Relaxed)
    }

    /// Closes the connection, though hyper may have more to write.
    pub(super) fn close(&self) {
        self.0.closed.store(true, Relaxed);
        let waker = self.lock_waker().take(); // woken outside the lock
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock_waker(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        let waker = self.0.waker.lock();
        waker.unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_on_close(&self, cx: &Context<'_>) {
        let mut waker = self.lock_waker();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
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
        // A load first: most reads are of an answer that has begun.
        if buf.filled().len() > before && !has_answered.load(Relaxed) {
            has_answered.store(true, Relaxed);
        }
        if read.is_pending() {
            // Before `closed` is read: a later close finds the waker.
            self.handle.wake_on_close(cx);
        }
        self.check_open()?;
        match read {
            // Closed with some of the request unread. All that it had sent is read by now, so this is its end.
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

    /// hyper flushes once it has written all that it has.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_open()?;
        if self.handle.0.write_failed.load(Relaxed) {
            return Poll::Ready(Ok(())); // nothing is sent any more
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
