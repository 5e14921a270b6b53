//! The socket of a client as a stream, which marks its waits for the client to take bytes.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

use super::activity::Activity;
use super::hang_up::Shared;

/// The stream of a client, below TLS if there is any.
pub(super) struct ClientIo {
    pub(super) read: OwnedReadHalf,
    pub(super) shared: Arc<Shared>,
    pub(super) activity: Arc<Activity>,
}

/// The beginning of the first line that a client of HTTP/2 sends. No method of HTTP begins like this.
const PREFACE: &[u8] = b"PRI ";

impl ClientIo {
    /// Waits for the client's first bytes, which are left for the server. Returns `true` unless they may be those of HTTP/2.
    pub(super) async fn begins_as_http1(&mut self) -> io::Result<bool> {
        let mut first = [0; PREFACE.len()];
        let length = self.read.peek(&mut first).await?;
        Ok(!PREFACE.starts_with(&first[..length]))
    }

    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let socket = self.shared.socket();
        loop {
            let Poll::Ready(ready) = socket.poll_write_ready(cx) else {
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
        Pin::new(&mut self.read).poll_read(cx, buf)
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
        let write = |socket: &TcpStream| socket.try_write_vectored(bufs);
        self.poll_write_with(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.activity.needs_reset() {
            return Poll::Ready(Ok(())); // the reset comes in place of the end
        }
        let socket = SockRef::from(self.shared.socket());
        Poll::Ready(socket.shutdown(Shutdown::Write))
    }
}

/// Lets the socket be closed by a reset if a client of HTTP/1.0 would take the end for that of its response. Nothing else tells
/// it that a response of unknown length was cut off (RFC 9112, 8).
impl Drop for ClientIo {
    fn drop(&mut self) {
        if self.activity.needs_reset() {
            self.shared.end_by_reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::super::hang_up;
    use super::*;

    /// Returns what is found out about a client that sends `first`.
    async fn of_client(first: &[u8], then: impl FnOnce(TcpStream)) -> io::Result<bool> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut client = TcpStream::connect(listener.local_addr()?).await?;
        client.write_all(first).await?;
        then(client);
        let (mut io, _watch) = hang_up::watch(listener.accept().await?.0, Arc::default());
        io.begins_as_http1().await
    }

    #[tokio::test]
    async fn the_first_bytes_tell_the_protocol() {
        for (first, is_http1) in [
            ("G", true),
            ("GET / HTTP/1.1\r\n", true),
            ("\r\nPRI ", true),
            ("PO", true),
            ("PRINT / HTTP/1.1\r\n", true),
            ("P", false), // not known yet
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false),
            ("", false),
        ] {
            let told = of_client(first.as_bytes(), drop).await;
            assert_eq!(told.unwrap(), is_http1, "{first:?}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_was_reset_is_an_error() {
        let reset = |client: TcpStream| {
            let client = SockRef::from(&client);
            client.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        };
        assert!(of_client(b"", reset).await.is_err());
    }
}
