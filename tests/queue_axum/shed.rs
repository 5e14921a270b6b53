//! A limit under which no request waits.

use axum::body::Body;
use tower::ServiceExt;

use super::*;

#[tokio::test]
async fn requests_over_the_limit_are_told_that_the_service_is_overloaded() {
    let app = App::with(QueueLayer::shed(2)).await;
    let running = [app.run("a").await, app.run("b").await];
    for count in 1..=3 {
        let refused = app
            .client("refused")
            .header("x-priority", "high")
            .send()
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.header("retry-after")),
            (503, "1")
        );
        assert!(!refused.headers.contains_key("server-timing"));
        let text = refused.text().await;
        assert_eq!(
            text,
            r#"{"error":{"message":"the service is overloaded: every slot is busy","type":"server_error","param":null,"code":"overloaded"}}"#
        );
        let status = app.handle.status();
        assert_eq!((status.depth, status.running), (0, 2));
        assert_eq!((status.stats.full, status.stats.rejected()), (count, count));
    }
    let grpc = app
        .client("grpc")
        .header("content-type", "application/grpc")
        .send()
        .await;
    assert_eq!(
        (
            grpc.header("grpc-status"),
            grpc.header("grpc-retry-pushback-ms")
        ),
        ("14", "1000")
    );

    app.jobs.finish(1);
    until("a slot is free", || app.handle.status().running == 1).await;
    let next = app.run("next").await;
    app.jobs.finish(2);
    for reply in running.into_iter().chain([next]) {
        assert_eq!(reply.await.unwrap().status, 200);
    }
    assert_eq!((app.jobs.peak(), app.jobs.started().len()), (2, 3));
}

#[tokio::test]
async fn a_flag_chooses_between_waiting_and_shedding() {
    for may_wait in [true, false] {
        let layer = if may_wait {
            QueueLayer::limit(1)
        } else {
            QueueLayer::shed(1)
        };
        let by_config = QueueLayer::new(if may_wait {
            QueueConfig::unbounded(1)
        } else {
            QueueConfig::shed(1)
        });
        for layer in [layer, by_config] {
            let app = App::with(layer).await;
            let running = app.run("running").await;
            let second = app.client("second").spawn();
            until("it is queued or rejected", || {
                let status = app.handle.status();
                status.depth + status.stats.full as usize == 1
            })
            .await;
            app.jobs.finish(2);
            assert_eq!(running.await.unwrap().status, 200);
            let expected = if may_wait { 200 } else { 503 };
            assert_eq!(second.await.unwrap().status, expected);
        }
    }
}

#[tokio::test]
async fn a_limit_of_zero_sheds_everything() {
    let app = App::with(QueueLayer::shed(0)).await;
    let refused = app.client("refused").send().await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.code().await, "overloaded");
    assert_eq!(app.handle.status().stats.full, 1);
    app.handle.gate().unwrap().set_limit(1);
    let running = app.run("running").await;
    app.jobs.finish(1);
    assert_eq!(running.await.unwrap().status, 200);
}

#[tokio::test]
async fn until_headers_sheds_too() {
    let layer = QueueLayer::until_headers(QueueConfig::shed(0));
    let app: Router = router(&Jobs::new()).layer(layer);
    let request = axum::http::Request::new(Body::empty());
    let response = app.oneshot(request).await.unwrap();
    let reason = response.extensions().get::<RejectReason>();
    assert_eq!(
        (response.status().as_u16(), reason),
        (503, Some(&RejectReason::Shed))
    );
}
