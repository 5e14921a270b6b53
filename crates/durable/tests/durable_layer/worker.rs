//! Attempts: what the inner service gets, and how an attempt ends.

use std::time::Duration;

use tower_triage_durable::{OnCrash, StoreConfig};

use super::support::{World, a_while, get, post, post_to, queue, until};

#[tokio::test(start_paused = true)]
async fn the_service_gets_the_id_and_the_attempt_alone() {
    let world = World::new(1);
    world.work();
    let id = world
        .store(
            post("a")
                .header("idempotency-key", "k")
                .header("cancel-after", "1h")
                .header("x-triage-attempt", "9")
                .header("x-own", "kept"),
        )
        .await;
    until("it runs", || world.backend.running() == 1).await;
    let headers = world.backend.headers(0);
    assert_eq!(headers["x-triage-request-id"], id.as_str());
    assert_eq!(headers["x-triage-attempt"], "1");
    assert_eq!(headers["x-own"], "kept");
    assert_eq!(headers.get_all("x-triage-attempt").iter().count(), 1);
    for name in ["prefer", "idempotency-key", "cancel-after"] {
        assert!(!headers.contains_key(name), "{name}");
    }
    world.until_status(&id, "processing").await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_the_request_and_not_the_worker() {
    let world = World::new(1);
    world.work();
    let id = world.store(post("a").header("x-panic", "yes")).await;
    world.until_status(&id, "failed").await;
    assert_eq!(world.show(&id).await["reason"], "worker_panicked");
    let reply = world.send(get(&format!("/requests/{id}/response"))).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code().as_str()),
        (502, "worker_panicked")
    );

    world.backend.finish(1);
    let next = world.store(post("b")).await;
    world.until_status(&next, "succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_after_its_timeout() {
    let world = World::new(1);
    world.work_with(|worker| worker.attempt_timeout(Duration::from_secs(60)));
    let id = world.store(post("hangs")).await;
    world.until_status(&id, "processing").await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.until_status(&id, "failed").await;
    assert_eq!(world.show(&id).await["reason"], "attempt_timeout");
    assert_eq!(world.backend.running(), 0);
    assert_eq!(world.queue.status().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_too_large_fails_its_request() {
    let world = World::new(1);
    world.work_with(|worker| worker.response_limit(3));
    world.backend.finish(2);
    for (body, status) in [("abc", "succeeded"), ("abcd", "failed")] {
        let id = world.store(post("a").body(body)).await;
        world.until_status(&id, status).await;
        if status == "failed" {
            assert_eq!(world.show(&id).await["reason"], "response_too_large");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cancel_drops_the_call_and_frees_the_slot() {
    let world = World::new(1);
    world.work();
    let id = world.store(post("a")).await;
    world.until_status(&id, "processing").await;
    let cancel = world
        .send(post_to(&format!("/requests/{id}/cancel"), ""))
        .await;
    assert_eq!(
        (cancel.status.as_u16(), cancel.json()["status"].as_str()),
        (200, Some("canceled"))
    );
    until("the call is dropped", || world.backend.running() == 0).await;
    until("the slot is free", || world.queue.status().running == 0).await;
    let reply = world.send(get(&format!("/requests/{id}/response"))).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code().as_str()),
        (409, "request_canceled")
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_aborts_or_cancels() {
    let world = World::new(1);
    let waits = world.store(post("a").header("cancel-after", "5s")).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    world.until_status(&waits, "aborted").await;
    assert_eq!(world.show(&waits).await["attempts"], 0);

    world.work();
    let runs = world.store(post("b").header("cancel-after", "5s")).await;
    world.until_status(&runs, "processing").await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    world.until_status(&runs, "canceled").await;
    until("the call is dropped", || world.backend.running() == 0).await;
    for id in [waits, runs] {
        let reply = world.send(get(&format!("/requests/{id}/response"))).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (504, "deadline_exceeded")
        );
        assert_eq!(world.show(&id).await["reason"], "deadline_exceeded");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_what_runs_and_takes_no_more() {
    let world = World::new(1);
    let worker = world.work();
    let (runs, waits) = (world.store(post("a")).await, world.store(post("b")).await);
    world.until_status(&runs, "processing").await;
    world.shut_down();
    a_while().await;
    assert!(!worker.is_finished());
    world.backend.finish(2);
    worker.await.unwrap();
    assert_eq!(world.status(&runs).await, "succeeded");
    assert_eq!(world.status(&waits).await, "queued");
    assert_eq!(world.queue.status().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_ends_the_worker() {
    let world = World::new(1);
    let worker = world.work();
    let runs = world.store(post("a")).await;
    world.until_status(&runs, "processing").await;
    world.store(post("b")).await;
    world.queue.close();
    world.backend.finish(1);
    worker.await.unwrap();
    assert_eq!(world.status(&runs).await, "succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_worker_loses_what_it_ran() {
    let world = World::new(1);
    let worker = world.work();
    let id = world.store(post("a")).await;
    world.until_status(&id, "processing").await;
    worker.abort();
    world.until_status(&id, "failed").await;
    assert_eq!(world.show(&id).await["reason"], "worker_lost");
    let reply = world.send(get(&format!("/requests/{id}/response"))).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code().as_str()),
        (502, "worker_lost")
    );
    until("the slot is free", || world.queue.status().running == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_may_begin_at_its_time() {
    let world = World::with(queue(1), StoreConfig::default(), |layer| layer);
    world.work();
    world.backend.finish(1);
    let id = world.store(post("a").header("not-before", "60")).await;
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert!(world.backend.started().is_empty());
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.until_status(&id, "succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_worker_s_requests_are_retried_if_asked() {
    let on_crash = OnCrash::Retry { max_attempts: 2 };
    let config = StoreConfig::default().on_crash(on_crash);
    let world = World::with(queue(1), config, |layer| layer);
    let id = world.store(post("a")).await;
    for attempt in ["1", "2"] {
        let worker = world.work_with(|worker| worker.on_crash(on_crash));
        until("it runs", || world.backend.running() == 1).await;
        let headers = world.backend.headers(world.backend.started().len() - 1);
        assert_eq!(headers["x-triage-attempt"], attempt);
        worker.abort();
        until("it is dropped", || world.backend.running() == 0).await;
    }
    world.until_status(&id, "failed").await;
    let object = world.show(&id).await;
    assert_eq!(
        (&object["reason"], &object["attempts"]),
        (&"worker_lost".into(), &2.into())
    );
}
