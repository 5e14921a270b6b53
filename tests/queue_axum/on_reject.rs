//! Rejections that the user writes.

use axum::extract::{ConnectInfo, MatchedPath};
use http::{Method, Version};
use http_body_util::Full;

use super::*;

#[tokio::test]
async fn rejections_can_be_written_by_the_user() {
    let config = QueueConfig::new(1)
        .max_size(0)
        .retry_after(RetryAfter::fixed(7));
    let layer = QueueLayer::new(config).on_reject(|rejection, request| {
        let name = request.headers()["x-name"].to_str().unwrap();
        let seconds = rejection.retry_after().unwrap().as_secs();
        let text = format!("{name}: {}, {seconds} s", rejection.code());
        Response::builder()
            .status(418)
            .header("x-teapot", "yes")
            .body(text)
            .unwrap()
    });
    let app = App::with(layer).await;
    let running = app.run("running").await;
    let refused = app.client("refused").send().await;
    assert_eq!(refused.status, 418);
    assert_eq!(refused.header("x-teapot"), "yes");
    assert_eq!(refused.text().await, "refused: queue_disabled, 7 s");
    app.jobs.finish(1);
    assert_eq!(running.await.unwrap().status, 200);
}

#[tokio::test]
async fn rejections_can_be_any_response_of_axum() {
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(0)).on_reject(|rejection, _| {
        let body = Json(serde_json::json!({ "busy": rejection.code() }));
        (StatusCode::IM_A_TEAPOT, [("x-teapot", "yes")], body).into_response()
    });
    let app = App::with(layer).await;
    let running = app.run("running").await;
    let refused = app.client("refused").send().await;
    assert_eq!(refused.status, 418);
    assert_eq!(refused.header("x-teapot"), "yes");
    assert_eq!(refused.header("content-type"), "application/json");
    assert_eq!(refused.text().await, r#"{"busy":"queue_disabled"}"#);
    app.jobs.finish(1);
    assert_eq!(running.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_rejection_may_stream_and_break_off() {
    let (parts, body) = mpsc::unbounded_channel::<Result<&'static str, std::io::Error>>();
    let body = Mutex::new(Some(body));
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(0)).on_reject(move |_, _| {
        let body = body.lock().unwrap().take().unwrap();
        let parts = futures_util::stream::unfold(body, |mut parts| async move {
            Some((parts.recv().await?, parts))
        });
        axum::body::Body::from_stream(parts).into_response()
    });
    let app = App::with(layer).await;
    let running = app.run("running").await;
    let mut refused = app.client("refused").send().await;
    parts.send(Ok("sorry")).unwrap();
    assert_eq!(refused.next().await.unwrap(), "sorry");
    parts.send(Err(std::io::Error::other("broken"))).unwrap();
    let end = http_body_util::BodyExt::frame(&mut refused.body).await;
    assert!(end.unwrap().is_err(), "a body that fails is not complete");
    app.jobs.finish(1);
    assert_eq!(running.await.unwrap().status, 200);
}

/// An app that is busy, with the answers of `layer` to all other requests.
async fn busy_with(layer: QueueLayer) -> (App, JoinHandle<Reply>) {
    let app = App::with(layer).await;
    let running = app.run("running").await;
    (app, running)
}

#[tokio::test]
async fn on_reject_sees_the_head_of_the_request() {
    let layer = QueueLayer::shed(1).on_reject(|_, request| {
        let matched = request.extensions().get::<MatchedPath>();
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        assert_eq!(request.method(), Method::GET);
        assert_eq!(request.version(), Version::HTTP_11);
        let text = format!(
            "{} {} {} {}",
            request.uri(),
            matched.unwrap().as_str(),
            request.headers()["x-name"].to_str().unwrap(),
            peer.unwrap().ip(),
        );
        Response::new(text)
    });
    let (handle, jobs) = (layer.handle(), Jobs::new());
    let run = |State(jobs): State<Jobs>, headers: HeaderMap| jobs.run(headers);
    let router = Router::new()
        .route("/jobs/{id}", on_get(run))
        .with_state(jobs.clone());
    let service = router
        .route_layer(layer)
        .into_make_service_with_connect_info::<SocketAddr>();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, service).await });

    let running = get(addr, "/jobs/1").named("running").spawn();
    until("it runs", || handle.status().running == 1).await;
    let refused = get(addr, "/jobs/2?x=y").named("refused").send().await;
    assert_eq!(
        refused.text().await,
        "/jobs/2?x=y /jobs/{id} refused 127.0.0.1"
    );
    jobs.finish(1);
    assert_eq!(running.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_returned_rejection_keeps_its_code_and_its_retry_after() {
    let layer = QueueLayer::shed(1)
        .on_reject(|why, _| why.clone().with_status(StatusCode::TOO_MANY_REQUESTS));
    let (app, _running) = busy_with(layer).await;
    let refused = app.client("refused").send().await;
    assert_eq!(
        (refused.status.as_u16(), refused.header("retry-after")),
        (429, "1")
    );
    assert_eq!(refused.code().await, "overloaded");

    let grpc = app
        .client("grpc")
        .header("content-type", "application/grpc");
    let refused = grpc.send().await;
    assert_eq!(
        (refused.status.as_u16(), refused.header("grpc-status")),
        (200, "8")
    );
    assert_eq!(refused.header("grpc-retry-pushback-ms"), "1000");
    assert_eq!(refused.text().await, "");
}

#[tokio::test]
async fn error_shapes_differ_by_path() {
    let layer = QueueLayer::shed(1).on_reject(|why, request| {
        let openai = why.clone().into_response();
        openai.map(|body| match request.uri().path() {
            "/other" => Full::from(format!(
                "{{\"type\":\"error\",\"message\":{:?}}}",
                why.message()
            )),
            _ => Full::new(body),
        })
    });
    let (app, _running) = busy_with(layer).await;
    assert_eq!(app.client("openai").send().await.code().await, "overloaded");
    let other = get(app.addr, "/other").send().await;
    assert_eq!(
        (other.status.as_u16(), other.header("retry-after")),
        (503, "1")
    );
    let expected = r#"{"type":"error","message":"the service is overloaded: every slot is busy"}"#;
    assert_eq!(other.text().await, expected);
}

#[tokio::test]
async fn on_reject_is_not_called_for_served_requests() {
    let layer = QueueLayer::new(QueueConfig::new(1))
        .on_reject(|_, _| -> Rejection { panic!("no request is rejected") });
    let (app, running) = busy_with(layer).await;
    let waiting = app.wait(app.client("waiting")).await;
    app.jobs.finish(2);
    for reply in [running, waiting] {
        assert_eq!(reply.await.unwrap().status, 200);
    }
}
