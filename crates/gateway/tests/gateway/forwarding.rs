//! Tests of forwarding: what backends receive, what clients receive, and disconnects on either side.

use http::Response;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::backend::{Backend, status};
use crate::client::PendingResponse;
use crate::durable_support::Folder;
use crate::process::{Gateway, Setup};

/// A gateway without retries and ejection.
async fn gateway(backend: &Backend, slots: u32) -> Gateway {
    let setup = Setup::new()
        .routing("max_retries = 0\neject_after = 0")
        .backend("gpu-1", backend, slots, &["m"]);
    setup.start().await
}

/// Asserts that the slot is free: the next request is served.
async fn assert_serves(gateway: &Gateway, backend: &Backend) {
    let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
        backend.next().await.answer("served");
    });
    answer.assert_ok("served");
    gateway.idle().await;
}

#[tokio::test]
async fn json_is_not_sent_as_url_encoded_fields() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let plain = gateway(&backend, 1).await;
    let storing = folder.setup("", &backend).start().await;
    let body = r#"{"model":"m","x":"&model=other&"}"#;
    for (gateway, prefer) in [(&plain, ""), (&storing, ""), (&storing, "wait=30")] {
        for (sent, expected) in [
            ("application/x-www-form-urlencoded", "application/json"),
            (
                "Application/X-WWW-Form-URLEncoded;charset=utf-8",
                "application/json",
            ),
            ("text/plain", "text/plain"),
            (
                "application/json; charset=utf-8",
                "application/json; charset=utf-8",
            ),
        ] {
            let post = gateway.client().post("/v1/chat/completions");
            let asked = post.header("content-type", sent).header("prefer", prefer);
            let asked = asked.body(body).send();
            let arrived = backend.next().await;
            assert_eq!(arrived.header("content-type"), Some(expected), "{prefer}");
            assert_eq!(arrived.body, body);
            arrived.answer("fine");
            asked.answer().await.assert_ok("fine");
        }
    }
}

#[tokio::test]
async fn request_is_forwarded_unchanged() {
    let backend = Backend::start().await;
    let url = format!("{}/base/", backend.url());
    let setup = Setup::new()
        .backend_at("gpu-1", &url, 1, &["m"])
        .sections("[server]\npaths = \"all\"\n");
    let gateway = setup.start().await;
    let body = "{ \"messages\": [{\"content\":\"\\u00e9 \u{1f999}\"}],\n\t\"model\":\"\\u006d\", \"n\": 1e400 }";
    let ask = gateway
        .ask("m")
        .path("/v1/anything?a=1&b=%20/")
        .header("authorization", "Bearer secret")
        .header("x-forwarded-for", "192.0.2.1")
        .header("x-custom", b"\xff\xfe")
        .body(body);
    let (answer, arrived) = tokio::join!(ask.answer(), async {
        let arrived = backend.next().await;
        let (head, body) = (arrived.head.clone(), arrived.body.clone());
        arrived.answer("fine");
        (head, body)
    });
    answer.assert_ok("fine");
    let (head, arrived) = arrived;
    assert_eq!(arrived, body);
    assert_eq!(head.method, "POST");
    assert_eq!(head.uri, "/base/v1/anything?a=1&b=%20/");
    assert_eq!(head.headers["authorization"], "Bearer secret");
    assert_eq!(head.headers["content-type"], "application/json");
    assert_eq!(head.headers["x-forwarded-for"], "192.0.2.1, 127.0.0.1");
    assert_eq!(head.headers["x-custom"].as_bytes(), b"\xff\xfe");
    assert_eq!(
        format!("http://{}", head.headers["host"].to_str().unwrap()),
        backend.url()
    );
}

#[tokio::test]
async fn hop_by_hop_headers_are_not_forwarded() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    let ask = gateway
        .ask("m")
        .header("connection", "x-secret, keep-alive")
        .header("x-secret", "1")
        .header("keep-alive", "timeout=5")
        .header("proxy-authorization", "Basic x")
        .header("te", "gzip")
        .header("upgrade", "h2c");
    let (answer, ()) = tokio::join!(ask.answer(), async {
        let arrived = backend.next().await;
        for name in [
            "x-secret",
            "keep-alive",
            "proxy-authorization",
            "te",
            "upgrade",
        ] {
            assert_eq!(arrived.header(name), None, "{name}");
        }
        let response = Response::builder()
            .header("connection", "x-private")
            .header("x-private", "1")
            .header("keep-alive", "timeout=5")
            .header("proxy-authenticate", "Basic")
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .header("server-timing", "model;dur=5");
        arrived.respond(response.body("fine".to_owned()).unwrap());
    });
    answer.assert_ok("fine");
    for name in [
        "connection",
        "x-private",
        "keep-alive",
        "proxy-authenticate",
    ] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    let all = |name| answer.headers.get_all(name).iter().collect::<Vec<_>>();
    assert_eq!(all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(all("server-timing"), ["model;dur=5"]);
}

