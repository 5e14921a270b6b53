//! The ends of requests whose callers leave, cancel or come back.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_triage_durable::{DurableLayer, RetryPolicy, StoreConfig};

use super::support::{World, a_while, get, post, post_to, queue, until};

#[tokio::test(start_paused = true)]
async fn a_disconnect_cancels_only_if_asked() {
    let world = World::new(2);
    world.work();
    let stays = world.spawn(post("stays").header("idempotency-key", "1"));
    let goes = post("goes").header("idempotency-key", "2");
    let goes = world.spawn(goes.header("x-cancel-on-disconnect", "true"));
    until("both run", || world.backend.running() == 2).await;
    stays.abort();
    goes.abort();
    until("one is dropped", || world.backend.running() == 1).await;
    world.backend.finish(1);
    a_while().await;
    let list = world.send(get("/requests")).await.json();
    let ended: Vec<_> = [0, 1].map(|i| list["data"][i]["status"].clone()).into();
    assert_eq!(ended, ["canceled", "succeeded"]);
}

#[tokio::test(start_paused = true)]
async fn a_receipt_outlives_the_connection() {
    let world = World::new(1);
    let asked = post("a").header("prefer", "wait=1");
    let receipt = world
        .send(asked.header("x-cancel-on-disconnect", "true"))
        .await;
    let id = receipt.json()["id"].as_str().unwrap().to_owned();
    a_while().await;
    assert_eq!(world.status(&id).await, "queued");
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_a_request_once() {
    let world = World::new(1);
    let cancel = |id: &str| post_to(&format!("/requests/{id}/cancel"), "");
    let waits = world.store(post("waits")).await;
    assert_eq!(
        world.send(cancel(&waits)).await.json()["status"],
        "canceled"
    );
    world.work();
    let runs = world.store(post("runs")).await;
    world.until_status(&runs, "processing").await;
    assert_eq!(world.send(cancel(&runs)).await.json()["status"], "canceled");
    until("it is dropped", || world.backend.running() == 0).await;
    world.backend.finish(1);
    let ended = world.store(post("ended")).await;
    world.until_status(&ended, "succeeded").await;
    for (id, status) in [
        (&waits, "canceled"),
        (&runs, "canceled"),
        (&ended, "succeeded"),
    ] {
        let reply = world.send(cancel(id)).await;
        assert_eq!(
            (reply.status.as_u16(), reply.json()["status"].as_str()),
            (200, Some(status))
        );
    }
    assert_eq!(world.backend.started(), ["runs", "ended"]);
    assert_eq!(world.show(&waits).await["reason"], "request_canceled");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_is_told_of_the_cancel() {
    let world = World::new(1);
    world.work();
    let waiting = world.spawn(post("a").header("idempotency-key", "1"));
    until("it runs", || world.backend.running() == 1).await;
    let id = world.send(get("/requests")).await.json()["first_id"].clone();
    let path = format!("/requests/{}/cancel", id.as_str().unwrap());
    world.send(post_to(&path, "")).await;
    let reply = waiting.await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), reply.code().as_str()),
        (409, "request_canceled")
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_response_is_a_failure_with_its_response() {
    let world = World::new(1);
    world.work();
    world.backend.finish(1);
    let id = world
        .store(post("a").header("x-status", "500").body("oh"))
        .await;
    world.until_status(&id, "failed").await;
    let object = world.show(&id).await;
    assert_eq!(
        (&object["reason"], &object["response_status"]),
        (&"error_response".into(), &500.into())
    );
    let reply = world.send(get(&format!("/requests/{id}/response"))).await;
    assert_eq!((reply.status.as_u16(), reply.text()), (500, "oh"));
}

/// Pauses that are short enough for the tests to wait for.
fn retries(attempts: u32) -> RetryPolicy {
    RetryPolicy::attempts(attempts).backoff(Duration::from_millis(200), Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_may_pass_runs_again_after_a_pause() {
    let world = World::new(1);
    world.work_with(|worker| worker.retry(retries(3)));
    world.backend.finish(10);
    let start = Instant::now();
    let id = world.store(post("a").header("x-status", "503")).await;
    world.until_status(&id, "failed").await;
    assert!(
        start.elapsed() >= Duration::from_millis(600),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(world.backend.started().len(), 3);
    for (call, attempt) in ["1", "2", "3"].into_iter().enumerate() {
        assert_eq!(world.backend.headers(call)["x-triage-attempt"], attempt);
    }
    let reply = world.send(get(&format!("/requests/{id}/response"))).await;
    assert_eq!(reply.status.as_u16(), 503);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_stays_is_not_tried_again() {
    let world = World::new(1);
    world.work_with(|worker| worker.retry(retries(3)));
    world.backend.finish(10);
    let id = world.store(post("a").header("x-status", "400")).await;
    world.until_status(&id, "failed").await;
    assert_eq!(world.backend.started().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_beyond_the_deadline_ends_a_request_at_once() {
    let world = World::new(1);
    world.work_with(|worker| worker.retry(retries(3)));
    world.backend.finish(10);
    let asked = post("a")
        .header("x-status", "500")
        .header("cancel-after", "0.1");
    let id = world.store(asked).await;
    world.until_status(&id, "failed").await;
    assert_eq!(world.backend.started().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_deadline_gets_the_default_one() {
    let set = |layer: DurableLayer| layer.cancel_after(Duration::from_secs(1));
    let world = World::with(queue(1), StoreConfig::default(), set);
    let default = world.store(post("a")).await;
    let own = world.store(post("b").header("cancel-after", "1h")).await;
    let later = world.store(post("c").header("not-before", "2")).await;
    world.until_status(&default, "aborted").await;
    assert_eq!(world.status(&own).await, "queued");
    // It has a second from when it may begin.
    assert_eq!(world.status(&later).await, "queued");
    world.until_status(&later, "aborted").await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_retries_what_has_failed() {
    let world = World::new(1);
    world.work();
    world.backend.finish(2);
    let id = world.store(post("a").header("x-status", "500")).await;
    world.until_status(&id, "failed").await;
    let path = format!("/requests/{id}/retry");
    assert_eq!(world.send(post_to(&path, "")).await.status, 404); // a caller may not
    let reply = world.admin(post_to(&path, "")).await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), reply.json()["status"].as_str()),
        (200, Some("queued"))
    );
    until("it runs again", || world.backend.started().len() == 2).await;
    world.until_status(&id, "failed").await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_pauses_and_resumes() {
    let world = World::new(1);
    world.work();
    world.backend.finish(2);
    let tenant = r#"{"tenant": "t", "reason": "a test", "until": 4102444800}"#;
    let paused = world
        .admin(post_to("/durable/pause", tenant))
        .await
        .unwrap();
    assert_eq!(
        (paused.status.as_u16(), paused.json()["tenant"].as_str()),
        (200, Some("t"))
    );
    world.store(post("paused").header("x-tenant-id", "t")).await;
    let other = world.store(post("other")).await;
    world.until_status(&other, "succeeded").await;
    let shown = world.admin(get("/durable")).await.unwrap().json();
    assert_eq!(shown["pauses"][0]["reason"], "a test");
    assert_eq!(shown["pauses"][0]["until"], 4_102_444_800_u64);
    assert_eq!(shown["queues"][0]["queued"], 1);
    assert_eq!(world.backend.started(), ["other"]);

    let resume = || post_to("/durable/resume", r#"{"tenant": "t"}"#);
    assert_eq!(world.admin(resume()).await.unwrap().json()["resumed"], true);
    until("it runs", || world.backend.started() == ["other", "paused"]).await;
    assert_eq!(
        world.admin(resume()).await.unwrap().json()["resumed"],
        false
    );
    for wrong in [r#"{"queue": "a", "tenant": "b"}"#, r#"{"model": "a"}"#, "["] {
        let reply = world.admin(post_to("/durable/pause", wrong)).await.unwrap();
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (400, "invalid_pause")
        );
    }
    assert!(world.admin(get("/elsewhere")).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_front_that_shuts_down_gives_receipts() {
    let token = CancellationToken::new();
    let set = |layer: DurableLayer| layer.shutdown(token.clone());
    let world = World::with(queue(1), StoreConfig::default(), set);
    let keyed = |key: &str| {
        let asked = post("a").header("idempotency-key", key);
        asked.header("x-cancel-on-disconnect", "true")
    };
    let waiting = [
        world.spawn(keyed("1")),
        world.spawn(keyed("2").body(r#"{"stream": true}"#)),
        world.spawn(keyed("3").header("prefer", "wait=60")),
    ];
    a_while().await;
    let id = world.send(get("/requests")).await.json()["first_id"].clone();
    let id = id.as_str().unwrap().to_owned();
    let stream = world.spawn(get(&format!("/requests/{id}/stream")));
    let page = world.spawn(get(&format!("/requests/{id}?wait=60")));
    a_while().await;
    token.cancel();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().status, 202);
    }
    assert_eq!(stream.await.unwrap().text(), "");
    assert_eq!(page.await.unwrap().json()["status"], "queued");
    a_while().await;
    assert_eq!(world.status(&id).await, "queued");
}
