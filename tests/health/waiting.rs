//! Waiting requests are served or rejected as soon as a check changes the health of an endpoint.

use tower_triage::endpoints::FallbackWhen;

use super::*;

#[tokio::test]
async fn waiters_are_rejected_when_the_last_endpoint_fails() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of([endpoint("a", &upstream).health(often())]);
    let _checks = router.checks();
    let running = router.enter("m").await;
    let waiting = router.enter("m").await;
    answer(&upstream, ILL).await;
    let (status, said) = soon(waiting).await.unwrap();
    assert_eq!(status, 503);
    assert!(said.contains("\"no_healthy_backend\""), "{said}");
    router.go.add_permits(1);
    assert_eq!(soon(running).await.unwrap(), (200, "a".into()));
}

#[tokio::test]
async fn waiters_take_the_fallback_when_the_last_fails() {
    let (a, b) = (Upstream::bind().await, Upstream::bind().await);
    let mut spare = endpoint("b", &b);
    spare.models = vec![Model::new("spare")];
    let router = TestRouter::routed(
        [endpoint("a", &a).health(often()), spare],
        RoutingConfig::default()
            .fallbacks("m", ["spare"])
            .fallback_when(FallbackWhen::Unavailable),
    );
    let _checks = router.checks();
    let _running = router.enter("m").await;
    let waiting = router.enter("m").await;
    assert_eq!(router.handle.status().depth, 1);
    answer(&a, ILL).await;
    until(|| router.endpoint("b").in_flight() == 1).await;
    router.go.add_permits(2);
    assert_eq!(soon(waiting).await.unwrap(), (200, "b".into()));
}

#[tokio::test]
async fn an_endpoint_that_is_back_serves_waiters() {
    let (a, b) = (Upstream::bind().await, Upstream::bind().await);
    let router = TestRouter::of([
        endpoint("a", &a),
        endpoint("b", &b).health(often().healthy_after(1)),
    ]);
    let _checks = router.checks();
    answer(&b, ILL).await;
    until(|| !router.endpoint("b").healthy()).await;
    let _running = router.enter("m").await;
    let waiting = router.enter("m").await;
    assert_eq!(router.handle.status().depth, 1);
    answer(&b, WELL).await;
    until(|| router.endpoint("b").in_flight() == 1).await;
    router.go.add_permits(2);
    assert_eq!(soon(waiting).await.unwrap(), (200, "b".into()));
}