#[tokio::test]
async fn upgrades_are_not_forwarded() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    let ask = || {
        let ask = gateway.ask("m").header("connection", "upgrade");
        ask.header("upgrade", "websocket")
    };
    let (answer, ()) = tokio::join!(ask().answer(), async {
        let arrived = backend.next().await;
        assert_eq!(arrived.header("upgrade"), None);
        arrived.answer("no websocket");
    });
    answer.assert_ok("no websocket");
    let (answer, ()) = tokio::join!(ask().answer(), async {
        let mut unasked = status(101);
        let headers = unasked.headers_mut();
        headers.insert("connection", "upgrade".parse().unwrap());
        headers.insert("upgrade", "websocket".parse().unwrap());
        backend.next().await.respond(unasked);
    });
    answer.assert_error(502, "upstream_failed");
    assert_serves(&gateway, &backend).await;
}

#[tokio::test]
async fn response_headers_name_endpoint_and_model() {
    let backend = Backend::start().await;
    for model in ["llama3:70b", "org/llama \u{1f999}", "\u{6a21}\u{578b}"] {
        let setup = Setup::new().backend("gpu \u{e9}", &backend, 1, &[model]);
        let gateway = setup.start().await;
        let (answer, ()) = tokio::join!(gateway.ask(model).answer(), async {
            let mut lies = status(200);
            lies.headers_mut()
                .insert("x-triage-endpoint", "me".parse().unwrap());
            lies.headers_mut()
                .insert("x-triage-model", "mine".parse().unwrap());
            backend.next().await.respond(lies);
        });
        let all = |name| answer.headers.get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(all("x-triage-endpoint"), ["gpu \u{e9}".as_bytes()]);
        assert_eq!(all("x-triage-model"), [model.as_bytes()], "{model}");
    }
}

#[tokio::test]
async fn backend_response_is_forwarded_with_any_status() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    for code in [
        201, 204, 307, 400, 401, 404, 413, 422, 429, 500, 502, 503, 504, 529,
    ] {
        let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
            let arrived = backend.next().await;
            let mut response = status(code);
            response
                .headers_mut()
                .insert("retry-after", "40".parse().unwrap()); // beyond `max_wait`
            response
                .headers_mut()
                .insert("x-request-id", "r-1".parse().unwrap());
            if code != 204 {
                *response.body_mut() = json!({ "error": { "code": code } }).to_string();
            }
            arrived.respond(response);
        });
        assert_eq!(answer.status, code);
        assert_eq!(answer.header("retry-after"), Some("40"));
        assert_eq!(answer.header("x-request-id"), Some("r-1"));
        if code != 204 {
            assert_eq!(answer.json(), json!({ "error": { "code": code } }));
        }
    }
    gateway.idle().await;
    let state = gateway.state().await;
    assert_eq!(state.0["queue"]["rejected"], json!({}));
    assert_eq!(state.0["endpoints"][0]["healthy"], true);
}

#[tokio::test]
async fn chunked_backend_response_is_not_cut_at_its_content_length() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let setup = Setup::new().backend_at("gpu-1", &url, 1, &["m"]);
    let gateway = setup.start().await;
    for http2 in [false, true] {
        let client = match http2 {
            true => gateway.client().http2(),
            false => gateway.client().clone(),
        };
        let (answer, ()) = tokio::join!(client.ask("m").answer(), async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                assert_ne!(connection.read_buf(&mut request).await.unwrap(), 0);
            }
            let response = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\
                            connection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
            connection.write_all(response.as_bytes()).await.unwrap();
        });
        answer.assert_ok("hello");
        gateway.idle().await;
    }
}

#[tokio::test]
async fn backend_connections_are_reused() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    for _ in 0..20 {
        assert_serves(&gateway, &backend).await;
    }
    let made = backend.counts().connections; // a new one is made if the last is not back in the pool yet
    assert!(made < 10, "{made}");
}

