//! Tests of `[server] tls`: handshakes, protocols, and certificates that change.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ProtocolVersion, version};

use crate::backend::Backend;
use crate::process::{Setup, TIMEOUT, output_with};
use crate::tls_support::{Authority, Transport, connect_with, shown};

/// The configuration of a gateway with TLS, these further lines of `[server]`, and `[admin]`.
fn setup(authority: &Authority, backend: &Backend, server: &str) -> Setup {
    let server = format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[server]\n{server}\n{}",
        authority.line()
    );
    let setup = Setup::new().top(&server).queue("max_size = 1000");
    setup.backend("gpu-1", backend, 4, &["m"])
}

fn chat() -> Request<Full<Bytes>> {
    let request = Request::builder()
        .method(Method::POST)
        .header("host", "localhost")
        .uri("https://localhost/v1/chat/completions");
    request.body(Full::from(r#"{"model":"m"}"#)).unwrap()
}

/// Asks over a connection of its own, by HTTP/2 if the gateway has chosen it.
async fn ask(socket: TlsStream<TcpStream>) -> hyper::Result<(StatusCode, Bytes)> {
    let is_http2 = socket.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(socket);
    let response = if is_http2 {
        let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        client.send_request(chat()).await?
    } else {
        let (mut client, connection) = http1::handshake(io).await?;
        tokio::spawn(connection);
        client.send_request(chat()).await?
    };
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

async fn assert_answered(socket: TlsStream<TcpStream>) {
    let answer = timeout(TIMEOUT, ask(socket)).await.expect("no answer");
    assert_eq!(answer.unwrap(), (StatusCode::OK, "fine".into()));
}

#[tokio::test]
async fn both_versions_and_protocols_are_served() {
    let (authority, backend) = (Authority::new(), Backend::replying("fine").await);
    let gateway = setup(&authority, &backend, "").start().await;
    for (version, number) in [
        (&version::TLS12, ProtocolVersion::TLSv1_2),
        (&version::TLS13, ProtocolVersion::TLSv1_3),
    ] {
        for (offered, chosen) in [
            (&["http/1.1", "h2"][..], Some("h2")),
            (&["http/1.1"], Some("http/1.1")),
            (&[], None),
        ] {
            let mut config = authority.client(&[version]);
            config.alpn_protocols = offered.iter().map(|name| name.as_bytes().into()).collect();
            let socket = connect_with(config, gateway.addr()).await;
            let (_, session) = socket.get_ref();
            assert_eq!(session.protocol_version(), Some(number));
            assert_eq!(session.alpn_protocol(), chosen.map(str::as_bytes));
            assert_answered(socket).await;
        }
    }
    gateway.logs(&["listening on https://127.0.0.1:"]).await;
}

#[tokio::test]
async fn a_client_without_tls_is_not_served() {
    let (authority, backend) = (Authority::new(), Backend::start().await);
    let gateway = setup(&authority, &backend, "").start().await;
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let closed = timeout(TIMEOUT, client.read_to_end(&mut answer)).await;
    _ = closed.expect("it stays open");
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn a_pair_that_does_not_match_is_refused() {
    let (one, other) = (Authority::new(), Authority::new());
    let tls = format!(
        "tls = {{ cert = {:?}, key = {:?} }}",
        one.cert(),
        other.key()
    );
    let refused = Setup::new().top(&format!("[server]\n{tls}"));
    let error = refused.refusal().await;
    for part in [
        &one.cert(),
        &other.key(),
        Path::new("[server]"),
        Path::new("line 2"),
    ] {
        let part = part.to_str().unwrap();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_handshake_without_an_end_gives_its_place_back() {
    let (authority, backend) = (Authority::new(), Backend::replying("fine").await);
    let server = "workers = 1\nheader_timeout_seconds = 2\nmax_connections = 1";
    let gateway = setup(&authority, &backend, server).start().await;
    // The begin of a record with a handshake message of 512 bytes.
    for half in [
        &b""[..],
        b"\x16",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
        client.write_all(half).await.unwrap();
        assert_answered(authority.connect(gateway.addr(), &[]).await).await;
        let closed = timeout(TIMEOUT, client.read_to_end(&mut Vec::new())).await;
        _ = closed.expect("the connection stays open");
    }
}

#[tokio::test]
async fn a_handshake_does_not_hold_up_the_shutdown() {
    let (authority, backend) = (Authority::new(), Backend::start().await);
    let setup = setup(&authority, &backend, "header_timeout_seconds = 3600");
    let mut gateway = setup.arguments(&["--grace", "3600"]).start().await;
    let running = tokio::spawn(ask(authority.connect(gateway.addr(), &["h2"]).await));
    let arrived = backend.next().await;
    let mut stalled = TcpStream::connect(gateway.addr()).await.unwrap();
    stalled.write_all(b"\x16").await.unwrap();
    gateway.signal("TERM");
    gateway.logs(&["shutting down"]).await;
    arrived.answer("fine");
    let answer = timeout(TIMEOUT, running).await.unwrap().unwrap();
    assert_eq!(answer.unwrap(), (StatusCode::OK, "fine".into()));
    assert!(gateway.exit().await.success());
}

/// Waits until new connections get `certificate`.
async fn until_shown(addr: &str, authority: &Authority, certificate: &CertificateDer<'_>) {
    let end = Instant::now() + TIMEOUT;
    while shown(&authority.connect(addr, &[]).await) != certificate {
        assert!(Instant::now() < end, "the certificate is not used");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Clients that ask over and over, half of them over connections that they keep.
struct Load {
    stop: watch::Sender<bool>,
    clients: JoinSet<usize>,
}

impl Load {
    fn start(authority: &Arc<Authority>, addr: &str) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut clients = JoinSet::new();
        for _ in 0..4 {
            let [one, other] = [(); 2].map(|()| Arc::clone(authority));
            clients.spawn(over_new_connections(one, addr.to_owned(), stopped.clone()));
            clients.spawn(over_a_kept_one(other, addr.to_owned(), stopped.clone()));
        }
        Self { stop, clients }
    }

    /// Asserts that every client has got all its answers.
    async fn end(self) {
        self.stop.send(true).unwrap();
        let answered = timeout(TIMEOUT, self.clients.join_all()).await;
        let answered = answered.expect("an answer is missing");
        assert!(answered.iter().all(|answers| *answers > 1), "{answered:?}");
    }
}

async fn over_new_connections(
    authority: Arc<Authority>,
    addr: String,
    stopped: watch::Receiver<bool>,
) -> usize {
    let mut answers = 0;
    while !*stopped.borrow() {
        let protocol = ["h2", "http/1.1"][answers % 2];
        assert_answered(authority.connect(&addr, &[protocol]).await).await;
        answers += 1;
    }
    answers
}

async fn over_a_kept_one(
    authority: Arc<Authority>,
    addr: String,
    stopped: watch::Receiver<bool>,
) -> usize {
    let io = TokioIo::new(authority.connect(&addr, &["h2"]).await);
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let mut answers = 0;
    while !*stopped.borrow() {
        let response = client.send_request(chat()).await.unwrap();
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "fine");
        answers += 1;
    }
    answers
}

#[tokio::test]
async fn a_changed_certificate_is_used_and_loses_no_request() {
    let (authority, backend) = (Arc::new(Authority::new()), Backend::replying("fine").await);
    let gateway = setup(&authority, &backend, "").start().await;
    let load = Load::start(&authority, gateway.addr());
    until_shown(gateway.addr(), &authority, &authority.issue()).await;
    gateway
        .logs(&["INFO", "the certificate of [server] has changed"])
        .await;
    let reloaded = authority.issue();
    gateway.signal("HUP");
    until_shown(gateway.addr(), &authority, &reloaded).await;
    load.end().await;
}

#[tokio::test]
async fn a_broken_certificate_leaves_the_old_one() {
    let (authority, backend) = (Authority::new(), Backend::replying("fine").await);
    let gateway = setup(&authority, &backend, "").start().await;
    let first = shown(&authority.connect(gateway.addr(), &[]).await).clone();
    fs::write(authority.cert(), "-----BEGIN CERTIFICATE-----\nMII").unwrap();
    gateway
        .logs(&[
            "ERROR",
            "[server]",
            "no whole certificate",
            "stays as it was",
        ])
        .await;
    gateway.signal("HUP");
    gateway
        .logs(&[
            "ERROR",
            "line ",
            "no whole certificate",
            "nothing has changed",
        ])
        .await;
    let socket = authority.connect(gateway.addr(), &[]).await;
    assert_eq!(*shown(&socket), first);
    assert_answered(socket).await;
    until_shown(gateway.addr(), &authority, &authority.issue()).await;
}

#[tokio::test]
async fn a_reload_changes_the_files_but_does_not_turn_tls_off() {
    let backend = Backend::replying("fine").await;
    let [one, other] = [(); 2].map(|()| Authority::new());
    let gateway = setup(&one, &backend, "").start().await;
    gateway.reload(&setup(&other, &backend, ""));
    gateway
        .logs(&["INFO", "the certificate of [server] has changed"])
        .await;
    assert_answered(other.connect(gateway.addr(), &[]).await).await;
    until_shown(gateway.addr(), &other, &other.issue()).await;

    let plain = Setup::new().backend("gpu-1", &backend, 4, &["m"]);
    gateway.reload(&plain);
    gateway
        .logs(&["WARN", "`[server] tls` has changed", "after a restart"])
        .await;
    assert_answered(other.connect(gateway.addr(), &[]).await).await;
}

#[tokio::test]
async fn the_admin_address_has_tls_of_its_own() {
    let backend = Backend::replying("fine").await;
    let transport = Transport::Tls(Authority::new().into());
    let admin = format!("[admin]\nlisten = \"127.0.0.1:0\"\n{}", transport.line());
    let setup = Setup::new().top(&admin).over(&transport);
    let gateway = setup.backend("gpu-1", &backend, 4, &["m"]).start().await;
    gateway.ask("m").answer().await.assert_ok("fine");
    gateway.idle().await; // asks the admin address
    let Transport::Tls(authority) = &transport else {
        unreachable!()
    };
    let addr = gateway.admin_url().strip_prefix("https://").unwrap();
    until_shown(addr, authority, &authority.issue()).await;
    gateway
        .logs(&["INFO", "the certificate of [admin] has changed"])
        .await;

    let root = authority.root().to_str().unwrap().to_owned();
    for (roots, said) in [
        (vec![("SSL_CERT_FILE".to_owned(), root)], "durable"),
        (Vec::new(), "ertificate"),
    ] {
        let arguments = ["requests", "ls", "--admin", gateway.admin_url()];
        let (code, _, problem) = output_with(&roots, &arguments).await;
        assert_eq!(code, Some(1));
        assert!(problem.contains(said), "{said}: {problem}");
    }
}

#[tokio::test]
async fn a_websocket_passes_over_tls() {
    let (authority, backend) = (Authority::new(), TcpListener::bind("127.0.0.1:0").await);
    let backend = backend.unwrap();
    let url = format!("http://{}", backend.local_addr().unwrap());
    let setup = Setup::new().top(&format!("[server]\n{}", authority.line()));
    let gateway = setup.backend_at("gpu-1", &url, 1, &["m"]).start().await;
    let mut client = authority.connect(gateway.addr(), &["http/1.1"]).await;
    let request = "GET /v1/realtime?model=m HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n\
                   upgrade: websocket\r\nsec-websocket-key: k\r\nsec-websocket-version: 13\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut server, _) = timeout(TIMEOUT, backend.accept()).await.unwrap().unwrap();
    read_until(&mut server, "\r\n\r\n").await;
    let switched =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    server.write_all(switched.as_bytes()).await.unwrap();
    read_until(&mut client, "\r\n\r\n").await;
    client.write_all(b"to the backend;").await.unwrap();
    read_until(&mut server, ";").await;
    server.write_all(b"to the client;").await.unwrap();
    read_until(&mut client, "to the client;").await;
    drop(client);
    read_until(&mut server, "").await;
}

/// Reads until `end` has come, or to the end of the stream if it is empty.
async fn read_until(socket: &mut (impl AsyncRead + Unpin), end: &str) {
    let mut text = Vec::new();
    let read = async {
        while end.is_empty() || !text.ends_with(end.as_bytes()) {
            if socket.read_buf(&mut text).await.unwrap_or(0) == 0 {
                return end.is_empty();
            }
        }
        true
    };
    let read = timeout(TIMEOUT, read).await;
    assert!(read.expect("nothing comes"), "{end:?} does not come");
}
