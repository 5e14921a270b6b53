//! Large request bodies: the memory that they may have, and a full waiting room that turns them away.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::durable_support::{Folder, stored};
use crate::process::{Gateway, Setup, TIMEOUT};

/// An upload that announces `length` bytes, and stalls after it has sent `sent` of them.
async fn stalled(gateway: &Gateway, length: usize, sent: usize) -> TcpStream {
    stalled_with(gateway, "", length, sent).await
}

/// The same with these header lines.
async fn stalled_with(gateway: &Gateway, lines: &str, length: usize, sent: usize) -> TcpStream {
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{lines}content-length: {length}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&vec![b' '; sent]).await.unwrap();
    client
}

/// Reads the answer to an upload that still stalls.
async fn answer(mut client: TcpStream) -> String {
    let mut text = Vec::new();
    let read = async {
        while !text.ends_with(b"}}") {
            assert_ne!(client.read_buf(&mut text).await.unwrap(), 0);
        }
    };
    timeout(TIMEOUT, read).await.expect("no answer comes");
    String::from_utf8(text).unwrap()
}

/// A gateway whose slot is taken and whose waiting room is full.
async fn full(backend: &Backend) -> Gateway {
    let setup = Setup::new()
        .queue("max_size = 1\nmax_wait_seconds = \"none\"")
        .backend("gpu-1", backend, 1, &["m"]);
    let gateway = setup.start().await;
    for _ in 0..2 {
        drop(gateway.ask("m").send());
    }
    gateway.depth(1).await;
    gateway
}

#[tokio::test]
async fn a_full_room_turns_a_stalled_upload_away() {
    let backend = Backend::start().await;
    let gateway = full(&backend).await;
    let told = answer(stalled(&gateway, 9 << 20, 100_000).await).await;
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    assert!(told.contains("\r\nretry-after: "), "{told}");
    assert!(told.contains("\"queue_full\""), "{told}");
}

#[tokio::test]
async fn a_client_that_sends_a_refused_upload_to_its_end_gets_the_answer() {
    let backend = Backend::start().await;
    let gateway = full(&backend).await;
    let upload = gateway.ask("m").body(vec![b' '; 9 << 20]);
    upload.answer().await.assert_error(503, "queue_full");
}

#[tokio::test]
async fn bodies_beyond_the_memory_are_refused_until_others_are_gone() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .top("body_limit_bytes = 70000")
        .sections("[server]\nbody_memory_bytes = 70000\n")
        .backend("gpu-1", &backend, 4, &["m"]);
    let gateway = setup.start().await;
    let large = || {
        let chat = format!("{{\"model\": \"m\"{}}}", " ".repeat(40_000));
        gateway.ask("m").body(chat)
    };
    let first = large().send();
    let arrived = backend.next().await; // its body is kept for a retry
    let refused = large().answer().await;
    refused.assert_error(503, "body_memory_full");
    let (small, ()) = tokio::join!(gateway.ask("m").answer(), async {
        backend.next().await.answer("fine");
    });
    small.assert_ok("fine");

    arrived.answer("done");
    first.answer().await.assert_ok("done");
    let (third, ()) = tokio::join!(large().answer(), async {
        backend.next().await.answer("fine");
    });
    third.assert_ok("fine");
}

#[tokio::test]
async fn bodies_that_are_about_to_be_stored_count_in_the_memory() {
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let limit = "body_limit_bytes = 70000";
    let setup = Setup::new()
        .top(limit)
        .backend("gpu-1", &backend, 1, &["m"])
        .sections(&folder.section(limit))
        .sections("[server]\nbody_memory_bytes = 70000\n");
    let gateway = setup.start().await;
    let lines = "prefer: respond-async\r\n";
    let mut held = Vec::new();
    // The gateway may read a whole upload before one that began earlier, which is the one that is refused then.
    let refused = async {
        loop {
            held.push(stalled_with(&gateway, lines, 60_000, 40_000).await);
            let body = format!("{{\"model\": \"m\"{}}}", " ".repeat(40_000));
            let answer = stored(gateway.client(), "").body(body).answer().await;
            if answer.status != 202 {
                return answer;
            }
        }
    };
    let refused = timeout(TIMEOUT, refused).await.expect("none is refused");
    refused.assert_error(503, "body_memory_full");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    let told = answer(stalled_with(&gateway, lines, 60_000, 100).await).await;
    assert!(told.contains("\"body_memory_full\""), "{told}");

    drop(held);
    let served = async {
        let body = format!("{{\"model\": \"m\"{}}}", " ".repeat(40_000));
        let ask = || {
            gateway
                .ask("m")
                .header("prefer", "wait=30")
                .body(body.clone())
        };
        while ask().answer().await.status != 200 {}
    };
    timeout(TIMEOUT, served)
        .await
        .expect("its memory is not given back");
}

/// The model is in the query, so the body is not read before its request has a slot.
#[tokio::test]
async fn a_body_that_waits_over_http2_is_not_taken_into_memory() {
    const PIECE: usize = 16 << 10;
    const PIECES: usize = 64;
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;

    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let pieces = (0..PIECES).map(move |_| {
        count.fetch_add(PIECE, Ordering::Relaxed);
        Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; PIECE])))
    });
    let socket = TcpStream::connect(gateway.addr()).await.unwrap();
    let connected = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await;
    let (mut client, connection) = connected.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://localhost/v1/x?model=m");
    let request = request.body(StreamBody::new(stream::iter(pieces))).unwrap();
    let answer = tokio::spawn(client.send_request(request));
    gateway
        .until("the window is full", |state| {
            state.depth() == 1 && sent.load(Ordering::Relaxed) >= 128 << 10
        })
        .await;
    gateway.state().await;
    assert!(sent.load(Ordering::Relaxed) <= 12 * PIECE);

    running.answer("done");
    first.answer().await.assert_ok("done");
    let upload = backend.next().await;
    assert_eq!(upload.body.len(), PIECES * PIECE);
    upload.answer("fine");
    let answer = timeout(TIMEOUT, answer).await.expect("no answer");
    assert_eq!(answer.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_transfer_encoding_that_is_unknown_is_not_implemented() {
    let backend = Backend::replying("fine").await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let body = "d\r\n{\"model\":\"m\"}\r\n0\r\n\r\n";
    for (encoding, status) in [
        ("chunked", "200"),
        ("Chunked ", "200"),
        ("gzip, chunked", "501"),
        ("gzip\r\ntransfer-encoding: chunked", "501"),
    ] {
        let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: \
             {encoding}\r\n\r\n{body}"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let mut told = String::new();
        let read = timeout(TIMEOUT, client.read_to_string(&mut told)).await;
        read.expect("no answer comes").unwrap();
        let expected = format!("HTTP/1.1 {status}");
        assert!(told.starts_with(&expected), "{encoding}: {told}");
        if status == "501" {
            assert!(told.contains("\"unsupported_transfer_encoding\""), "{told}");
        }
    }
    assert_eq!(backend.counts().arrived, 2);
}
