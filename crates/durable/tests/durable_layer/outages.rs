//! A store that fails for a while.

use std::time::Duration;

use tower_triage::admit::ReservedSlots;
use tower_triage_durable::{StorageLimits, StorageQuota, StoreConfig};

use super::faulty::Faulty;
use super::support::{Reply, World, a_while, get, post, queue, store, until};

#[tokio::test(start_paused = true)]
async fn an_outage_refuses_stored_requests_alone() {
    let faulty = Faulty::new(store(StoreConfig::default()));
    let world = World::over(faulty.clone(), queue(1), |layer| layer);
    world.work();
    faulty.set_down(true);
    let refused = world
        .send(post("a").header("prefer", "respond-async"))
        .await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (503, "store_unavailable")
    );
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(
        world.send(get("/requests")).await.code(),
        "store_unavailable"
    );
    world.backend.finish(2);
    assert_eq!(world.send(post("online")).await.status, 200);
    a_while().await;
    faulty.set_down(false);
    let id = world.store(post("b")).await;
    world.until_status(&id, "succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_through_an_outage_gets_its_receipt() {
    let faulty = Faulty::new(store(StoreConfig::default()));
    let world = World::over(faulty.clone(), queue(1), |layer| layer);
    let waiting = world.spawn(post("a").header("prefer", "wait=5"));
    a_while().await;
    faulty.set_down(true);
    let reply = waiting.await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), reply.header("preference-applied")),
        (202, "wait=5")
    );
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_before_its_outcome_is_stored() {
    let faulty = Faulty::new(store(StoreConfig::default()));
    let world = World::over(faulty.clone(), queue(1), |layer| layer);
    world.work();
    let waiting = world.spawn(post("a").header("idempotency-key", "k"));
    until("it runs", || world.backend.running() == 1).await;
    a_while().await;
    faulty.set_down(true);
    world.backend.finish(1);
    until("the slot is free", || world.queue.status().running == 0).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!waiting.is_finished());
    faulty.set_down(false);
    assert_eq!(waiting.await.unwrap().status, 200);
    assert_eq!(world.backend.started().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reserved_slot_is_not_kept_for_what_another_worker_took() {
    let store = store(StoreConfig::default());
    let config = || queue(2).reserve("high", ReservedSlots::Slots(1));
    let worlds = [(); 3].map(|()| World::over(store.clone(), config(), |layer| layer));
    for world in &worlds {
        world.work();
    }
    for _ in 0..20 {
        worlds[0].store(post("batch").level("batch")).await;
    }
    let running =
        |worlds: &[World; 3]| -> usize { worlds.iter().map(|world| world.backend.running()).sum() };
    until("each has its slot", || running(&worlds) == 3).await;
    for _ in 0..3 {
        let urgent = worlds[0].store(post("urgent").level("high")).await;
        worlds[0].until_status(&urgent, "processing").await;
        a_while().await;
        assert_eq!(running(&worlds), 4); // the slots reserved elsewhere are free
        let ran = worlds
            .iter()
            .find(|world| world.backend.started().last().unwrap() == "urgent");
        let cancel = super::support::post_to(&format!("/requests/{urgent}/cancel"), "");
        ran.unwrap().send(cancel).await;
        until("it is gone", || running(&worlds) == 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_that_was_stored_does_not_run() {
    let faulty = Faulty::new(store(StoreConfig::default()));
    let world = World::over(faulty.clone(), queue(1), |layer| layer);
    faulty.set_loses_replies(true);
    for _ in 0..4 {
        let refused = world
            .send(post("a").header("prefer", "respond-async"))
            .await;
        assert_eq!(refused.code(), "store_unavailable");
        assert!(message(&refused).contains("is cancelled as soon as"));
    }
    a_while().await;
    faulty.set_loses_replies(false);
    let list = world.send(get("/requests")).await.json();
    let statuses: Vec<_> = list["data"].as_array().unwrap().iter().collect();
    assert_eq!(statuses.len(), 4);
    assert!(
        statuses.iter().all(|one| one["status"] == "canceled"),
        "{list}"
    );
    world.work();
    world.backend.finish(10);
    let id = world.store(post("b")).await;
    world.until_status(&id, "succeeded").await;
    assert_eq!(world.backend.started(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_with_a_key_runs_once_for_its_repetition() {
    let faulty = Faulty::new(store(StoreConfig::default()));
    let world = World::over(faulty.clone(), queue(1), |layer| layer);
    let ask = || {
        post("a")
            .header("prefer", "respond-async")
            .header("idempotency-key", "k")
    };
    faulty.set_loses_replies(true);
    let refused = world.send(ask()).await;
    assert!(message(&refused).contains("repeat it with its Idempotency-Key"));
    faulty.set_loses_replies(false);
    a_while().await;
    world.work();
    world.backend.finish(10);
    let id = world.store(ask()).await;
    world.until_status(&id, "succeeded").await;
    assert_eq!(world.backend.started(), ["a"]);
}

fn message(refused: &Reply) -> String {
    refused.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_tenant_share_a_look_up_of_its_bytes() {
    let faulty = Faulty::new(store(StoreConfig::default()));
    let quota = StorageQuota::new(faulty.clone(), |_| StorageLimits {
        bytes: Some(1 << 20),
        ..StorageLimits::default()
    });
    let world = World::over(faulty.clone(), queue(1), |layer| layer.quota(quota));
    let send = || world.spawn(post("a").header("prefer", "respond-async"));
    for round in 1..=2 {
        let sent: Vec<_> = (0..50).map(|_| send()).collect();
        for reply in sent {
            assert_eq!(reply.await.unwrap().status, 202);
        }
        assert_eq!(faulty.look_ups(), round);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    // A failed look-up is shared, too, but not for longer than it takes.
    faulty.set_down(true);
    let sent: Vec<_> = (0..50).map(|_| send()).collect();
    for reply in sent {
        assert_eq!(reply.await.unwrap().code(), "store_unavailable");
    }
    faulty.set_down(false);
    assert_eq!(send().await.unwrap().status, 202);
}
