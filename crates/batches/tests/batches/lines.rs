//! The lines of batches: which are refused, and what becomes of the others.

use serde_json::{Value, json};
use tower_triage_durable::{StoreConfig, decode_request};

use crate::support::{CHAT, World, line_with, lines, new_batch};

#[tokio::test(start_paused = true)]
async fn each_line_is_answered_by_its_custom_id() {
    let world = World::fast();
    let bad_gateway = line_with(2, json!({ "status": 502, "text": "bad\ngateway" }));
    let content = [
        line_with(1, json!({})),
        bad_gateway,
        line_with(3, json!({})),
    ]
    .join("\n");
    let id = world.batch(&content).await;
    let batch = world.until(&id, "completed").await;
    assert_eq!(
        batch["request_counts"],
        json!({ "total": 3, "completed": 2, "failed": 1 })
    );
    let output = world.lines(&batch["output_file_id"]).await;
    assert_eq!(output.len(), 2);
    assert_eq!(output[1]["custom_id"], "line-3");
    assert_eq!(output[1]["error"], Value::Null);
    assert_eq!(output[1]["response"]["status_code"], 200);
    assert_eq!(output[1]["response"]["body"], json!({ "n": 3 }));
    assert!(output[1]["id"].as_str().unwrap().starts_with("batch_req_"));
    let errors = world.lines(&batch["error_file_id"]).await;
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0]["custom_id"], "line-2");
    assert_eq!(errors[0]["response"]["status_code"], 502);
    assert_eq!(errors[0]["response"]["body"], "bad\ngateway");
    let path = format!("/v1/files/{}", batch["output_file_id"].as_str().unwrap());
    let file = world.get(&path).await;
    assert_eq!(file["purpose"], "batch_output");
    assert_eq!(
        file["expires_at"],
        json!(file["created_at"].as_u64().unwrap() + 86_400)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lines_are_fetched_in_the_order_of_the_file() {
    let world = World::slow();
    world.stop_worker();
    world.batch(&lines(500)).await;
    while world
        .store
        .depths()
        .await
        .unwrap()
        .iter()
        .all(|depth| depth.queued < 500)
    {
        tokio::task::yield_now().await;
    }
    let fetched = world.store.fetch("m", 500).await.unwrap();
    let numbers = fetched.into_iter().map(|fetched| {
        let request = decode_request(fetched.request).unwrap();
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        body["n"].as_u64().unwrap()
    });
    assert!(numbers.eq(1..=500));
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_the_shape_of_openais() {
    let world = World::fast();
    let file = world.upload(&lines(1)).await;
    let mut asked = new_batch(&file, "24h");
    asked["metadata"] = json!({ "night": "1" });
    let (_, new) = world.ask("POST", "/v1/batches", asked).await;
    let created_at = new["created_at"].as_u64().unwrap();
    let expected = json!({
        "id": new["id"], "object": "batch", "endpoint": CHAT, "errors": null, "input_file_id": file,
        "completion_window": "24h", "status": "validating", "output_file_id": null, "error_file_id": null,
        "created_at": created_at, "in_progress_at": null, "expires_at": created_at + 86_400,
        "finalizing_at": null, "completed_at": null, "failed_at": null, "expired_at": null,
        "cancelling_at": null, "cancelled_at": null, "metadata": { "night": "1" },
        "request_counts": { "total": 0, "completed": 0, "failed": 0 },
    });
    assert_eq!(new, expected);
    let batch = world.until(new["id"].as_str().unwrap(), "completed").await;
    for time in ["in_progress_at", "finalizing_at", "completed_at"] {
        assert!(batch[time].as_u64().unwrap() >= created_at, "{time}");
    }
    assert_eq!(batch["error_file_id"], Value::Null);
    assert_eq!(world.get("/v1/batches").await["data"], json!([batch]));
}

#[tokio::test(start_paused = true)]
async fn one_bad_line_fails_the_batch_and_nothing_runs() {
    let world = World::fast();
    let other_url = line_with(4, json!({})).replace(CHAT, "/v1/embeddings");
    let content = [
        line_with(1, json!({})),
        "{".to_owned(),
        line_with(1, json!({})),
        other_url,
        line_with(5, json!({ "stream": true })),
        line_with(6, json!({ "model": null })),
        line_with(7, json!({ "model": "other" })),
        line_with(8, json!({ "text": "x".repeat(100_000) })),
    ];
    let id = world.batch(&content.join("\n")).await;
    let batch = world.until(&id, "failed").await;
    let errors = batch["errors"]["data"].as_array().unwrap();
    let found: Vec<_> = errors
        .iter()
        .map(|error| {
            (
                error["line"].as_u64().unwrap(),
                error["code"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (2, "invalid_json_line"),
            (3, "duplicate_custom_id"),
            (4, "invalid_url"),
            (5, "stream_not_supported"),
            (6, "missing_required_parameter"),
            (7, "model_not_found"),
            (8, "line_too_long"),
        ]
    );
    assert_eq!(batch["errors"]["object"], "list");
    assert!(batch["failed_at"].is_u64());
    assert!(world.backend.started().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_file_without_lines_is_empty() {
    let world = World::fast();
    let id = world.batch("\n \n").await;
    let batch = world.until(&id, "failed").await;
    assert_eq!(batch["errors"]["data"][0]["code"], "empty_file");
    assert_eq!(batch["errors"]["data"][0]["line"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn at_most_a_hundred_mistakes_are_listed() {
    let world = World::fast();
    let id = world.batch(&"{\n".repeat(200)).await;
    let batch = world.until(&id, "failed").await;
    assert_eq!(batch["errors"]["data"].as_array().unwrap().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_cannot_be_is_refused_at_once() {
    let world = World::fast();
    let file = world.upload(&lines(1)).await;
    let with = |field: &str, value: Value| {
        let mut batch = new_batch(&file, "24h");
        batch[field] = value;
        batch
    };
    for (batch, code) in [
        (json!([]), "invalid_json"),
        (with("endpoint", Value::Null), "missing_required_parameter"),
        (with("endpoint", json!("/admin/models")), "invalid_endpoint"),
        (with("endpoint", json!("/v1/files")), "invalid_endpoint"),
        (
            with("completion_window", json!("soon")),
            "invalid_completion_window",
        ),
        (
            with("completion_window", json!("0")),
            "invalid_completion_window",
        ),
        (
            with("metadata", json!({ "a": "x".repeat(513) })),
            "invalid_metadata",
        ),
        (with("metadata", json!({ "a": 1 })), "invalid_metadata"),
    ] {
        let (status, error) = world.ask("POST", "/v1/batches", batch).await;
        assert_eq!(
            (status.as_u16(), &error["error"]["code"]),
            (400, &json!(code))
        );
    }
    let unknown = format!("file-{}", "0".repeat(46));
    let (status, _) = world
        .ask("POST", "/v1/batches", new_batch(&unknown, "24h"))
        .await;
    assert_eq!(status, 404);
    for window in ["90", "90s", "1.5m", "2h", "7d"] {
        let (status, _) = world
            .ask("POST", "/v1/batches", new_batch(&file, window))
            .await;
        assert_eq!(status, 200, "{window}");
    }
}

#[tokio::test(start_paused = true)]
async fn lines_run_as_their_client_at_the_level_of_batches() {
    let world = World::slow();
    let file = world.upload(&lines(1)).await;
    let request = http::Request::post("/v1/batches")
        .header("authorization", "Bearer key")
        .header("x-stainless-read-timeout", "1")
        .body(new_batch(&file, "24h").to_string().into());
    world.send("a", request.unwrap()).await;
    world.until_started(1).await;
    let headers = world.backend.headers(0);
    assert_eq!(headers["authorization"], "Bearer key");
    assert_eq!(headers["x-tenant"], "a");
    assert_eq!(headers["content-type"], "application/json");
    assert!(!headers.contains_key("x-stainless-read-timeout"));
    let depths = world.store.depths().await.unwrap();
    assert_eq!(
        (&*depths[0].queue, depths[0].level, depths[0].running),
        ("m", 1, 1)
    );
    let listed = world.store.list(Default::default()).await.unwrap();
    assert!(listed.requests.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_full_store_delays_lines_and_loses_none() {
    let world = World::new(
        tokio::sync::Semaphore::MAX_PERMITS,
        StoreConfig::default().max_size(3),
    );
    let id = world.batch(&lines(20)).await;
    let batch = world.until(&id, "completed").await;
    assert_eq!(batch["request_counts"]["completed"], 20);
}
