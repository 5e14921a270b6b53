//! Batches whose completion window is over.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{World, lines, new_batch};

#[tokio::test(start_paused = true)]
async fn lines_that_are_late_have_expired() {
    let world = World::slow();
    let id = world.batch_within(&lines(12), "90s").await;
    world.until_started(8).await;
    world.backend.finish(2);
    let batch = world.until(&id, "expired").await;
    assert_eq!(
        batch["request_counts"],
        json!({ "total": 12, "completed": 2, "failed": 10 })
    );
    assert!(batch["expired_at"].is_u64());
    let errors = world.lines(&batch["error_file_id"]).await;
    assert!(
        errors
            .iter()
            .all(|line| line["error"]["code"] == "batch_expired")
    );
    assert_eq!(world.lines(&batch["output_file_id"]).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn files_and_batches_expire_by_the_clock_of_their_store() {
    let mut world = World::slow();
    world.stop();
    world.api = world.api.clone().file_retention(Duration::from_secs(3_600));
    let file = world.upload(&lines(2)).await;
    let path = format!("/v1/files/{file}");
    let (status, batch) = world
        .ask("POST", "/v1/batches", new_batch(&file, "24h"))
        .await;
    assert_eq!(status, 200, "{batch}");
    // The clock of a store in memory is Tokio's.
    tokio::time::advance(Duration::from_secs(3_598)).await;
    world.get(&path).await;
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(world.ask("GET", &path, Value::Null).await.0, 404);
    tokio::time::advance(Duration::from_secs(24 * 3_600)).await;
    world.restart();
    let batch = world.until(batch["id"].as_str().unwrap(), "expired").await;
    assert!(batch["expired_at"].as_u64() > batch["expires_at"].as_u64());
    assert!(world.backend.started().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_expired_input_is_kept_for_its_batch() {
    let mut world = World::slow();
    world.stop();
    let file = world.upload(&lines(2)).await;
    let unused = world.upload(&lines(2)).await;
    let (_, batch) = world
        .ask("POST", "/v1/batches", new_batch(&file, "24h"))
        .await;
    for (key, value) in world.store.values("files/", None, 2).await.unwrap() {
        let mut record: Value = serde_json::from_slice(&value).unwrap();
        record["expires_at"] = json!(1);
        let record = record.to_string().into();
        world.store.put(&key, record).await.unwrap();
    }
    let path = format!("/v1/files/{file}");
    assert_eq!(world.ask("GET", &path, Value::Null).await.0, 404);
    let refused = world.ask("POST", "/v1/batches", new_batch(&file, "24h"));
    assert_eq!(refused.await.0, 404);
    world.restart(); // which removes what has expired
    world.until_started(2).await;
    world.backend.finish(2);
    let batch = world
        .until(batch["id"].as_str().unwrap(), "completed")
        .await;
    assert_eq!(batch["request_counts"]["completed"], 2);
    let left = async |file: &str| {
        let pieces = format!("pieces/{file}/");
        world.store.values(&pieces, None, 1).await.unwrap().len()
    };
    assert_eq!((left(&file).await, left(&unused).await), (1, 0));
    tokio::time::sleep(Duration::from_secs(2 * 3_600)).await;
    assert_eq!(left(&file).await, 0);
}
