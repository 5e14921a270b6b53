//! Headers of an endpoint's own: they replace the client's there, and appear nowhere else.

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use tower_triage::endpoints::{Endpoint, Endpoints, Registry};
use tower_triage::upstream::Forward;
use tracing_subscriber::filter::LevelFilter;

use super::log::Log;
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
async fn endpoint_headers_replace_the_clients_at_that_endpoint_only() {
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
fn debug_output_hides_endpoint_headers() {
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
async fn logs_hide_endpoint_headers() {
    let log = Log::default();
    let _installed = log.install(LevelFilter::TRACE);
    let upstream = Upstream::bind().await;
    let to = in_service(keyed(format!("http://{}", upstream.addr())));
    let forward = Forward::new();
    let connection = upstream
        .accept_while(send(&forward, post(&to, "{}")), OK)
        .await;
    drop((connection, upstream));
    let response = send(&forward, post(&to, "{}")).await;
    assert_eq!(response.status(), 502);

    let log = log.take();
    assert!(log.contains("no answer from the endpoint"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}
