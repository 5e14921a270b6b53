//! Tests of the shutdown: waiters are rejected at once, running requests finish.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::backend::Backend;
use crate::client::PendingResponse;
use crate::process::{Gateway, Setup, TIMEOUT, binary};

#[tokio::test]
async fn shutdown_rejects_waiters_and_finishes_running_requests() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 3, &["m"]);
    let mut gateway = setup.start().await;
    let running: Vec<PendingResponse> = (0..2).map(|_| gateway.ask("m").send()).collect();
    let mut arrived = vec![backend.next().await, backend.next().await];
    let streamed = gateway.ask("m").open();
    let (streamed, stream) = tokio::join!(streamed, async { backend.next().await.stream() });
    let mut streamed = streamed.into_body();
    stream.send("half ");
    assert_eq!(
        streamed
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap(),
        "half "
    );
    let waiting: Vec<PendingResponse> = (0..20).map(|_| gateway.ask("m").send()).collect();
    gateway.depth(20).await;

    gateway.signal("TERM");
    for waiter in waiting {
        waiter.answer().await.assert_error(503, "shutting_down");
    }
    let health = gateway.get("/healthz").answer().await;
    assert_eq!(health.error(), (503, "shutting_down".to_owned()));
    gateway
        .ask("m")
        .answer()
        .await
        .assert_error(503, "shutting_down");
    let state = gateway.state().await;
    assert_eq!((state.depth(), state.running()), (0, 3));
    assert_eq!(state.rejected("shutting_down"), 21);
    assert!(running.iter().all(|sent| !sent.is_answered()));

    arrived.drain(..).for_each(|arrived| arrived.answer("done"));
    for sent in running {
        sent.answer().await.assert_ok("done");
    }
    assert_eq!(gateway.get("/healthz").answer().await.status, 503);
    stream.send("whole");
    assert_eq!(
        streamed
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap(),
        "whole"
    );
    stream.end();
    assert!(streamed.frame().await.is_none());
    assert_eq!(gateway.exit().await.code(), Some(0));
    assert_eq!(backend.counts().arrived, 3);
}

#[tokio::test]
async fn idle_gateway_exits_0_on_either_signal() {
    for signal in ["TERM", "INT"] {
        let backend = Backend::start().await;
        let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
        let mut gateway = setup.start().await;
        gateway.signal(signal);
        assert_eq!(gateway.exit().await.code(), Some(0), "{signal}");
    }
}

#[tokio::test]
async fn shutdown_rejects_requests_held_by_backpressure() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .queue("max_size = 1\noverflow = \"backpressure\"")
        .backend("gpu-1", &backend, 1, &["m"]);
    let mut gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    let waiting: Vec<PendingResponse> = (0..5).map(|_| gateway.ask("m").send()).collect();
    gateway.depth(1).await;
    gateway.signal("TERM");
    for waiter in waiting {
        waiter.answer().await.assert_error(503, "shutting_down");
    }
    arrived.answer("done");
    running.answer().await.assert_ok("done");
    assert_eq!(gateway.exit().await.code(), Some(0));
}

#[tokio::test]
async fn shutdown_ends_after_the_grace_period() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .arguments(&["--grace", "0.1"])
        .backend("gpu-1", &backend, 1, &["m"]);
    let mut gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    gateway.signal("TERM");
    assert_eq!(gateway.exit().await.code(), Some(0));
    arrived.disconnected().await;
    drop(running);
}

#[tokio::test]
async fn clients_that_have_not_begun_do_not_hold_up_the_shutdown() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .top("[server]\nheader_timeout_seconds = 3600\n")
        .arguments(&["--grace", "3600"])
        .backend("gpu-1", &backend, 1, &["m"]);
    let mut gateway = setup.start().await;
    let mut clients = Vec::new();
    for first in ["", "P"] {
        let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
        client.write_all(first.as_bytes()).await.unwrap();
        clients.push(client);
    }
    assert_eq!(gateway.get("/healthz").answer().await.status, 200);
    gateway.signal("TERM");
    assert_eq!(gateway.exit().await.code(), Some(0));
    for mut client in clients {
        let closed = timeout(TIMEOUT, client.read_to_end(&mut Vec::new())).await;
        _ = closed.expect("the connection stays open"); // a reset is fine, too
    }
}

#[tokio::test]
async fn a_second_signal_ends_the_grace_period() {
    for [first, second] in [["INT", "INT"], ["TERM", "TERM"], ["TERM", "INT"]] {
        let backend = Backend::start().await;
        let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
        let mut gateway = setup.start().await;
        let running = gateway.ask("m").send();
        let arrived = backend.next().await;
        gateway.signal(first);
        while gateway.get("/healthz").answer().await.status == 200 {}
        gateway.signal(second);
        assert_eq!(gateway.exit().await.code(), Some(0), "{first} {second}");
        arrived.disconnected().await;
        drop(running);
    }
}