#[tokio::test]
async fn client_disconnect_mid_response_frees_slot_and_backend() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    let asked = gateway.ask("m").open();
    let (response, stream) = tokio::join!(asked, async { backend.next().await.stream() });
    let mut body = response.into_body();
    stream.send("a word");
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "a word"
    );
    let next = gateway.ask("m").label("next").send();
    gateway.depth(1).await;
    drop(body);
    stream.disconnected().await;
    let arrived = backend.next().await;
    assert_eq!(arrived.label(), "next");
    arrived.answer("served");
    next.answer().await.assert_ok("served");
    gateway.idle().await;
}

#[tokio::test]
async fn client_disconnect_before_response_frees_slot_and_backend() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    let asked = gateway.ask("m").send();
    let arrived = backend.next().await;
    asked.disconnect();
    arrived.disconnected().await;
    gateway.idle().await;
    assert_serves(&gateway, &backend).await;
}

#[tokio::test]
async fn backend_reset_before_response_is_502_naming_it() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
        drop(backend.next().await);
    });
    answer.assert_error(502, "upstream_failed");
    assert_eq!(answer.header("x-triage-endpoint"), Some("gpu-1"));
    gateway.idle().await;
    assert_eq!(backend.counts().arrived, 1);
    assert_serves(&gateway, &backend).await;
}

#[tokio::test]
async fn backend_reset_mid_response_aborts_the_client_response() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    let asked = gateway.ask("m").open();
    let (response, stream) = tokio::join!(asked, async { backend.next().await.stream() });
    let mut body = response.into_body();
    stream.send("half");
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "half"
    );
    stream.abort();
    assert!(body.frame().await.unwrap().is_err());
    gateway.idle().await;
    assert_serves(&gateway, &backend).await;
}

#[tokio::test]
async fn refused_backend_connection_is_502_upstream_unreachable() {
    let gone = Backend::unreachable();
    let setup = Setup::new()
        .routing("eject_after = 0")
        .backend_at("gpu-1", &gone, 1, &["m"]);
    let gateway = setup.start().await;
    for _ in 0..3 {
        let answer = gateway.ask("m").answer().await;
        answer.assert_error(502, "upstream_unreachable");
    }
    gateway.idle().await;
}

#[tokio::test]
async fn endpoints_are_filled_to_their_limit_never_beyond() {
    let backends = [Backend::start().await, Backend::start().await];
    let [one, two] = &backends;
    let setup =
        Setup::new()
            .backend("gpu-1", one, 4, &["m"])
            .backend("gpu-2", two, 4, &["m", "other"]);
    let gateway = setup.start().await;
    let all: Vec<PendingResponse> = (0..40).map(|_| gateway.ask("m").send()).collect();
    // Slots that are freed at the same time may be granted in either order. So each is granted before the next is freed.
    for waiting in (0..=32).rev() {
        gateway.depth(waiting).await;
        assert_eq!(gateway.state().await.in_flight(), [4, 4]);
        match waiting % 2 {
            0 => one.next().await.answer("1"),
            _ => two.next().await.answer("2"),
        }
    }
    for _ in 0..3 {
        one.next().await.answer("1");
        two.next().await.answer("2");
    }
    two.next().await.answer("2");
    for sent in all {
        assert_eq!(sent.answer().await.status, 200);
    }
    assert_eq!((one.counts().peak, two.counts().peak), (4, 4));
    gateway.idle().await;
}

/// An answer of a backend that sends its client to another address.
fn redirect(location: &str) -> Response<String> {
    let mut response = status(307);
    response
        .headers_mut()
        .insert("location", location.parse().unwrap());
    response
}

#[tokio::test]
async fn redirects_lead_clients_to_the_gateway() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    let own = backend.url();
    for (path, location, expected) in [
        (
            "/v1/jobs/?model=m",
            format!("{own}/v1/jobs?model=m"),
            "/v1/jobs?model=m",
        ),
        (
            "/upstream/m/docs/",
            format!("{own}/docs"),
            "/upstream/m/docs",
        ),
        ("/upstream/m/docs/", "/docs".to_owned(), "/upstream/m/docs"),
        (
            "/upstream/m/docs/",
            format!("http://{}/docs", gateway.addr()),
            "/upstream/m/docs",
        ),
        (
            "/upstream/m/docs/",
            "https://other.example/".to_owned(),
            "https://other.example/",
        ),
    ] {
        let sent = gateway.get(path).send();
        let arrived = backend.next().await;
        assert_eq!(arrived.header("x-forwarded-host"), Some(gateway.addr()));
        assert_eq!(arrived.header("x-forwarded-proto"), Some("http"));
        arrived.respond(redirect(&location));
        let answer = sent.answer().await;
        assert_eq!(
            answer.header("location"),
            Some(expected),
            "{path} {location}"
        );
    }
}

