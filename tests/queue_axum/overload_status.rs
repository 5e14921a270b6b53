//! The status of rejections that mean overload.

use super::*;

const LIMITED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// Returns the status, the code and the kind of a rejection.
async fn parts(reply: Reply) -> (u16, String, String) {
    assert!(reply.headers.contains_key("retry-after"));
    let status = reply.status.as_u16();
    let json: serde_json::Value = serde_json::from_str(&reply.text().await).unwrap();
    let text = |key: &str| json["error"][key].as_str().unwrap().to_owned();
    (status, text("code"), text("type"))
}

#[tokio::test]
async fn a_full_room_answers_with_the_configured_status() {
    let config = QueueConfig::new(1).max_size(1).overload_status(LIMITED);
    let config = config.retry_after(RetryAfter::fixed(7)); // with the same seconds, only the status differs
    let (app, _running) = busy(config.clone()).await;
    let _waiting = app.wait(app.client("waiting")).await;
    let (status, code, kind) = parts(app.client("refused").send().await).await;
    assert_eq!(
        (status, &*code, &*kind),
        (429, "queue_full", "rate_limit_error")
    );

    let grpc = app
        .client("grpc")
        .header("content-type", "application/grpc");
    assert_eq!(grpc.send().await.header("grpc-status"), "8");

    app.handle
        .reconfigure(config.overload_status(StatusCode::SERVICE_UNAVAILABLE))
        .unwrap();
    let (status, code, kind) = parts(app.client("refused").send().await).await;
    assert_eq!(
        (status, &*code, &*kind),
        (503, "queue_full", "server_error")
    );
}

#[tokio::test]
async fn all_overload_has_the_configured_status_and_nothing_else() {
    let config = QueueConfig::new(1).max_size(1).overload_status(LIMITED);
    let (app, _running) = busy(config.clone().max_wait(ms(50))).await;
    let late = app.client("late").send().await;
    assert_eq!(parts(late).await.1, "queue_timeout");

    app.handle.reconfigure(config.clone()).unwrap();
    let displaced = app.wait(app.client("displaced")).await;
    let urgent = app.client("urgent").header("x-priority", "high").spawn();
    let displaced = displaced.await.unwrap();
    assert_eq!(displaced.status, 429);
    assert_eq!(displaced.code().await, "displaced");

    app.handle
        .reconfigure(config.clone().max_size(5).streaming(Streaming::Reject))
        .unwrap();
    let stream = app
        .client("stream")
        .header("accept", "text/event-stream")
        .send()
        .await;
    assert_eq!(stream.status, 429);
    assert_eq!(stream.code().await, "streaming_not_queued");

    let hasty = app
        .client("hasty")
        .header("x-request-timeout", "0")
        .send()
        .await;
    assert_eq!(hasty.status, 504);

    app.handle.close();
    let closed = app.client("closed").send().await;
    assert_eq!(closed.status, 503);
    assert_eq!(closed.code().await, "shutting_down");
    assert_eq!(urgent.await.unwrap().status, 503);
}
