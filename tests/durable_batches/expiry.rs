//! Batches whose completion window is over.

use serde_json::json;

use crate::support::{World, lines};

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
