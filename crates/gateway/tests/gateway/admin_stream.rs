//! Tests of what the operator's page is made of: its head, its stream, and the actions.

use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::backend::Backend;
use crate::client::{Answer, Client};
use crate::process::{Gateway, Setup, TIMEOUT};

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

/// A stream of the page's events.
pub(crate) struct Stream {
    response: Response<Incoming>,
    text: String,
}

impl Stream {
    pub(crate) async fn open(client: &Client) -> Self {
        let response = client.get("/admin/stream").open().await;
        assert_eq!(response.status(), 200);
        Self {
            response,
            text: String::new(),
        }
    }

    /// Returns the name, the number and the data of the next event. `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<(String, u64, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let mut lines = event.lines();
                    lines
                        .find_map(|line| line.strip_prefix(name))
                        .unwrap()
                        .to_owned()
                };
                let data = serde_json::from_str(&field("data: ")).unwrap();
                let event = (field("event: "), field("id: ").parse().unwrap(), data);
                self.text = rest.to_owned();
                return Some(event);
            }
            let frame = timeout(TIMEOUT, self.response.body_mut().frame()).await;
            let data = frame
                .expect("no event comes")?
                .unwrap()
                .into_data()
                .unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }
}

/// A gateway with an endpoint that serves `m` alone, and two that serve `n`.
async fn gateway() -> (Gateway, Backend) {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .top(ADMIN)
        .backend("gpu-1", &backend, 1, &["m"])
        .backend("a/b", &backend, 1, &["n"])
        .backend("gpu-3", &backend, 1, &["n"]);
    (setup.start().await, backend)
}

#[tokio::test]
async fn stream_begins_with_a_snapshot_and_goes_on_with_patches() {
    let (gateway, backend) = gateway().await;
    let mut stream = Stream::open(gateway.admin()).await;
    let (name, first, snapshot) = stream.next().await.unwrap();
    assert_eq!(name, "snapshot");
    assert_eq!(snapshot["actions"], true);
    assert_eq!(snapshot["state"]["gateway"]["state"], "serving");
    assert_eq!(snapshot["state"]["room"]["limit"], 3);
    assert_eq!(snapshot["state"]["endpoints"]["gpu-1"]["in_flight"], 0);

    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    let waiting = gateway.ask("m").tenant("team-a").send();
    gateway.depth(1).await;
    let mut expected = first;
    let waits = loop {
        let (name, sequence, patch) = stream.next().await.unwrap();
        expected += 1;
        assert_eq!((name.as_str(), sequence), ("delta", expected));
        if patch["tenants"]["team-a"]["waiting"] == 1 {
            break patch;
        }
    };
    assert_eq!(waits["models"]["m"]["waiting"], 1);
    assert!(waits["levels"]["normal"]["oldest_seconds"].is_f64());
    assert!(
        waits["endpoints"]
            .get("gpu-3")
            .is_none_or(|it| it.get("limit").is_none())
    );

    // A second watcher gets a snapshot of the same state, and then the same events.
    let mut second = Stream::open(gateway.admin()).await;
    let (name, sequence, snapshot) = second.next().await.unwrap();
    assert_eq!(name, "snapshot");
    assert_eq!(snapshot["state"]["tenants"]["team-a"]["waiting"], 1);
    assert!(snapshot["history"].as_array().unwrap().len() > 1);
    let next = second.next().await.unwrap();
    assert_eq!(next.1, sequence + 1);
    let same = loop {
        let event = stream.next().await.unwrap();
        if event.1 == next.1 {
            break event;
        }
    };
    assert_eq!(same, next);
    arrived.answer("1");
    running.answer().await.assert_ok("1");
    backend.next().await.answer("2");
    waiting.answer().await.assert_ok("2");
}

#[tokio::test]
async fn stream_ends_on_shutdown() {
    let (mut gateway, _backend) = gateway().await;
    let mut stream = Stream::open(gateway.admin()).await;
    stream.next().await.unwrap();
    gateway.signal("TERM");
    while stream.next().await.is_some() {}
    assert!(gateway.exit().await.success());
}

#[tokio::test]
async fn main_address_has_the_page_without_actions_if_there_is_no_other() {
    let backend = Backend::start().await;
    let gateway = Setup::new()
        .backend("gpu-1", &backend, 1, &["m"])
        .start()
        .await;
    assert_eq!(gateway.get("/admin/").answer().await.status, 200);
    let (_, _, snapshot) = Stream::open(gateway.client()).await.next().await.unwrap();
    assert_eq!(snapshot["actions"], false);
    let drain = gateway
        .client()
        .post("/admin/endpoints/gpu-1/drain")
        .answer()
        .await;
    drain.assert_error(404, "not_found");

    let (gateway, _backend) = self::gateway().await;
    for path in ["/admin", "/admin/", "/admin/stream"] {
        gateway
            .get(path)
            .answer()
            .await
            .assert_error(404, "not_found");
    }
}

