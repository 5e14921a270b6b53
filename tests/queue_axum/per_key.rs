//! A limit for each matched path.

use axum::body::Body;
use axum::extract::MatchedPath;
use tower::util::option_layer;

use super::*;

#[tokio::test]
async fn each_matched_path_has_a_limit_over_all_connections() {
    let queue = QueueLayer::shed(1).per_key(|request| {
        let path = request.extensions().get::<MatchedPath>();
        path.map_or("", MatchedPath::as_str)
    });
    let handle = queue.handle();
    let queue = option_layer(Some(queue.map_response_body(Body::new)));
    let jobs = Jobs::new();
    let user = |State(jobs): State<Jobs>, headers: HeaderMap| jobs.run(headers);
    let users = Router::new()
        .route("/users/{id}", on_get(user))
        .with_state(jobs.clone());
    let addr = serve(router(&jobs).merge(users).layer(queue)).await;

    let running = ["/users/1", "/other"].map(|path| get(addr, path).spawn());
    until("both run", || jobs.running() == 2).await;
    let refused = get(addr, "/users/2").send().await;
    assert_eq!(refused.code().await, "overloaded");
    let keys = handle
        .status()
        .into_iter()
        .map(|(key, status)| (key, status.running));
    let expected = [(None, 0), (Some("/other"), 1), (Some("/users/{id}"), 1)];
    assert!(keys.eq(expected.map(|(key, running)| (key.map(str::to_owned), running))));
    jobs.finish(2);
    for reply in running {
        assert_eq!(reply.await.unwrap().text().await, "served");
    }
}
