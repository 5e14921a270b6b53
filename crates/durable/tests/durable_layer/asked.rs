//! The headers by which callers ask for storage, and the responses.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_channel::mpsc;
use futures_util::{FutureExt, StreamExt, TryFutureExt, stream};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::rejection::Rejection;
use tower_triage_durable::{BodyMemory, Classified, Classifier, DurableLayer, StoreConfig};
use tower_triage_embedded::EmbeddedStore;

use super::support::{World, a_while, get, post, queue, until};

#[tokio::test(start_paused = true)]
async fn requests_that_ask_for_nothing_go_straight_through() {
    let world = World::new(1);
    world.backend.finish(1);
    let reply = world
        .send(
            post("a")
                .header("prefer", "return=minimal")
                .header("x-triage-request-id", "1"),
        )
        .await;
    assert_eq!((reply.status.as_u16(), reply.text()), (200, "{}"));
    assert!(!world.backend.headers(0).contains_key("x-triage-request-id"));
    assert!(world.store.depths().await.unwrap().is_empty());
    assert!(!reply.headers.contains_key("vary"));
}

#[tokio::test(start_paused = true)]
async fn a_receipt_says_where_the_answer_will_be() {
    let world = World::new(1);
    let receipt = world
        .send(post("a").header("prefer", "respond-async"))
        .await;
    assert_eq!(receipt.status, 202);
    assert_eq!(receipt.header("preference-applied"), "respond-async");
    assert_eq!(receipt.header("vary"), "Prefer");
    assert_eq!(receipt.header("retry-after"), "1");
    let json = receipt.json();
    let id = json["id"].as_str().unwrap();
    assert_eq!(receipt.header("location"), format!("/requests/{id}"));
    assert_eq!(json["status"], "queued");
    let urls = &json["urls"];
    assert_eq!(urls["get"], format!("/requests/{id}"));
    assert_eq!(urls["cancel"], format!("/requests/{id}/cancel"));
    assert_eq!(urls["response"], format!("/requests/{id}/response"));
    assert_eq!(urls["stream"], format!("/requests/{id}/stream"));
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_as_the_service_gave_it() {
    let world = World::new(1);
    world.work();
    world.backend.finish(1);
    let asked = post("a")
        .header("idempotency-key", "k")
        .header("x-status", "418");
    let reply = world.send(asked.body("tea")).await;
    assert_eq!((reply.status.as_u16(), reply.text()), (418, "tea"));
    assert_eq!(reply.header("x-backend"), "yes");
    assert_eq!(reply.header("vary"), "Prefer");
    assert!(!reply.headers.contains_key("preference-applied"));
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_as_long_as_it_prefers() {
    let config = StoreConfig::default();
    let set = |layer: tower_triage_durable::DurableLayer| layer.max_wait(Duration::from_secs(60));
    let world = World::with(queue(1), config, set);
    world.work();
    for (prefer, applied, seconds) in [
        ("wait=5", "wait=5", 5),
        ("wait=0", "wait=0", 0),
        ("wait=600", "wait=60", 60),
        ("respond-async, wait=2", "respond-async, wait=2", 2),
    ] {
        let before = tokio::time::Instant::now();
        let reply = world.send(post("a").header("prefer", prefer)).await;
        assert_eq!(reply.status, 202, "{prefer}");
        assert_eq!(reply.header("preference-applied"), applied);
        assert_eq!(before.elapsed().as_secs(), seconds, "{prefer}");
        assert!(reply.header("location").starts_with("/requests/"));
    }
    world.backend.finish(5);
    let reply = world
        .send(post("b").header("prefer", "respond-async, wait=9"))
        .await;
    assert_eq!((reply.status.as_u16(), reply.text()), (200, "{}"));
    assert_eq!(reply.header("preference-applied"), "wait=9");
}

#[tokio::test(start_paused = true)]
async fn the_same_key_is_the_same_request() {
    let world = World::new(1);
    world.work();
    let keyed = || {
        post("a")
            .header("idempotency-key", "k")
            .header("x-tenant-id", "t")
    };
    let first = world.spawn(keyed());
    until("it runs", || world.backend.running() == 1).await;
    let second = world.spawn(keyed());
    a_while().await;
    world.backend.finish(1);
    for reply in [first, second] {
        assert_eq!(reply.await.unwrap().status, 200);
    }
    assert_eq!(world.send(keyed()).await.status, 200);
    let receipt = world.send(keyed().header("prefer", "respond-async")).await;
    assert_eq!(
        (receipt.status.as_u16(), receipt.json()["status"].as_str()),
        (202, Some("succeeded"))
    );
    assert!(!receipt.headers.contains_key("retry-after"));
    assert_eq!(world.backend.started().len(), 1);

    let other = world.send(keyed().body("[]")).await;
    assert_eq!(
        (other.status.as_u16(), other.code().as_str()),
        (422, "idempotency_key_reused")
    );
    let foreign = post("b").header("idempotency-key", "k").body("[]");
    world.store(foreign.header("x-tenant-id", "u")).await;
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_read_is_named() {
    let world = World::new(1);
    let long = "k".repeat(256);
    for (name, value, code) in [
        ("idempotency-key", &*long, "invalid_idempotency_key"),
        ("idempotency-key", "", "invalid_idempotency_key"),
        ("cancel-after", "soon", "invalid_cancel_after"),
        ("not-before", "tomorrow", "invalid_not_before"),
        ("webhook-url", "nowhere", "invalid_webhook_url"),
        ("webhook-url", "ftp://example.com/", "invalid_webhook_url"),
        ("webhook-url", "https://example.com/", "webhook_not_allowed"),
    ] {
        let reply = world.send(post("a").header(name, value)).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (400, code));
        assert_eq!(reply.header("vary"), "Prefer");
    }
    world
        .store(post("a").header("idempotency-key", &long[1..]))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_full_store_and_a_large_body_are_refused() {
    let config = StoreConfig::default().max_size(2).max_size_per_tenant(1);
    let world = World::with(queue(1), config, |layer| layer.body_limit(4));
    let stored = |tenant: &'static str| {
        let asked = post("a").header("prefer", "respond-async");
        asked.header("x-tenant-id", tenant)
    };
    let large = world.send(stored("a").body("12345")).await;
    assert_eq!(
        (large.status.as_u16(), large.code().as_str()),
        (413, "body_too_large")
    );
    for (tenant, status, code) in [
        ("a", 202, ""),
        ("a", 429, "tenant_queue_full"),
        ("b", 202, ""),
        ("c", 503, "queue_full"),
    ] {
        let reply = world.send(stored(tenant).body("1234")).await;
        assert_eq!(reply.status, status, "{tenant}");
        if status != 202 {
            assert_eq!(reply.code(), code);
            assert_ne!(reply.header("retry-after"), "");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_queue_is_refused_before_it_is_stored() {
    struct NoModel;
    impl Classifier for NoModel {
        fn tenant(&self, _: &http::request::Parts) -> Vec<u8> {
            Vec::new()
        }
        fn classify(
            &self,
            _: &http::request::Parts,
            _: &bytes::Bytes,
        ) -> Result<Classified, Rejection> {
            let message = "no such model";
            Err(Rejection::new(
                StatusCode::NOT_FOUND,
                "model_not_found",
                message,
            ))
        }
    }
    let world = World::with(queue(1), StoreConfig::default(), |layer| {
        layer.classify(NoModel)
    });
    let reply = world
        .send(post("a").header("prefer", "respond-async"))
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.code().as_str()),
        (404, "model_not_found")
    );
    assert!(world.store.depths().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_front_without_slots_stores_all() {
    let world = World::with(queue(1), StoreConfig::default(), |layer| {
        layer.store_all(true)
    });
    let reply = world.spawn(post("a"));
    a_while().await;
    assert!(world.backend.started().is_empty());
    assert_eq!(world.store.depths().await.unwrap()[0].queued, 1);
    world.work();
    world.backend.finish(1);
    assert_eq!(reply.await.unwrap().status, 200);
    assert_eq!(
        world.send(get("/requests")).await.json()["data"][0]["attempts"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn bodies_count_in_the_memory_until_they_are_stored() {
    let memory = BodyMemory::new(10);
    let store = Arc::new(EmbeddedStore::in_memory(StoreConfig::default()).unwrap());
    let layer = DurableLayer::new(store).body_memory(memory.clone());
    let ask = |body| {
        let request = Request::post("/").header("prefer", "respond-async");
        let inner = service_fn(async |_| Ok::<_, Infallible>(Response::new(Full::from("inner"))));
        let answer = layer.layer(inner).oneshot(request.body(body).unwrap());
        answer.map_ok(|answer| (answer.status().as_u16(), answer.headers().clone()))
    };
    let pieces = |pieces: &[&'static str]| {
        let frames: Vec<_> = pieces
            .iter()
            .map(|&it| Ok::<_, Infallible>(Frame::data(Bytes::from(it))))
            .collect();
        stream::iter(frames)
    };
    let (_rest, stalled) = mpsc::unbounded::<Result<Frame<Bytes>, Infallible>>();
    let stalled = StreamBody::new(pieces(&["123", "456"]).chain(stalled).boxed());
    let whole = |text| StreamBody::new(pieces(text).boxed());

    let mut first = Box::pin(ask(stalled));
    assert!(first.as_mut().now_or_never().is_none());
    assert_eq!(memory.used(), 6);
    let (status, headers) = ask(whole(&["12", "345"])).await.unwrap();
    assert_eq!(
        (status, &headers["retry-after"]),
        (503, &HeaderValue::from_static("1"))
    );
    assert_eq!(memory.used(), 6);
    assert_eq!(ask(whole(&["12", "34"])).await.unwrap().0, 202);
    assert_eq!(memory.used(), 6);
    drop(first);
    assert_eq!(memory.used(), 0);
    assert_eq!(ask(whole(&["12", "345"])).await.unwrap().0, 202);
    assert_eq!(memory.used(), 0);
}