#[tokio::test]
async fn page_forbids_what_it_does_not_need() {
    let (gateway, _backend) = gateway().await;
    let page = gateway.admin().get("/admin/").answer().await;
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-"),
        "{policy}"
    );
    for part in [
        "style-src 'sha256-",
        "frame-ancestors 'none'",
        "form-action 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-frame-options"), Some("DENY"));
    let moved = gateway.admin().get("/admin").answer().await;
    assert_eq!(
        (moved.status, moved.header("location")),
        (308, Some("/admin/"))
    );
}

#[tokio::test]
async fn with_a_token_only_the_page_is_served_without_it() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .top(&format!("{ADMIN}token = \"sesame\"\n"))
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let page = gateway.admin().get("/admin/").answer().await;
    assert_eq!(page.status, 200);
    assert!(!page.text().contains("gpu-1"));
    for refused in [
        gateway.admin().get("/admin/stream"),
        gateway.admin().post("/admin/"),
        gateway.admin().post("/admin/reload"),
        gateway.admin().post("/admin/endpoints/gpu-1/drain"),
    ] {
        refused.answer().await.assert_error(401, "unauthorized");
    }
}

async fn post(gateway: &Gateway, path: &str) -> Answer {
    gateway.admin().post(path).answer().await
}

#[tokio::test]
async fn endpoints_are_drained_undrained_and_ejected() {
    let (gateway, backend) = gateway().await;
    let drained = post(&gateway, "/admin/endpoints/gpu-1/drain").await;
    assert_eq!(
        drained.json(),
        json!({ "action": "drain", "endpoint": "gpu-1" })
    );
    gateway
        .ask("m")
        .answer()
        .await
        .assert_error(503, "no_healthy_backend");
    assert_eq!(
        post(&gateway, "/admin/endpoints/gpu-1/undrain")
            .await
            .status,
        200
    );
    let served = gateway.ask("m").send();
    backend.next().await.answer("1");
    served.answer().await.assert_ok("1");

    // A name may have a slash, and the one endpoint that is left has to stay.
    assert_eq!(
        post(&gateway, "/admin/endpoints/a%2Fb/eject").await.status,
        200
    );
    let state = gateway.state().await;
    assert_eq!(state.0["endpoints"][1]["healthy"], false);
    let last = post(&gateway, "/admin/endpoints/gpu-1/eject").await;
    last.assert_error(409, "endpoint_is_needed");
    let (_, _, snapshot) = Stream::open(gateway.admin()).await.next().await.unwrap();
    let ejected = &snapshot["state"]["endpoints"]["a/b"];
    assert_eq!(ejected["why"], "an operator ejected it", "{ejected}");

    let unknown = post(&gateway, "/admin/endpoints/gpu-9/drain").await;
    unknown.assert_error(404, "endpoint_not_found");
    let other_site = gateway.admin().post("/admin/endpoints/gpu-1/drain");
    let other_site = other_site
        .header("origin", "http://evil.example")
        .answer()
        .await;
    other_site.assert_error(403, "cross_site");
    let get = gateway
        .admin()
        .get("/admin/endpoints/gpu-1/drain")
        .answer()
        .await;
    get.assert_error(404, "not_found");
    let unknown = post(&gateway, "/admin/requests/none/cancel").await;
    unknown.assert_error(404, "not_found");
}

#[tokio::test]
async fn reload_answers_with_what_changed_or_with_the_line_of_the_error() {
    let (gateway, _backend) = gateway().await;
    let config = std::fs::read_to_string(gateway.config_file()).unwrap();
    let same = post(&gateway, "/admin/reload").await.json();
    assert_eq!(
        same,
        json!({ "action": "reload", "changes": [], "warnings": [] })
    );

    let write = |text: String| std::fs::write(gateway.config_file(), text).unwrap();
    write(
        config
            .replace("[queue]\n", "[queue]\nmax_size = 7\n")
            .replace("gpu-3", "gpu-4"),
    );
    let changed = post(&gateway, "/admin/reload").await.json();
    let changes = [
        "endpoints added: gpu-4",
        "endpoints removed: gpu-3",
        "[queue] has changed",
    ];
    assert_eq!(changed["changes"], json!(changes));

    write(config.replace("[queue]\n", "[queue]\nmax_sise = 7\n"));
    let refused = post(&gateway, "/admin/reload").await;
    refused.assert_error(422, "invalid_configuration");
    let message = refused.message();
    let file = gateway.config_file().display().to_string();
    for part in [file.as_str(), "line ", "`max_sise`"] {
        assert!(message.contains(part), "{message}");
    }
    let (_, _, snapshot) = Stream::open(gateway.admin()).await.next().await.unwrap();
    let state = &snapshot["state"];
    assert_eq!(state["gateway"]["reload"]["error"], message);
    assert_eq!(state["room"]["max_size"], 7);
}
