//! Batches whose coordinator dies.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use tower_triage_durable::{StorageLimits, StorageQuota};

use crate::support::{World, lines};

#[tokio::test(start_paused = true)]
async fn no_line_is_stored_twice_over_restarts() {
    let mut world = World::slow();
    let id = world.batch(&lines(3_000)).await;
    for round in 0..30 {
        world.backend.finish(90);
        tokio::time::sleep(Duration::from_millis(20 * round)).await;
        world.restart();
    }
    world.backend.finish(300);
    let batch = world.until(&id, "completed").await;
    assert_eq!(
        batch["request_counts"],
        json!({ "total": 3_000, "completed": 3_000, "failed": 0 })
    );
    let started = world.backend.started();
    let numbers: HashSet<_> = started.iter().collect();
    assert_eq!((started.len(), numbers.len()), (3_000, 3_000));
    let output = world.lines(&batch["output_file_id"]).await;
    let names: HashSet<_> = output
        .iter()
        .map(|line| line["custom_id"].as_str().unwrap())
        .collect();
    assert_eq!((output.len(), names.len()), (3_000, 3_000));
}

#[tokio::test(start_paused = true)]
async fn two_coordinators_run_each_line_once() {
    let world = World::slow();
    let id = world.batch(&lines(50)).await;
    world.until_started(1).await;
    let other = tokio::spawn(crate::support::api(&world.store).run());
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.backend.finish(50);
    let batch = world.until(&id, "completed").await;
    assert_eq!(batch["request_counts"]["completed"], 50);
    assert_eq!(world.backend.started().len(), 50);
    other.abort();
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_on_at_another_front_after_a_crash() {
    let mut world = World::slow();
    let other = tokio::spawn(crate::support::api(&world.store).run());
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.restart(); // the latest to start
    let id = world.batch(&lines(5)).await;
    world.until_started(5).await;
    world.stop();
    world.backend.finish(5);
    world.until(&id, "completed").await;
    other.abort();
}

#[tokio::test(start_paused = true)]
async fn a_tenants_thirty_third_batch_waits_for_an_older_one() {
    let world = World::slow();
    let mut ids = Vec::new();
    for _ in 0..33 {
        ids.push(world.batch(&lines(1)).await);
    }
    world.until(&ids[31], "in_progress").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.show(&ids[32]).await["status"], "validating");
    world.backend.finish(33);
    world.until(&ids[32], "completed").await;
}

#[tokio::test(start_paused = true)]
async fn nothing_but_its_files_is_left_of_a_batch() {
    let world = World::fast();
    let id = world.batch(&lines(5)).await;
    world.until(&id, "completed").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    for prefix in ["active-batches/", "uses/", "uploads/"] {
        let kept = world.store.values(prefix, None, 1).await.unwrap();
        assert!(kept.is_empty(), "{prefix}");
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_lines_run_once_over_a_restart() {
    let mut world = World::new(5_000, Default::default());
    let file = lines(10_000);
    let id = world.batch(&file).await;
    world.until_started(5_000).await;
    world.restart();
    world.backend.finish(5_000);
    let batch = world.until(&id, "completed").await;
    assert_eq!(batch["request_counts"]["completed"], 10_000);
    let started = world.backend.started();
    assert_eq!(started.len(), 10_000);
    assert_eq!(started.into_iter().collect::<HashSet<_>>().len(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_at_its_quota_gets_the_results_of_stored_lines_after_a_restart() {
    let mut world = World::slow();
    let id = world.batch(&lines(5)).await;
    world.until_started(5).await;
    world.stop();
    world.backend.finish(5);
    world.until_none_runs().await;

    let quota = StorageQuota::new(world.store.clone(), |_| StorageLimits {
        bytes: Some(1),
        ..StorageLimits::default()
    });
    world.restart_with(|api| api.quota(quota));
    let batch = world.until(&id, "completed").await;
    assert_eq!(batch["request_counts"]["completed"], 5);
    assert_eq!(world.backend.started().len(), 5);
}
