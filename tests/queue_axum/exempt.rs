//! Requests outside of the queue: by a rule, and by the router.

use super::*;

#[tokio::test]
async fn health_checks_pass_a_full_room() {
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(0))
        .exempt(|request| request.uri().path() == "/health");
    let handle = layer.handle();
    let jobs = Jobs::new();
    let router = router(&jobs).route("/health", on_get(|| async { "ok" }));
    let addr = serve(router.layer(layer)).await;
    let running = get(addr, "/").spawn();
    until("it runs", || jobs.running() == 1).await;

    assert_eq!(get(addr, "/health").send().await.text().await, "ok");
    assert_eq!(get(addr, "/").send().await.status, 503);
    handle.close();
    assert_eq!(get(addr, "/health").send().await.text().await, "ok");
    jobs.finish(1);
    assert_eq!(running.await.unwrap().text().await, "served");
    until("the slot is free", || handle.status().running == 0).await;
    assert_eq!(handle.status().served, 1);
}

#[tokio::test]
async fn with_route_layer_unknown_paths_are_not_found_in_a_full_room() {
    let queue = || QueueLayer::new(QueueConfig::new(0).max_size(0));
    let jobs = Jobs::new();
    let around_all = serve(router(&jobs).layer(queue())).await;
    let around_routes = serve(router(&jobs).route_layer(queue())).await;
    for (addr, unknown) in [(around_all, 503), (around_routes, 404)] {
        assert_eq!(get(addr, "/unknown").send().await.status, unknown);
        assert_eq!(get(addr, "/").send().await.status, 503);
    }
}
