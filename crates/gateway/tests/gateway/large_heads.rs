//! Requests with large heads, which a backend could answer by closing a connection that others use.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::process::{Gateway, Setup, TIMEOUT};

/// Lengths of a header, in bytes, with the statuses of their requests.
const HEADERS: [(usize, u16); 3] = [(31_000, 200), (34_000, 431), (70_000, 431)];

async fn gateway() -> (Gateway, Backend) {
    let backend = Backend::replying("fine").await;
    let setup = Setup::new().backend("gpu-1", &backend, 4, &["m"]);
    (setup.start().await, backend)
}

/// Sends a request with a header of `length` bytes, of which the `first` part comes alone. Returns the status.
async fn ask(gateway: &Gateway, length: usize, first: usize) -> u16 {
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    client.set_nodelay(true).unwrap();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-large: {}\r\ncontent-length: 13\r\n\r\n{{\"model\":\"m\"}}",
        "a".repeat(length)
    );
    let (first, rest) = request.as_bytes().split_at(first);
    let mut status = [0; 12];
    let exchange = async {
        client.write_all(first).await.unwrap();
        gateway.get("/health").answer().await; // the first part has arrived
        _ = client.write_all(rest).await; // a refused one is not read to its end
        client.read_exact(&mut status).await.unwrap();
    };
    timeout(TIMEOUT, exchange).await.expect("no answer comes");
    let text = std::str::from_utf8(&status[9..]).unwrap();
    text.parse().unwrap()
}

#[tokio::test]
async fn a_large_head_is_refused_over_http_1() {
    let (gateway, backend) = gateway().await;
    // After one byte, it might be HTTP/2.
    for first in [10, 1] {
        for (length, status) in HEADERS {
            assert_eq!(ask(&gateway, length, first).await, status, "{length}");
        }
    }
    assert_eq!(backend.counts().arrived, 2);
}

#[tokio::test]
async fn a_large_head_is_refused_over_http_2() {
    let (gateway, backend) = gateway().await;
    let client = gateway.client().http2();
    for (length, status) in HEADERS {
        let asked = client.ask("m").header("x-large", "a".repeat(length));
        assert_eq!(asked.answer().await.status, status, "{length}");
    }
    client.ask("m").answer().await.assert_ok("fine");
    assert_eq!(backend.counts().arrived, 2);
}
