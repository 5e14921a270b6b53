//! A layer over a store without any ability: what it can't do is an answer, and all else works.

use std::sync::Arc;

use tower_triage_durable::StoreConfig;
use tower_triage_embedded::EmbeddedStore;

use super::minimal_store::Minimal;
use super::support::{World, get, post, queue};

fn world() -> World {
    let store = EmbeddedStore::in_memory(StoreConfig::default()).unwrap();
    World::over(Arc::new(Minimal(store)), queue(1), |layer| {
        layer.webhooks(|_| Ok(()))
    })
}

#[tokio::test(start_paused = true)]
async fn a_request_is_stored_and_served() {
    let world = world();
    world.work();
    let id = world.store(post("a")).await;
    assert_eq!(world.status(&id).await, "queued");
    world.backend.finish(2);
    let ended = world.send(get(&format!("/requests/{id}?wait=10"))).await;
    assert_eq!(ended.json()["status"], "succeeded");
    let waited = world.send(post("b").header("prefer", "wait=10")).await;
    assert_eq!((waited.status.as_u16(), waited.text()), (200, "{}"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_sent_whole_at_its_end() {
    let world = world();
    world.work();
    let events = world.backend.stream();
    let asked = post("a").header("x-stream", "yes");
    let asked = asked.header("idempotency-key", "k");
    let asked = world.spawn(asked.body(r#"{"stream": true}"#));
    events.send("data: 1\n\n").unwrap();
    events.send("data: 2\n\n").unwrap();
    drop(events);
    assert_eq!(asked.await.unwrap().text(), "data: 1\n\ndata: 2\n\n");
}

#[tokio::test(start_paused = true)]
async fn what_it_lacks_is_not_supported() {
    let world = world();
    let id = world.store(post("a")).await;
    let hook = post("b").header("webhook-url", "http://example.com/");
    for asked in [
        get(&format!("/requests/{id}/stream")),
        get("/requests"),
        hook,
    ] {
        let refused = world.send(asked).await;
        assert_eq!(refused.status, 501, "{:?}", refused.body);
        assert_eq!(refused.json()["error"]["code"], "not_supported");
    }
}
