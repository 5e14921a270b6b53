//! Requests that pages send from a browser: those of other sites are refused, unless the configuration names them.

use crate::backend::Backend;
use crate::client::ClientRequest;
use crate::process::{Gateway, Setup};

const PAGE: &str = "https://chat.example";

fn named() -> Setup {
    Setup::new().top(&format!("[server]\nallowed_origins = [{PAGE:?}]"))
}

/// Builds the request that a browser sends before a request of another site that has these headers.
fn preflight(gateway: &Gateway, origin: &str, headers: &str) -> ClientRequest {
    let request = gateway.client().options("/v1/chat/completions");
    request
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", headers)
}

#[tokio::test]
async fn requests_of_other_sites_reach_no_backend() {
    let backend = Backend::replying("fine").await;
    for setup in [Setup::new(), named()] {
        let gateway = setup.backend("a", &backend, 1, &["m"]).start().await;
        let evil = "https://evil.example";
        for refused in [
            gateway.ask("m").header("origin", evil),
            gateway.ask("m").header("origin", "null"),
            gateway.ask("m").header("sec-fetch-site", "cross-site"),
            gateway.get("/v1/models").header("origin", evil),
            gateway
                .get("/healthz")
                .header("sec-fetch-site", "cross-site"),
            preflight(&gateway, evil, "content-type"),
        ] {
            let refused = refused.answer().await;
            refused.assert_error(403, "cross_site");
            assert!(refused.message().contains("allowed_origins"), "{refused:?}");
            assert_eq!(refused.header("access-control-allow-origin"), None);
        }
    }
    assert_eq!(backend.counts().arrived, 0);
}

#[tokio::test]
async fn requests_of_the_own_site_are_served() {
    let backend = Backend::replying("fine").await;
    let gateway = Setup::new().backend("a", &backend, 1, &["m"]).start().await;
    let own = format!("http://{}", gateway.addr());
    for served in [
        gateway.ask("m").header("origin", &own),
        gateway.ask("m").header("sec-fetch-site", "same-origin"),
        // A proxy has replaced the host.
        gateway
            .ask("m")
            .header("origin", PAGE)
            .header("sec-fetch-site", "same-origin"),
        gateway.ask("m").header("sec-fetch-site", "none"),
    ] {
        served.answer().await.assert_ok("fine");
    }
}

#[tokio::test]
async fn pages_of_named_origins_get_cors_answers() {
    let backend = Backend::replying("fine").await;
    let gateway = named().backend("a", &backend, 1, &["m"]).start().await;
    let headers = "authorization,content-type,x-priority,x-stainless-lang,x-stainless-retry-count";
    let allowed = preflight(&gateway, PAGE, headers).answer().await;
    assert_eq!(allowed.status, 200);
    assert_eq!(allowed.header("access-control-allow-origin"), Some(PAGE));
    assert_eq!(
        allowed.header("access-control-allow-headers"),
        Some(headers)
    );
    let methods = allowed.header("access-control-allow-methods").unwrap();
    for method in ["POST", "DELETE"] {
        assert!(methods.contains(method), "{methods}");
    }

    let by_page = |request: ClientRequest| {
        let request = request.header("origin", PAGE);
        request.header("sec-fetch-site", "cross-site").answer()
    };
    let answer = by_page(gateway.ask("m")).await;
    answer.assert_ok("fine");
    let unknown = by_page(gateway.ask("gpt-5")).await;
    unknown.assert_error(404, "model_not_found");
    let models = by_page(gateway.get("/v1/models")).await;
    for answer in [answer, unknown, models] {
        assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE));
        assert_eq!(answer.header("access-control-expose-headers"), Some("*"));
        let vary = answer.header("vary").unwrap();
        assert!(vary.contains("origin"), "{vary}");
    }
    let plain = gateway.ask("m").answer().await;
    plain.assert_ok("fine");
    assert_eq!(plain.header("access-control-allow-origin"), None);
    assert!(plain.header("vary").unwrap().contains("origin"));
}

#[tokio::test]
async fn a_stream_to_a_named_origin_arrives_in_pieces() {
    let backend = Backend::start().await;
    let gateway = named().backend("a", &backend, 1, &["m"]).start().await;
    let request = gateway.ask("m").header("origin", PAGE).open();
    let (mut response, stream) = tokio::join!(request, async {
        let stream = backend.next().await.stream();
        stream.send("data: one\n\n");
        stream
    });
    let read = crate::waiting_status::reads(&mut response, "data: one\n\n").await;
    assert_eq!(read, "data: one\n\n");
    stream.end();
}

#[tokio::test]
async fn what_no_browser_sends_as_origin_is_refused() {
    for origin in [
        "*",
        "null",
        "chat.example",
        "https://chat.example/",
        "https://Chat.example",
        "https://chat.example:443",
        "https://me@chat.example",
        "https://*.example",
    ] {
        let config = format!("[server]\nallowed_origins = [{origin:?}]");
        let (message, file) = Gateway::refusal(&config).await;
        for word in [&file, "line 2,", "allowed_origins", origin] {
            assert!(message.contains(word), "{word}\n{message}");
        }
    }
    let (message, _) = Gateway::refusal("[server]\nallowed_origin = []").await;
    assert!(message.contains("line 2,"), "{message}");
}
