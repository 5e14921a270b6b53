//! Tests of live requests: operators see them, and cancel them by their id.

use http_body_util::BodyExt;
use serde_json::Value;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::client::{Answer, ClientRequest};
use crate::durable_support::{Folder, id, stored, until};
use crate::process::{Gateway, Setup, TIMEOUT};
use crate::waiting_status::{asks, reads};

async fn start(backend: &Backend) -> Gateway {
    let setup = Setup::new().top("[admin]\nlisten = \"127.0.0.1:0\"");
    let setup = setup
        .routing("aliases = { gpt = \"m\" }")
        .sections("[server]\npaths = \"all\"\n");
    setup.backend("gpu-1", backend, 1, &["m"]).start().await
}

fn with_id(request: ClientRequest, id: &str) -> ClientRequest {
    request.header("x-request-id", id)
}

/// The page of live requests.
async fn page(gateway: &Gateway) -> Value {
    let page = gateway.admin().get("/admin/live").answer().await;
    assert_eq!(page.status, 200);
    page.json()
}

/// Waits until the live request with this id is in `phase`, and returns it.
async fn live(gateway: &Gateway, id: &str, phase: &str) -> Value {
    let found = async {
        loop {
            let page = page(gateway).await;
            let requests = page["requests"].as_array().unwrap();
            let found = requests
                .iter()
                .find(|it| it["id"] == id && it["phase"] == phase);
            if let Some(found) = found {
                return found.clone();
            }
        }
    };
    let found = timeout(TIMEOUT, found).await;
    found.unwrap_or_else(|_| panic!("no {id} that is {phase}"))
}

async fn cancel(gateway: &Gateway, id: &str) -> Answer {
    let path = format!("/admin/requests/{id}/cancel");
    gateway.admin().post(&path).answer().await
}

#[tokio::test]
async fn live_requests_are_listed_with_what_is_known_of_them() {
    let backend = Backend::start().await;
    let gateway = start(&backend).await;
    let running = with_id(gateway.ask("gpt"), "first").open();
    let (running, stream) = tokio::join!(running, async { backend.next().await.stream() });
    stream.send("data: 1\n\n");
    let mut running = running.into_body();
    running.frame().await.unwrap().unwrap();
    let waits = gateway.ask("gpt").tenant("team-a").high();
    let waiting = with_id(waits, "second").send();

    let second = live(&gateway, "second", "waiting").await;
    for (key, value) in [
        ("level", Value::from("high")),
        ("tenant", Value::from("team-a")),
        ("model", Value::from("gpt")),
        ("endpoint", Value::Null),
        ("first_byte_ms", Value::Null),
        ("bytes", Value::from(0)),
        ("tries", Value::from(0)),
    ] {
        assert_eq!(second[key], value, "{key}: {second}");
    }
    assert!(second["age_ms"].is_u64() && second["wait_ms"].is_u64());
    let first = live(&gateway, "first", "streaming").await;
    for (key, value) in [
        ("level", Value::from("normal")),
        ("tenant", Value::Null),
        ("model", Value::from("m")),
        ("endpoint", Value::from("gpu-1")),
        ("bytes", Value::from(9)),
        ("tries", Value::from(1)),
    ] {
        assert_eq!(first[key], value, "{key}: {first}");
    }
    assert!(first["first_byte_ms"].is_u64(), "{first}");
    assert_eq!(page(&gateway).await["count"], 2);

    stream.end();
    assert!(running.frame().await.is_none());
    backend.next().await.answer("second");
    waiting.answer().await.assert_ok("second");
    gateway.logs(&["id=\"second\""]).await;
    assert_eq!(page(&gateway).await["count"], 0);
}

#[tokio::test]
async fn refusals_are_listed_newest_first() {
    let backend = Backend::failing(500).await;
    let gateway = start(&backend).await;
    with_id(gateway.ask("gpt-5").tenant("team-a"), "unknown")
        .answer()
        .await
        .assert_error(404, "model_not_found");
    gateway.get("/v1/nothing").answer().await;
    with_id(gateway.ask("m").body("{"), "malformed")
        .answer()
        .await
        .assert_error(400, "malformed_body");
    gateway.logs(&["id=\"malformed\""]).await;
    let page = page(&gateway).await;
    let refusals = page["refusals"].as_array().unwrap();
    let ids: Vec<_> = refusals.iter().map(|refusal| &refusal["id"]).collect();
    assert_eq!(ids, ["malformed", "unknown"]);
    let unknown = &refusals[1];
    assert_eq!(unknown["status"], 404);
    assert_eq!(unknown["code"], "model_not_found");
    assert_eq!(unknown["tenant"], "team-a");
    assert_eq!(unknown["level"], "normal");
    assert_eq!(unknown["model"], "gpt-5");
    assert!(unknown["at"].as_u64().unwrap() > 1_700_000_000);
}

