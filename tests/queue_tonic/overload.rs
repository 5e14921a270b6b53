//! Overload as the clients of a gRPC service see it.

use super::*;

#[tokio::test]
async fn a_shedding_server_is_unavailable_and_overloaded() {
    let (app, running) = App::busy(QueueConfig::shed(1)).await;
    let refused = say(&app, "refused").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(
        refused.message(),
        "the service is overloaded: every slot is busy"
    );
    let pushback = refused.metadata().get("grpc-retry-pushback-ms").unwrap();
    assert_eq!(pushback, "1000");
    app.finish.add_permits(1);
    assert_eq!(running.await.unwrap().unwrap().get_ref().text, "running");
}

#[tokio::test]
async fn overload_may_be_resource_exhausted() {
    let config = QueueConfig::shed(1).overload_status(http::StatusCode::TOO_MANY_REQUESTS);
    let (app, running) = App::busy(config).await;
    let refused = say(&app, "refused").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    app.handle.close();
    let closed = say(&app, "closed").await.unwrap_err();
    assert_eq!(closed.code(), Code::Unavailable);
    app.finish.add_permits(1);
    assert_eq!(running.await.unwrap().unwrap().get_ref().text, "running");
}
