//! Batches that their clients cancel.

use serde_json::{Value, json};

use crate::support::{World, lines};

#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_keeps_what_has_ended() {
    let world = World::slow();
    let id = world.batch(&lines(20)).await;
    world.until_started(8).await;
    world.backend.finish(3);
    world.until_started(11).await;
    let path = format!("/v1/batches/{id}/cancel");
    let (status, batch) = world.ask("POST", &path, Value::Null).await;
    assert_eq!(
        (status.as_u16(), &batch["status"]),
        (200, &json!("cancelling"))
    );
    let batch = world.until(&id, "cancelled").await;
    assert_eq!(
        batch["request_counts"],
        json!({ "total": 20, "completed": 3, "failed": 17 })
    );
    assert!(batch["cancelling_at"].is_u64() && batch["cancelled_at"].is_u64());
    assert_eq!(world.lines(&batch["output_file_id"]).await.len(), 3);
    let errors = world.lines(&batch["error_file_id"]).await;
    assert_eq!(errors.len(), 17);
    assert!(
        errors
            .iter()
            .all(|line| line["error"]["code"] == "batch_cancelled")
    );
    let (status, error) = world.ask("POST", &path, Value::Null).await;
    assert_eq!(
        (status.as_u16(), &error["error"]["code"]),
        (409, &json!("batch_ended"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_cancelled_before_it_is_looked_at() {
    let mut world = World::fast();
    world.stop();
    let id = world.batch(&lines(3)).await;
    let (status, _) = world
        .ask("POST", &format!("/v1/batches/{id}/cancel"), Value::Null)
        .await;
    assert_eq!(status, 200);
    world.restart();
    world.until(&id, "cancelled").await;
    assert!(world.backend.started().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_survives_a_restart() {
    let mut world = World::slow();
    let id = world.batch(&lines(20)).await;
    world.until_started(8).await;
    world.stop();
    world
        .ask("POST", &format!("/v1/batches/{id}/cancel"), Value::Null)
        .await;
    world.restart();
    let batch = world.until(&id, "cancelled").await;
    assert_eq!(
        batch["request_counts"],
        json!({ "total": 20, "completed": 0, "failed": 20 })
    );
    assert_eq!(world.backend.started().len(), 8);
}
