//! An endpoint that sends and reads exactly what the test says.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Upstream(TcpListener);

impl Upstream {
    pub(crate) async fn bind() -> Self {
        Self(TcpListener::bind(("127.0.0.1", 0)).await.unwrap())
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub(crate) async fn accept(&self) -> Connection {
        Connection(self.0.accept().await.unwrap().0)
    }

    /// Accepts a connection and answers its first request, which `asks` makes.
    pub(crate) async fn accept_while(&self, asks: impl Future, answer: &str) -> Connection {
        let serve = async {
            let mut connection = self.accept().await;
            connection.answer(answer).await;
            connection
        };
        tokio::join!(serve, asks).0
    }
}

pub(crate) struct Connection<S = TcpStream>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The next request: its head, in lower case, and its body, which has a `content-length` or none.
    pub(crate) async fn request(&mut self) -> (String, String) {
        let mut bytes = Vec::new();
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            assert_ne!(
                self.0.read_buf(&mut bytes).await.unwrap(),
                0,
                "no whole head: {bytes:?}"
            );
        };
        let mut body = bytes.split_off(head);
        let head = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        while body.len() < length.map_or(0, |length| length.parse().unwrap()) {
            assert_ne!(
                self.0.read_buf(&mut body).await.unwrap(),
                0,
                "no whole body: {body:?}"
            );
        }
        (head, String::from_utf8(body).unwrap())
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads a request and answers it.
    pub(crate) async fn answer(&mut self, answer: &str) {
        self.request().await;
        self.send(answer).await;
    }

    /// Returns when the peer has closed.
    pub(crate) async fn closed(mut self) {
        // A reset is as good as an end.
        while !matches!(self.0.read(&mut [0; 1024]).await, Ok(0) | Err(_)) {}
    }
}
