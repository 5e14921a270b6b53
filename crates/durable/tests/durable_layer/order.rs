//! The order of stored requests: with a slot in hand a worker takes the most urgent one by then.

use std::time::Duration;

use tower::Layer;
use tower_triage::admit::{ReservedSlots, TargetWait};
use tower_triage_durable::{StoreConfig, Worker};

use super::support::{Backend, World, a_while, post, queue, store, until};

#[tokio::test(start_paused = true)]
async fn an_urgent_request_passes_a_waiting_worker() {
    let world = World::new(1);
    let online = world.spawn(post("online"));
    until("it runs", || world.backend.running() == 1).await;
    world.store(post("batch").level("batch")).await;
    world.work();
    until("the worker waits", || world.queue.status().depth == 1).await;
    let urgent = world.store(post("urgent").level("high")).await;
    a_while().await;
    assert_eq!(world.queue.status().depth, 1); // still one waiter

    world.backend.finish(2);
    online.await.unwrap();
    world.until_status(&urgent, "succeeded").await;
    until("the last one runs", || world.backend.started().len() == 3).await;
    assert_eq!(world.backend.started(), ["online", "urgent", "batch"]);
}

#[tokio::test(start_paused = true)]
async fn only_requests_that_run_are_taken_from_the_store() {
    let world = World::new(2);
    world.work();
    for name in ["a", "b", "c", "d", "e"] {
        world.store(post(name)).await;
    }
    until("two run", || world.backend.running() == 2).await;
    a_while().await;
    let depths = world.store.depths().await.unwrap();
    let depth = (depths[0].running, depths[0].queued);
    assert_eq!((depths.len(), depth), (1, (2, 3)));

    world.backend.finish(5);
    until("all are served", || world.backend.started().len() == 5).await;
    assert_eq!(world.backend.started(), ["a", "b", "c", "d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_takes_what_online_traffic_leaves() {
    let world = World::new(2);
    world.work();
    for name in ["batch-1", "batch-2", "batch-3"] {
        world.store(post(name).level("batch")).await;
    }
    until("both slots are used", || world.backend.running() == 2).await;
    let online: Vec<_> = ["online-1", "online-2"]
        .map(|name| world.spawn(post(name)))
        .into();
    until("they wait", || world.queue.status().depth == 3).await;

    world.backend.finish(5);
    for online in online {
        assert_eq!(online.await.unwrap().status, 200);
    }
    until("all are served", || world.backend.started().len() == 5).await;
    let started = world.backend.started();
    assert_eq!(started[2..], ["online-1", "online-2", "batch-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_reserved_slot_is_left_to_the_urgent() {
    let config = queue(2).reserve("high", ReservedSlots::Slots(1));
    let world = World::with(config, StoreConfig::default(), |layer| layer);
    world.work();
    for name in ["batch-1", "batch-2", "batch-3"] {
        world.store(post(name).level("batch")).await;
    }
    until("one runs", || world.backend.running() == 1).await;
    a_while().await;
    assert_eq!(world.backend.running(), 1);
    world.spawn(post("online").level("high"));
    until("it runs at once", || world.backend.running() == 2).await;
    assert_eq!(world.backend.started(), ["batch-1", "online"]);
}

#[tokio::test(start_paused = true)]
async fn bounds_of_the_waiting_room_refuse_no_stored_request() {
    let config = queue(1)
        .max_size(0)
        .max_wait(Duration::from_secs(1))
        .target_wait(TargetWait::After(Duration::from_millis(1)));
    let world = World::with(config, StoreConfig::default(), |layer| layer);
    world.work();
    world.spawn(post("online"));
    until("it runs", || world.backend.running() == 1).await;
    let id = world.store(post("stored")).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(world.status(&id).await, "queued");
    world.backend.finish(2);
    world.until_status(&id, "succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_without_a_request_goes_back() {
    let world = World::new(1);
    let first = world.spawn(post("first"));
    until("it runs", || world.backend.running() == 1).await;
    let id = world.store(post("cancelled").level("high")).await;
    world.work();
    until("the worker waits", || world.queue.status().depth == 1).await;
    let second = world.spawn(post("second"));
    until("it waits, too", || world.queue.status().depth == 2).await;

    let cancel = super::support::post_to(&format!("/requests/{id}/cancel"), "");
    world.send(cancel).await;
    world.backend.finish(2);
    first.await.unwrap();
    assert_eq!(second.await.unwrap().status, 200);
    assert_eq!(world.backend.started(), ["first", "second"]);
    until("no slot is kept", || world.queue.status().running == 0).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_gate_readiness_is_the_limit() {
    let (backend, store) = (Backend::new(), store(StoreConfig::default()));
    let service = tower::limit::ConcurrencyLimitLayer::new(2).layer(backend.service());
    for _ in 0..5 {
        let request = http::Request::post("/work").body("{}".into()).unwrap();
        let request = tower_triage_durable::encode_request(&request);
        let id = tower_triage_durable::RequestId::random().unwrap();
        let new = tower_triage_durable::NewRequest::new(id, request);
        store.enqueue(new).await.unwrap();
    }
    tokio::spawn(Worker::new(store.clone(), service).run());
    until("two run", || backend.running() == 2).await;
    a_while().await;
    assert_eq!(backend.started().len(), 2);
    assert_eq!(store.depths().await.unwrap()[0].queued, 3);
    backend.finish(5);
    until("all are served", || backend.started().len() == 5).await;
}
