//! hyper reads no further while the bytes that it has read of a connection are not used up. A client that
//! sends more than its request, be it an empty line, and then hangs up would keep its place in the waiting
//! room, and the work of its backend, until it is its turn.
//!
//! So whenever the server waits without reading, the socket itself is asked whether the client has hung up.
//! That looks past unread bytes, and costs nothing for all other connections. A client that has closed its
//! writing side counts as gone, as it does for hyper: the two look the same from here. What stays unseen is
//! the end of a connection behind more bytes than the kernel keeps for it: TCP does not deliver it before.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A connection to a client: what a server reads and writes, and what tells whether the client is still there.
pub(crate) fn watched(socket: TcpStream) -> (ClientIo, Watch) {
    let (read, write) = socket.into_split();
    let shared = Arc::new(Shared {
        write,
        server_waits: AtomicBool::new(false),
        server_knows: AtomicBool::new(false),
    });
    let watch = Watch(Arc::clone(&shared));
    (ClientIo { read, shared }, watch)
}

/// Tells whether the client is still there.
pub(crate) struct Watch(Arc<Shared>);

impl Watch {
    /// Drives `connection`, the server of this client, to its end. `None` if the client hung up first:
    /// then the connection is dropped, with all that it was doing.
    pub(crate) async fn drive<C: Future>(self, connection: C) -> Option<C::Output> {
        let mut connection = pin!(connection);
        let mut hung_up = pin!(self.0.hung_up());
        poll_fn(|cx| {
            // One task does all of this: no order of memory matters.
            self.0.server_waits.store(false, Ordering::Relaxed);
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
            if self.0.server_sees_the_end() {
                return Poll::Pending;
            }
            hung_up.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}

struct Shared {
    write: OwnedWriteHalf,
    /// The server waits for bytes since it was polled last.
    server_waits: AtomicBool,
    /// The server has read to the end, or to an error.
    server_knows: AtomicBool,
}

impl Shared {
    /// Whether the server needs no help to find out that the client hangs up.
    fn server_sees_the_end(&self) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is(&self.server_waits) || is(&self.server_knows)
    }

    /// Returns when the client has closed its side, even behind bytes that are not read, or all of it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn hung_up(&self) {
        // The socket is registered for reading and writing only: of what this waits for, priority data or a
        // closed reading side, the second alone can come.
        _ = self.write.ready(Interest::PRIORITY).await;
    }

    /// The same where nothing wakes for it: unread bytes keep a socket readable.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    async fn hung_up(&self) {
        const BETWEEN_LOOKS: std::time::Duration = std::time::Duration::from_millis(100);
        while let Ok(ready) = self.write.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&OwnedWriteHalf) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.write.as_ref().poll_write_ready(cx))?;
            match write(&self.write) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

/// What the server reads and writes.
pub(crate) struct ClientIo {
    read: OwnedReadHalf,
    shared: Arc<Shared>,
}

impl AsyncRead for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.read).poll_read(cx, buf);
        match &read {
            Poll::Pending => self.shared.server_waits.store(true, Ordering::Relaxed),
            Poll::Ready(Ok(())) if buf.filled().len() > before => {}
            Poll::Ready(_) => self.shared.server_knows.store(true, Ordering::Relaxed),
        }
        read
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared
            .poll_write_with(cx, |write| write.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = |write: &OwnedWriteHalf| write.try_write_vectored(bufs);
        self.shared.poll_write_with(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = SockRef::from(self.shared.write.as_ref());
        Poll::Ready(socket.shutdown(Shutdown::Write))
    }
}
