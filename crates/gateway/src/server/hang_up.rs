//! The detection of clients that hang up, even behind bytes that the server has not read.
//!
//! hyper stops reading while it has buffered bytes of a connection. A client that sends more than its request, if
//! only an empty line, and then hangs up would keep its place in the waiting room, and its backend busy, until its
//! request is served.
//!
//! So while the server waits without reading, this module asks the socket itself whether the client has hung up.
//! That looks past unread bytes, and costs nothing for other connections. A client that closed only its writing side
//! counts as gone, as it does for hyper: the two cannot be distinguished. If more unread bytes follow than the
//! kernel's receive buffer takes, the end behind them is not detected, because TCP has not delivered it yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;

use super::activity::Activity;
use super::client_io::ClientIo;
use super::watched_io::WatchedIo;

/// Splits the connection of a client into its stream, and the watch that notices when the client hangs up. The stream
/// marks its waits in `activity`.
pub(super) fn watch(socket: TcpStream, activity: Arc<Activity>) -> (ClientIo, HangUpWatch) {
    let (read, write) = socket.into_split();
    let shared = Arc::new(Shared {
        write: Some(write),
        ends_by_reset: AtomicBool::new(false),
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
    /// Returns the stream that the server has to read: `io`, which is that of the client or TLS over it.
    pub(super) fn watched<I>(&self, io: I, activity: Arc<Activity>) -> WatchedIo<I> {
        let shared = Arc::clone(&self.0);
        WatchedIo {
            io,
            shared,
            activity,
        }
    }

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

/// The state of a connection that its streams and the watch share.
pub(super) struct Shared {
    /// The side of the socket that writes. `None` while this is dropped.
    write: Option<OwnedWriteHalf>,
    /// `true` if the connection ends by a reset.
    ends_by_reset: AtomicBool,
    /// The server's last poll ended in a pending read.
    server_reading: AtomicBool,
    /// The server has read the end of the stream, or an error.
    server_read_end: AtomicBool,
}

impl Shared {
    pub(super) fn socket(&self) -> &TcpStream {
        match &self.write {
            Some(write) => write.as_ref(),
            None => unreachable!("it is there until this is dropped"),
        }
    }

    /// Lets the connection end by a reset, which drops what is still to be sent.
    pub(super) fn end_by_reset(&self) {
        self.ends_by_reset.store(true, Ordering::Relaxed);
    }

    /// Notes that the server waits for bytes, and is woken when they or the end come.
    pub(super) fn on_pending_read(&self) {
        self.server_reading.store(true, Ordering::Relaxed);
    }

    /// Notes that the server knows the end of the stream.
    pub(super) fn on_read_end(&self) {
        self.server_read_end.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the server itself notices when the client hangs up.
    fn server_will_notice(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_set(&self.server_reading) || is_set(&self.server_read_end)
    }

    /// Waits until the client has closed the connection or its writing side, even behind unread bytes.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn hung_up(&self) {
        // `PRIORITY` also wakes for a closed reading side. Priority data cannot wake it, because the socket is
        // registered for reading and writing only.
        _ = self.socket().ready(Interest::PRIORITY).await;
    }

    /// Polls on other platforms, where unread bytes keep the socket readable and no event follows.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    async fn hung_up(&self) {
        const POLL_INTERVAL: Duration = Duration::from_millis(100);
        while let Ok(ready) = self.socket().ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !*self.ends_by_reset.get_mut() {
            return;
        }
        // If the socket has no such option, the connection ends as others do.
        _ = SockRef::from(self.socket()).set_linger(Some(Duration::ZERO));
        if let Some(write) = self.write.take() {
            write.forget(); // its own drop would send the end of a whole response first
        }
    }
}
