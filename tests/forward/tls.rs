//! TLS: which certificates an `https://` endpoint must have to get a request.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{pause, resume, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;
use tower_triage::endpoints::NoResponse;
use tower_triage::upstream::{Forward, TlsError};

use super::early_answers::{LARGE, TOO_LARGE, TRIES, read_head};
use super::http2::http2;
use super::http2_frames::Frames;
use super::upstream::{Connection, Upstream};
use super::{Failure, OK, SOON, endpoint, post, send, text};

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// The TLS configuration of a server with a certificate for `name`. It offers HTTP/2, too.
    fn server(&self, name: &str) -> TlsAcceptor {
        self.server_of(name, &["h2", "http/1.1"])
    }

    /// The TLS configuration of a server with a certificate for `name`, which offers these protocols.
    fn server_of(&self, name: &str, protocols: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        acceptor(certificate.into(), &key, protocols)
    }
}

fn acceptor(
    certificate: CertificateDer<'static>,
    key: &KeyPair,
    protocols: &[&str],
) -> TlsAcceptor {
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = protocols.collect();
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(
    upstream: &Upstream,
    acceptor: &TlsAcceptor,
) -> io::Result<Connection<TlsStream<TcpStream>>> {
    let Connection(stream) = upstream.accept().await;
    acceptor.accept(stream).await.map(Connection)
}

#[tokio::test]
async fn a_certificate_for_name_or_address_is_accepted() {
    let authority = Authority::new();
    let forward = Forward::new();
    let forward = forward.root_certificates(authority.pem.as_bytes()).unwrap();
    for (host, asked_for) in [("localhost", Some("localhost")), ("127.0.0.1", None)] {
        let upstream = Upstream::bind().await;
        let to = endpoint(format!("https://{host}:{}/base", upstream.addr().port()));
        let serve = async {
            let acceptor = authority.server(host);
            let mut connection = accept(&upstream, &acceptor).await.unwrap();
            let (_, tls) = connection.0.get_ref();
            assert_eq!(tls.alpn_protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(tls.server_name(), asked_for);
            let (head, body) = connection.request().await;
            connection.send(OK).await;
            (head, body)
        };
        let ask = async { text(send(&forward, post(&to, "{}")).await).await };
        let ((head, body), answer) = tokio::join!(serve, ask);
        assert!(head.starts_with("post /base/v1/chat/completions"), "{head}");
        assert!(head.contains(&format!("host: {host}:")), "{head}");
        assert_eq!((&*body, &*answer), ("{}", "ok"));
    }
}

#[tokio::test]
async fn http_2_over_tls_is_agreed_by_alpn() {
    let authority = Authority::new();
    let forward = Forward::new();
    let forward = forward.root_certificates(authority.pem.as_bytes()).unwrap();
    let upstream = Upstream::bind().await;
    let to = http2(format!("https://localhost:{}", upstream.addr().port()));
    let serve = async {
        let acceptor = authority.server("localhost");
        let connection = accept(&upstream, &acceptor).await.unwrap();
        let (_, tls) = connection.0.get_ref();
        assert_eq!(tls.alpn_protocol(), Some(&b"h2"[..]));
        let mut frames = Frames::begin(connection.0).await;
        for _ in 0..2 {
            let (stream, _) = frames.request().await;
            frames.answer(stream, "ok").await;
        }
        frames
    };
    let ask = async || text(send(&forward, post(&to, "{}")).await).await;
    let (_frames, answers) = tokio::join!(serve, async { [ask().await, ask().await] });
    assert_eq!(answers, ["ok", "ok"]);
}

#[tokio::test]
async fn an_endpoint_that_does_not_agree_to_http_2_is_unreachable() {
    let authority = Authority::new();
    let forward = Forward::new();
    let forward = forward.root_certificates(authority.pem.as_bytes()).unwrap();
    for (protocols, said) in [(&["http/1.1"][..], "'gpu-1'"), (&[], "`http2` must be off")] {
        let upstream = Upstream::bind().await;
        let to = http2(format!("https://localhost:{}", upstream.addr().port()));
        let acceptor = authority.server_of("localhost", protocols);
        let serve = async { accept(&upstream, &acceptor).await };
        let (_connection, response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
        let failure = Failure::read(response).await;
        failure.is(502, "upstream_unreachable", NoResponse::Unreachable);
        assert!(failure.message.contains(said), "{}", failure.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_answer_over_tls_arrives() {
    let authority = Authority::new();
    let acceptor = authority.server("localhost");
    let upstream = Upstream::bind().await;
    let to = endpoint(format!("https://localhost:{}", upstream.addr().port()));
    let forward = Forward::new();
    let forward = forward.root_certificates(authority.pem.as_bytes()).unwrap();
    for _ in 0..TRIES {
        let serve = async {
            let mut connection = accept(&upstream, &acceptor).await.unwrap();
            // Bytes not flushed before the close would be lost.
            connection.0.get_ref().0.set_nodelay(true).unwrap();
            read_head(&mut connection).await;
            connection.send(TOO_LARGE).await;
            connection.0.flush().await.unwrap();
        };
        let request = Request::post("/").extension(to.clone());
        let body = Full::from(Bytes::from(vec![0; LARGE]));
        let ask = send(&forward, request.body(body).unwrap());
        let ((), response) = tokio::join!(serve, ask);
        assert_eq!(response.status(), 413);
        assert_eq!(text(response).await, "too large");
    }
}

#[tokio::test]
async fn a_listed_self_signed_certificate_is_trusted() {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let acceptor = acceptor(own.cert.der().clone(), &own.signing_key, &["http/1.1"]);
    let forward = Forward::new();
    let forward = forward
        .root_certificates(own.cert.pem().as_bytes())
        .unwrap();
    let upstream = Upstream::bind().await;
    let to = endpoint(format!("https://localhost:{}", upstream.addr().port()));
    let serve = async { accept(&upstream, &acceptor).await.unwrap().answer(OK).await };
    let ((), response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    assert_eq!(text(response).await, "ok");
}

#[tokio::test]
async fn an_endpoint_without_a_trusted_certificate_gets_nothing() {
    let (trusted, stranger) = (Authority::new(), Authority::new());
    let forward = Forward::new();
    let forward = forward.root_certificates(trusted.pem.as_bytes()).unwrap();
    for (issuer, name) in [(&stranger, "localhost"), (&trusted, "example.com")] {
        let upstream = Upstream::bind().await;
        let to = endpoint(format!("https://localhost:{}", upstream.addr().port()));
        let serve = async {
            // With TLS 1.3 the server has finished its handshake before it learns of the refusal.
            if let Ok(mut connection) = accept(&upstream, &issuer.server(name)).await {
                use tokio::io::AsyncReadExt;
                assert!(connection.0.read(&mut [0]).await.is_err());
            }
        };
        let ((), response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
        let failure = Failure::read(response).await;
        failure.is(502, "upstream_unreachable", NoResponse::Unreachable);
    }
}

#[tokio::test]
async fn an_endpoint_that_does_not_speak_tls_is_unreachable() {
    let upstream = Upstream::bind().await;
    let to = endpoint(format!("https://{}", upstream.addr()));
    let forward = only_strangers(Forward::new());
    let serve = async {
        let mut connection = upstream.accept().await;
        connection.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        connection
    };
    let (_connection, response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    let failure = Failure::read(response).await;
    failure.is(502, "upstream_unreachable", NoResponse::Unreachable);
}

#[tokio::test]
async fn a_handshake_without_end_times_out() {
    for (limit, said) in [(None, "within 10 s"), (Some(2_500), "within 2.5 s")] {
        let upstream = Upstream::bind().await;
        let to = endpoint(format!("https://{}", upstream.addr()));
        let mut forward = only_strangers(Forward::new());
        if let Some(limit) = limit {
            forward = forward.connect_timeout(Duration::from_millis(limit));
        }
        let answer = tokio::spawn(forward.oneshot(post(&to, "{}")));
        let connection = upstream.accept().await;

        pause();
        let response = answer.await.unwrap().unwrap();
        resume();
        let failure = Failure::read(response).await;
        failure.is(504, "upstream_connect_timeout", NoResponse::ConnectTimeout);
        assert!(failure.message.contains(said), "{}", failure.message);
        timeout(SOON, connection.closed())
            .await
            .expect("the connection is closed");
    }
}

#[tokio::test]
async fn hanging_up_during_the_handshake_ends_it() {
    let upstream = Upstream::bind().await;
    let to = endpoint(format!("https://{}", upstream.addr()));
    let answer = tokio::spawn(only_strangers(Forward::new()).oneshot(post(&to, "{}")));
    let connection = upstream.accept().await;
    answer.abort();
    timeout(SOON, connection.closed())
        .await
        .expect("the connection is closed");
}

#[test]
fn a_bundle_without_certificates_is_refused() {
    let refused = Forward::<String>::new().root_certificates(b"");
    assert_eq!(refused.err(), Some(TlsError::NoCertificate));
}

/// Trusts an authority that signed for no endpoint.
fn only_strangers<B>(forward: Forward<B>) -> Forward<B>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    let stranger = Authority::new();
    forward.root_certificates(stranger.pem.as_bytes()).unwrap()
}

/// The system's roots are read once per process: each case is a process of its own.
#[tokio::test]
async fn without_system_roots_only_https_is_unreachable() {
    let authority = Authority::new();
    let roots = format!("{}/forward-roots.pem", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&roots, &authority.pem).unwrap();
    let missing = format!("{}/no-such-file.pem", env!("CARGO_TARGET_TMPDIR"));

    let secure = Upstream::bind().await;
    let plain = Upstream::bind().await;
    let acceptor = authority.server("127.0.0.1");
    let serve = async {
        loop {
            tokio::select! {
                connection = accept(&secure, &acceptor) => connection.unwrap().answer(OK).await,
                mut connection = plain.accept() => connection.answer(OK).await,
            }
        }
    };
    let ask = async {
        for (roots, url, answer) in [
            (&roots, format!("https://{}", secure.addr()), "ok"),
            (
                &missing,
                format!("https://{}", secure.addr()),
                "no root certificates",
            ),
            (&missing, format!("http://{}", plain.addr()), "ok"),
        ] {
            let child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "--ignored",
                    "--nocapture",
                    "tls::asks_in_a_process_of_its_own",
                ])
                .env("SSL_CERT_FILE", roots)
                .env_remove("SSL_CERT_DIR")
                .env(ASK, &url)
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .output()
                .await
                .unwrap();
            let said = String::from_utf8(child.stdout).unwrap();
            assert!(child.status.success(), "{said}");
            assert!(said.contains(&format!("answer: {answer}")), "{url}: {said}");
        }
    };
    tokio::select! {
        () = ask => {}
        () = serve => {}
    }
}

/// The URL that a process of its own is to ask.
const ASK: &str = "FORWARD_TEST_ASK";

#[tokio::test]
#[ignore = "run by another test, in a process of its own"]
async fn asks_in_a_process_of_its_own() {
    let Ok(url) = std::env::var(ASK) else { return };
    let response = send(&Forward::new(), post(&endpoint(url), "{}")).await;
    let answer = match response.status().as_u16() {
        200 => text(response).await,
        _ => {
            let failure = Failure::read(response).await;
            failure.is(502, "upstream_unreachable", NoResponse::Unreachable);
            failure.message.rsplit(": ").next().unwrap().to_owned()
        }
    };
    println!("answer: {answer}");
}