#[tokio::test]
async fn a_cancelled_waiter_leaves_the_queue() {
    let backend = Backend::start().await;
    let gateway = start(&backend).await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let waiting = with_id(gateway.ask("m").path("/waits"), "a/b").send();
    gateway.depth(1).await;
    let answer = cancel(&gateway, "a%2Fb").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["id"], "a/b");
    let cancelled = waiting.answer().await;
    assert_eq!(cancelled.error(), (503, "cancelled".to_owned()));
    assert_eq!(cancelled.header("x-should-retry"), Some("false"));
    assert_eq!(cancelled.header("x-request-id"), Some("a/b"));
    gateway.depth(0).await;
    let line = gateway
        .logs(&["path=\"/waits\"", "result=\"cancelled\""])
        .await;
    assert!(line.contains("code=\"cancelled\""), "{line}");
    running.answer("first");
    first.answer().await.assert_ok("first");
    assert_eq!(backend.more().await, 0);
}

#[tokio::test]
async fn a_cancelled_request_leaves_its_backend() {
    let backend = Backend::start().await;
    let gateway = start(&backend).await;
    let sent = with_id(gateway.ask("m"), "a").send();
    let arrived = backend.next().await;
    live(&gateway, "a", "running").await;
    assert_eq!(cancel(&gateway, "a").await.status, 200);
    arrived.disconnected().await;
    assert_eq!(sent.answer().await.error(), (503, "cancelled".to_owned()));
    gateway.idle().await;
}

#[tokio::test]
async fn a_cancelled_stream_ends_with_an_error() {
    let backend = Backend::start().await;
    let gateway = start(&backend).await;
    let opened = with_id(gateway.ask("m").path("/stream"), "a").open();
    let (opened, stream) = tokio::join!(opened, async { backend.next().await.stream() });
    stream.send("data: 1\n\n");
    let mut body = opened.into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(cancel(&gateway, "a").await.status, 200);
    stream.disconnected().await;
    assert!(body.frame().await.unwrap().is_err());
    let line = gateway
        .logs(&["path=\"/stream\"", "result=\"cancelled\""])
        .await;
    assert!(line.contains("status=200"), "{line}");
    gateway.idle().await;
}

#[tokio::test]
async fn a_cancelled_status_stream_leaves_the_queue() {
    let backend = Backend::start().await;
    let gateway = start(&backend).await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let mut waiting = asks(with_id(gateway.ask("m"), "a")).open().await;
    reads(&mut waiting, "position=1").await;
    live(&gateway, "a", "waiting").await;
    assert_eq!(cancel(&gateway, "a").await.status, 200);
    gateway.depth(0).await;
    assert!(waiting.into_body().collect().await.is_err());
    running.answer("first");
    first.answer().await.assert_ok("first");
}

#[tokio::test]
async fn an_unknown_request_cannot_be_cancelled() {
    let backend = Backend::replying("fine").await;
    let gateway = start(&backend).await;
    with_id(gateway.ask("m"), "over")
        .answer()
        .await
        .assert_ok("fine");
    gateway.logs(&["id=\"over\""]).await;
    for id in ["over", "unknown", "%ff", ""] {
        assert_eq!(cancel(&gateway, id).await.status, 404, "{id}");
    }
    let main = gateway.client().post("/admin/requests/over/cancel");
    main.answer().await.assert_error(404, "not_found");
}

#[tokio::test]
async fn a_cancel_ends_one_request_out_of_those_with_its_id() {
    let backend = Backend::start().await;
    let gateway = start(&backend).await;
    let first = with_id(gateway.ask("m"), "same").send();
    let running = backend.next().await;
    let second = with_id(gateway.ask("m"), "same").send();
    let waiting = live(&gateway, "same", "waiting").await;
    let ambiguous = cancel(&gateway, "same").await;
    ambiguous.assert_error(409, "ambiguous_request");
    let key = waiting["key"].as_str().unwrap();
    assert!(ambiguous.message().contains(key), "{ambiguous:?}");
    assert!(!second.is_answered());

    let path = format!("/admin/live/{key}/cancel");
    let answer = gateway.admin().post(&path).answer().await;
    assert_eq!((answer.status, &answer.json()["id"]), (200, &"same".into()));
    let ended = second.answer().await;
    assert_eq!(ended.error(), (503, "cancelled".to_owned()));
    running.answer("first");
    first.answer().await.assert_ok("first");
    assert_eq!(gateway.admin().post(&path).answer().await.status, 404);
}

#[tokio::test]
async fn a_client_cannot_stand_in_for_a_stored_request() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let stored_id = id(&stored(gateway.client(), "stored").answer().await);
    let other = with_id(gateway.ask("m"), &stored_id).send();
    live(&gateway, &stored_id, "waiting").await;
    assert_eq!(cancel(&gateway, &stored_id).await.status, 200);
    until(gateway.client(), &stored_id, &["canceled"]).await;
    running.answer("first");
    first.answer().await.assert_ok("first");
    backend.next().await.answer("other");
    other.answer().await.assert_ok("other");
}
