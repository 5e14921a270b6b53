//! An endpoint that answers before it has read the whole request, and then closes, makes the next write to it
//! fail. hyper gives up at that error, and the answer that has already arrived is never read.
//!
//! A [`Connection`] keeps such an error to itself, so that hyper goes on to read. It can be closed through a
//! [`ConnectionHandle`], whatever hyper still has to write.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use http::Extensions;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection as Describe};

/// A connection to an endpoint, as hyper reads and writes it.
pub(crate) struct Connection<S> {
    io: S,
    handle: ConnectionHandle,
}

/// What can be known of a connection, and done to it, from outside of hyper.
#[derive(Debug, Clone)]
pub(super) struct ConnectionHandle(Arc<Shared>);

/// A point in the order of what happens: later ones are greater. One task drives a connection and the body that is
/// sent on it, so that for these two the order is that of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogicalTime(u64);

impl LogicalTime {
    pub(super) fn now() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}

/// The flags are `Relaxed`: each is read by itself, and says nothing of other memory. That hyper's task sees `closed`
/// follows from the lock around the waker, which orders the wake-up after it.
#[derive(Debug)]
struct Shared {
    /// Whether hyper has nothing left to write.
    flushed: AtomicBool,
    /// The `LogicalTime` at which that became so last.
    flushed_at: AtomicU64,
    /// Whether the endpoint has closed while something was being written.
    write_failed: AtomicBool,
    closed: AtomicBool,
    /// hyper's task, if it waits for the endpoint.
    waker: Mutex<Option<Waker>>,
}

impl<S> Connection<S> {
    pub(super) fn new(io: S) -> Self {
        let shared = Shared {
            flushed: AtomicBool::new(true),
            flushed_at: AtomicU64::new(0),
            write_failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waker: Mutex::new(None),
        };
        let handle = ConnectionHandle(Arc::new(shared));
        Self { io, handle }
    }

    #[cfg(test)]
    pub(super) fn handle(&self) -> ConnectionHandle {
        self.handle.clone()
    }

    fn check(&self) -> io::Result<()> {
        match self.handle.0.closed.load(Relaxed) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// Writes `length` bytes, or loses them: what the endpoint has closed the connection to is not read any more.
    fn write(
        &mut self,
        length: usize,
        write: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>>
    where
        S: Unpin,
    {
        self.check()?;
        let shared = &*self.handle.0;
        shared.flushed.store(false, Relaxed);
        if shared.write_failed.load(Relaxed) {
            return Poll::Ready(Ok(length));
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
    /// Notes that all is written, and when.
    fn flush(&self) {
        if !self.flushed.load(Relaxed) {
            self.flushed_at.store(LogicalTime::now().0, Relaxed);
            self.flushed.store(true, Relaxed);
        }
    }
}

/// Whether the other side has closed: nothing more will come but what is there.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset
    )
}

impl ConnectionHandle {
    /// The handle of a connection that is described so.
    pub(super) fn of(connected: &Connected) -> Option<Self> {
        let mut extras = Extensions::new();
        connected.get_extras(&mut extras);
        extras.remove()
    }

    /// Whether all that hyper had to write was written.
    pub(super) fn is_flushed(&self) -> bool {
        self.0.flushed.load(Relaxed) && !self.0.write_failed.load(Relaxed)
    }

    /// Whether all that hyper had to write at `moment` was written. Unlike [`is_flushed`](Self::is_flushed), this stays
    /// true when the next request is being written.
    pub(super) fn is_flushed_since(&self, moment: LogicalTime) -> bool {
        self.0.flushed_at.load(Relaxed) > moment.0 || self.is_flushed()
    }

    /// Closes the connection, though hyper may have more to write.
    pub(super) fn close(&self) {
        self.0.closed.store(true, Relaxed);
        let waker = self.lock_waker().take();
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

impl<S: Read + Unpin> Read for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if read.is_pending() {
            // Before the look at `closed`: a close that comes later finds the waker.
            self.handle.wake_on_close(cx);
        }
        self.check()?;
        match read {
            // The endpoint closed with some of the request unread. What it had sent before has been read by now.
            Poll::Ready(Err(error)) if is_closed(&error) && !self.handle.is_flushed() => {
                Poll::Ready(Ok(()))
            }
            read => read,
        }
    }
}

impl<S: Write + Unpin> Write for Connection<S> {
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
        self.check()?;
        if self.handle.0.write_failed.load(Relaxed) {
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Ready(Ok(())) => self.handle.0.flush(),
            Poll::Ready(Err(error)) if is_closed(&error) => {
                self.handle.0.write_failed.store(true, Relaxed);
            }
            other => return other,
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<S: Describe> Describe for Connection<S> {
    fn connected(&self) -> Connected {
        self.io.connected().extra(self.handle.clone())
    }
}
