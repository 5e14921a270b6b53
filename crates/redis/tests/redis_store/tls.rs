//! The store on a Redis that speaks TLS.

use std::process::{Command, Stdio};

use super::redis_server::free_port;
use super::*;

const URL: &str = "TRIAGE_TEST_TLS_URL";

/// The body of a process that trusts the certificate; nothing in the test's own process.
#[test]
fn trusting_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = RedisStore::connect(RedisConfig::new(url).store(short())).unwrap();
        let id = store_one(&store, "").await;
        // The connection that waits for news has to be there, too.
        assert_eq!(take(&store).await.lease.id(), id);
    });
}

#[tokio::test]
async fn a_store_with_tls_trusts_only_listed_certificates() {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let server = Server::start();
    let file = |name: &str, pem: String| {
        let path = server.folder.join(name);
        std::fs::write(&path, pem).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let certificate = file("certificate.pem", own.cert.pem());
    let key = file("key.pem", own.signing_key.serialize_pem());
    let port = free_port();
    let settings = [
        ["tls-cert-file", &certificate],
        ["tls-key-file", &key],
        ["tls-ca-cert-file", &certificate],
        ["tls-auth-clients", "no"],
        ["tls-port", &port.to_string()],
    ];
    for [name, value] in settings {
        let reply = server.ask(&format!("CONFIG SET {name} {value}")).unwrap();
        assert!(reply.starts_with("+OK"), "{name}: {reply}");
    }
    let url = format!("rediss://localhost:{port}");
    let trusting = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tls::trusting_process"])
        .env(URL, &url)
        .env("SSL_CERT_FILE", &certificate)
        .stdout(Stdio::null())
        .status();
    assert!(trusting.unwrap().success());

    let stranger = RedisStore::connect(RedisConfig::new(url).store(short())).unwrap();
    let refused = async {
        loop {
            let error = stranger.enqueue(request("")).await.unwrap_err();
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
            // On a slow machine, the connection may time out.
            if error.to_string().contains("certificate") {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    soon(refused).await;
}
