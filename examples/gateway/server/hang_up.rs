//! The stream between a client and the server, and the detection of clients that hang up, even behind bytes that the server has not read.
//!
//! hyper stops reading while it has buffered bytes of a connection. A client that sends more than its request, if
//! only an empty line, and then hangs up would keep its place in the waiting room, and its backend busy, until its
//! request is served.
//!
//! So while the server waits without reading, this module asks the socket itself whether the client has hung up.
//! That looks past unread bytes, and costs nothing for other connections. A client that closed only its writing side
//! counts as gone, as it does for hyper: the two cannot be distinguished. If more unread bytes follow than the
//! kernel's receive buffer takes, the end behind them is not detected, because TCP has not delivered it yet.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::activity::Activity;

/// Splits the connection of a client into the stream that the server reads and writes, and the watch that notices
/// when the client hangs up. The stream marks its reads and its waits in `activity`.
pub(super) fn watch(socket: TcpStream, activity: Arc<Activity>) -> (ClientIo, HangUpWatch) {
    let (read, write) = socket.into_split();
    let shared = Arc::new(Shared {
        write,
        server_reading: AtomicBool::new(false),
        server_read_end: AtomicBool::new(false),
    });
    let watch = HangUpWatch(Arc::clone(&shared));
    let io = ClientIo {
        read,
        shared,
        activity,
    };
    (io, watch)
}

/// Notices when the client hangs up.
pub(super) struct HangUpWatch(Arc<Shared>);

impl HangUpWatch {
    /// Waits until the client has hung up.
    pub(super) async fn hung_up(&self) {
        self.0.hung_up().await;
    }

    /// Notes that the server is polled next.
    pub(super) fn before_poll(&self) {
        // Relaxed here and below: one task accesses the flags.
        self.0.server_reading.store(false, Ordering::Relaxed);
    }

    /// Returns `true` if the server's own read wakes it when the client hangs up.
    pub(super) fn server_will_notice(&self) -> bool {
        self.0.server_will_notice()
    }
}

struct Shared {
    write: OwnedWriteHalf,
    /// The server's last poll ended in a pending read.
    server_reading: AtomicBool,
    /// The server has read the end of the stream, or an error.
    server_read_end: AtomicBool,
}

impl Shared {
    /// Whether the server itself notices if the client hangs up.
    fn server_will_notice(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_set(&self.server_reading) || is_set(&self.server_read_end)
    }

    /// Waits until the client has closed the connection or its writing side, even behind unread bytes.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn hung_up(&self) {
        // `PRIORITY` also wakes for a closed reading side. Priority data cannot wake it, because the socket is
        // registered for reading and writing only.
        _ = self.write.ready(Interest::PRIORITY).await;
    }

    /// Polls on other platforms, where unread bytes keep the socket readable and no event follows.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    async fn hung_up(&self) {
        const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);
        while let Ok(ready) = self.write.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// The stream that the server reads and writes. It records whether the server is reading.
pub(super) struct ClientIo {
    read: OwnedReadHalf,
    shared: Arc<Shared>,
    activity: Arc<Activity>,
}

impl ClientIo {
    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&OwnedWriteHalf) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let socket = &self.shared.write;
        loop {
            let Poll::Ready(ready) = socket.as_ref().poll_write_ready(cx) else {
                self.activity.writes.wait();
                return Poll::Pending;
            };
            ready?;
            match write(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.activity.writes.go_on();
                    return Poll::Ready(written);
                }
            }
        }
    }
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
            Poll::Pending => self.shared.server_reading.store(true, Ordering::Relaxed),
            Poll::Ready(Ok(())) if buf.filled().len() > before => self.activity.read_some(),
            Poll::Ready(_) => self.shared.server_read_end.store(true, Ordering::Relaxed),
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
        self.poll_write_with(cx, |write| write.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = |write: &OwnedWriteHalf| write.try_write_vectored(bufs);
        self.poll_write_with(cx, write)
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
