//! What an endpoint gets in place of the client's headers, and nobody else ever sees.

use std::io;
use std::sync::{Arc, Mutex};

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use tower_triage::endpoints::{Endpoint, Endpoints, Registry};
use tower_triage::upstream::Forward;
use tracing_subscriber::filter::LevelFilter;

use super::upstream::Upstream;
use super::{OK, in_service, post, send, text};

const SECRET: &str = "sk-secret";

fn keyed(url: String) -> Endpoint {
    let key = HeaderValue::try_from(format!("Bearer {SECRET}")).unwrap();
    Endpoint::new("gpu-1", url.parse().unwrap())
        .header(AUTHORIZATION, HeaderValue::from_static("Bearer outdated"))
        .header(AUTHORIZATION, key)
        .header(
            HeaderName::from_static("x-org"),
            HeaderValue::from_static(SECRET),
        )
}

#[tokio::test]
async fn an_endpoints_own_headers_replace_the_clients_there_and_nowhere_else() {
    let keyed_upstream = Upstream::bind().await;
    let plain_upstream = Upstream::bind().await;
    let with_key = in_service(keyed(format!("http://{}", keyed_upstream.addr())));
    let without = super::endpoint(format!("http://{}", plain_upstream.addr()));
    let forward = Forward::new();
    for (upstream, to, key) in [
        (&keyed_upstream, &with_key, format!("bearer {SECRET}")),
        (&plain_upstream, &without, "bearer client".to_owned()),
    ] {
        let mut request = post(to, "{}");
        let client = HeaderValue::from_static("Bearer client");
        request.headers_mut().insert(AUTHORIZATION, client);
        let serve = async {
            let mut connection = upstream.accept().await;
            let (head, _) = connection.request().await;
            connection.send(OK).await;
            head
        };
        let (head, response) = tokio::join!(serve, send(&forward, request));
        let lines = head.lines();
        let keys: Vec<_> = lines
            .filter(|line| line.starts_with("authorization"))
            .collect();
        assert_eq!(keys, [format!("authorization: {key}")]);
        assert_eq!(text(response).await, "ok");
    }
}

#[test]
fn nothing_that_is_printed_shows_an_endpoints_own_headers() {
    let endpoint = keyed("http://127.0.0.1:9".into());
    let registry = Registry::new(vec![endpoint.clone()]).unwrap();
    let endpoints = Endpoints::new(registry.clone());
    let to = endpoints.endpoints()[0].clone();
    for printed in [
        format!("{endpoint:#?}"),
        format!("{registry:?}"),
        format!("{endpoints:?}"),
        format!("{to:?}"),
        format!("{:?}", post(&in_service(endpoint.clone()), "{}")),
    ] {
        assert!(!printed.contains(SECRET), "{printed}");
    }
}

#[tokio::test]
async fn no_log_shows_an_endpoints_own_headers() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(move || written.clone())
        .finish();
    // With only one subscriber in the process, `tracing` asks the thread that comes to a line first whether
    // anybody is interested, and for the tests beside this one nobody is.
    let _another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let _guard = tracing::subscriber::set_default(subscriber);

    let upstream = Upstream::bind().await;
    let to = in_service(keyed(format!("http://{}", upstream.addr())));
    let forward = Forward::new();
    let connection = upstream
        .accept_while(send(&forward, post(&to, "{}")), OK)
        .await;
    drop((connection, upstream));
    let response = send(&forward, post(&to, "{}")).await;
    assert_eq!(response.status(), 502);

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("no answer from the endpoint"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