#[tokio::test]
async fn responses_during_a_shutdown_close_their_connections() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let mut gateway = setup.start().await;
    let before = gateway.get("/healthz").answer().await;
    assert_eq!((before.status, before.header("connection")), (200, None));
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    gateway.signal("TERM");
    let late = loop {
        let late = gateway.ask("m").answer().await;
        if late.text().contains("shutting_down") {
            break late;
        }
    };
    assert_eq!(late.header("connection"), Some("close"));
    let http2 = gateway.client().http2().get("/healthz").answer().await;
    assert_eq!((http2.status, http2.header("connection")), (503, None));
    arrived.answer("done");
    let running = running.answer().await;
    running.assert_ok("done");
    assert_eq!(running.header("connection"), Some("close"));
    assert_eq!(gateway.exit().await.code(), Some(0));
}

/// Size of a large response, 16 MiB: more than all buffers between backend and client.
const LARGE: usize = 16 << 20;

/// A client that has requested a large response and read only its first bytes.
async fn slow_reader(gateway: &Gateway, backend: &Backend) -> TcpStream {
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    let body = r#"{"model":"m"}"#;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}",
        body.len()
    );
    let request = format!("{head}\r\n\r\n{body}");
    client.write_all(request.as_bytes()).await.unwrap();
    backend.next().await.answer(&"~".repeat(LARGE));
    let mut status = [0; 12];
    client.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    client
}

/// Reads a piece of a large response; returns the number of its body bytes, or `None` at the end.
async fn read(client: &mut TcpStream) -> Option<usize> {
    let mut piece = vec![0; 64 << 10];
    let read = timeout(TIMEOUT, client.read(&mut piece)).await;
    match read.expect("no data arrives") {
        Ok(0) | Err(_) => None,
        Ok(count) => Some(piece[..count].iter().filter(|&&byte| byte == b'~').count()),
    }
}

#[tokio::test]
async fn shutdown_delivers_responses_to_slow_readers_whole() {
    for hold in ["body", "headers"] {
        let backend = Backend::start().await;
        let setup = Setup::new().queue(&format!("hold = {hold:?}"));
        let setup = setup.backend("gpu-1", &backend, 1, &["m"]);
        let mut gateway = setup.start().await;
        let mut client = slow_reader(&gateway, &backend).await;
        let mut received = 0;
        while gateway.state().await.running() > 0 {
            received += read(&mut client).await.expect("the response ends early");
        }
        gateway.signal("TERM");
        sleep(Duration::from_secs(2)).await; // longer than the time for complete responses
        while let Some(more) = read(&mut client).await {
            received += more;
        }
        assert_eq!(received, LARGE, "{hold}");
        assert_eq!(gateway.exit().await.code(), Some(0));
        assert_eq!(gateway.logged(" WARN "), 0);
    }
}

#[tokio::test]
async fn connections_cut_at_shutdown_are_counted_in_log() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .arguments(&["--grace", "1.5"])
        .queue("hold = \"headers\"")
        .backend("gpu-1", &backend, 2, &["m"]);
    let mut gateway = setup.start().await;
    let clients = [
        slow_reader(&gateway, &backend).await,
        slow_reader(&gateway, &backend).await,
    ];
    gateway.idle().await;
    gateway.signal("TERM");
    assert_eq!(gateway.exit().await.code(), Some(0));
    gateway.logs(&["WARN", "grace", "connections=2"]).await;
    drop(clients);
}

#[cfg(unix)]
#[tokio::test]
async fn a_signal_ends_a_start_whose_file_hangs() {
    let pipe = std::env::temp_dir().join(format!("tower-triage-{}.pipe", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let mut gateway = tokio::process::Command::new(binary())
        .arg("--config")
        .arg(&pipe)
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // This opens once the gateway reads the file.
    let path = pipe.clone();
    let opened = spawn_blocking(move || std::fs::File::options().write(true).open(path));
    let opened = timeout(TIMEOUT, opened)
        .await
        .expect("the file is not read");
    let pid = gateway.id().unwrap().to_string();
    let killed = std::process::Command::new("kill").arg(&pid).status();
    assert!(killed.unwrap().success());
    let ended = timeout(TIMEOUT, gateway.wait()).await;
    assert!(ended.expect("the gateway does not end").unwrap().success());
    drop(opened);
    let _ = std::fs::remove_file(&pipe);
}