#[tokio::test]
async fn what_a_front_says_of_its_client_is_believed_without_tenants() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    let ask = gateway.ask("m").header("x-forwarded-host", "chat.example");
    let ask = ask
        .header("x-forwarded-proto", "https")
        .header("forwarded", "for=192.0.2.1");
    let sent = ask.send();
    let arrived = backend.next().await;
    assert_eq!(arrived.header("x-forwarded-host"), Some("chat.example"));
    assert_eq!(arrived.header("x-forwarded-proto"), Some("https"));
    let forwarded = arrived.header("forwarded").unwrap();
    assert!(
        forwarded.starts_with("for=192.0.2.1, for=127.0.0.1;"),
        "{forwarded}"
    );
    arrived.answer("fine");
    sent.answer().await.assert_ok("fine");
}

#[tokio::test]
async fn an_ipv4_client_of_a_listener_for_both_has_its_own_address() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .listen("[::]:0")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let port = gateway.addr().rsplit(':').next().unwrap().to_owned();
    let client = crate::client::Client::new(format!("http://127.0.0.1:{port}"));
    let sent = client.ask("m").send();
    let arrived = backend.next().await;
    assert_eq!(arrived.header("x-forwarded-for"), Some("127.0.0.1"));
    arrived.answer("fine");
    sent.answer().await.assert_ok("fine");
}

#[tokio::test]
async fn a_known_path_may_end_with_a_slash() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    let sent = gateway.ask("m").path("/v1/chat/completions/").send();
    let arrived = backend.next().await;
    assert_eq!(arrived.head.uri, "/v1/chat/completions");
    arrived.answer("fine");
    sent.answer().await.assert_ok("fine");
    assert_eq!(gateway.get("/v1/models/").answer().await.status, 200);
}

#[tokio::test]
async fn trailers_with_names_of_headers_that_decide_do_not_pass() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let setup = Setup::new().backend_at("gpu-1", &url, 1, &["m"]);
    let gateway = setup.start().await;
    let mut client = tokio::net::TcpStream::connect(gateway.addr())
        .await
        .unwrap();
    let request = "POST /v1/other?model=m HTTP/1.1\r\nhost: x\r\ncontent-type: application/octet-stream\r\n\
                   transfer-encoding: chunked\r\nte: trailers\r\ntrailer: x-sum, x-tenant-id, x-api-key, x-here\r\n\
                   x-here: 1\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 1\r\nx-tenant-id: admin\r\nx-api-key: k\r\nx-here: 2\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut backend, _) = listener.accept().await.unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"\r\n0\r\n\r\n") && !got.ends_with(b"1\r\n\r\n") {
        assert_ne!(backend.read_buf(&mut got).await.unwrap(), 0);
    }
    let text = String::from_utf8(got).unwrap();
    let trailers = text.rsplit("hello").next().unwrap();
    assert_eq!(trailers, "\r\n0\r\nx-sum: 1\r\n\r\n");
}

/// The end of the connection is all that such a client sees.
#[tokio::test]
async fn a_client_of_http_1_0_can_tell_that_an_answer_was_cut_off() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, 1).await;
    for is_cut in [false, true] {
        let mut client = tokio::net::TcpStream::connect(gateway.addr())
            .await
            .unwrap();
        let body = "{\"model\":\"m\"}";
        let request = format!(
            "POST /v1/chat/completions HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let stream = backend.next().await.stream();
        stream.send("data: 1\n\n");
        let mut got = Vec::new();
        while !got.ends_with(b"data: 1\n\n") {
            assert_ne!(client.read_buf(&mut got).await.unwrap(), 0);
        }
        match is_cut {
            true => stream.abort(),
            false => stream.end(),
        }
        let end = client.read_buf(&mut got).await;
        assert_eq!(end.is_err(), is_cut, "{end:?}");
    }
}
