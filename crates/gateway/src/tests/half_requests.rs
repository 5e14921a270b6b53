//! Connections on which no whole request comes, over real sockets and by Tokio's paused clock.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::*;

/// The defaults of `header_timeout_seconds` and `idle_timeout_seconds`.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

const REQUEST: &[u8] = b"GET /admin/state HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn half_a_request_to_the_admin_address_ends_in_time() {
    let (addr, _server) = start_admin_address().await;
    let half = &REQUEST[..REQUEST.len() - 2];
    for begun in [
        &b""[..],
        b"G",
        half,
        b"PRI * HTTP/2.0\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let since = Instant::now();
        let mut client = TcpStream::connect(addr).await.unwrap();
        client.write_all(begun).await.unwrap();
        let mut rest = Vec::new();
        _ = client.read_to_end(&mut rest).await;
        assert!(!rest.starts_with(b"HTTP/1.1 2"), "{begun:?}");
        assert!(since.elapsed() >= HEADER_TIMEOUT, "{begun:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_by_the_byte_ends_in_time() {
    let (addr, _server) = start_admin_address().await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    let since = Instant::now();
    client.write_all(b"GET / HTTP/1.1\r\nx: ").await.unwrap();
    while client.write_all(b"x").await.is_ok() {
        assert!(since.elapsed() < 2 * HEADER_TIMEOUT);
        sleep(HEADER_TIMEOUT / 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_used_stays_open() {
    let (addr, _server) = start_admin_address().await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    for _ in 0..5 {
        client.write_all(REQUEST).await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"}") {
            assert_ne!(client.read_buf(&mut read).await.unwrap(), 0);
        }
        assert!(read.starts_with(b"HTTP/1.1 200"));
        sleep(IDLE_TIMEOUT * 2 / 3).await;
    }
    let since = Instant::now();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert!(since.elapsed() >= IDLE_TIMEOUT / 3);
}

#[tokio::test(start_paused = true)]
async fn half_a_request_on_a_kept_connection_ends_in_time() {
    let (addr, _server) = start_admin_address().await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"}") {
        assert_ne!(client.read_buf(&mut read).await.unwrap(), 0);
    }
    let since = Instant::now();
    client.write_all(b"GET /admin").await.unwrap();
    assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
    assert!(since.elapsed() >= HEADER_TIMEOUT);
    assert!(since.elapsed() < IDLE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_is_no_half_request() {
    let (addr, _server) = start_admin_address().await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    let request = b"GET /admin/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.write_all(request).await.unwrap();
    let since = Instant::now();
    let mut read = Vec::new();
    while since.elapsed() < 2 * IDLE_TIMEOUT {
        assert_ne!(client.read_buf(&mut read).await.unwrap(), 0);
    }
}
