//! Endpoints that serve requests while they do not answer their checks.

use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::mpsc;
use tokio::time::{pause, resume};

use super::*;

/// A check that decides at its first failure, with enough time for a test to act meanwhile.
fn one_failure_is_enough() -> HealthCheck {
    often().timeout(SOON / 4).unhealthy_after(1)
}

/// Lets the time of a check pass.
async fn is_late(check: Connection) {
    pause();
    soon(check.closed()).await;
    resume();
}

/// A request that runs at `a`, which has passed its first check; the next one has begun.
async fn busy(router: &TestRouter, upstream: &Upstream) -> (JoinHandle<(u16, String)>, Connection) {
    answer(upstream, WELL).await;
    until(|| router.endpoint("a").healthy()).await;
    let (check, _) = check_at(upstream).await;
    (router.enter("m").await, check)
}

#[tokio::test]
async fn an_answer_during_a_late_check_means_busy() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of([endpoint("a", &upstream).health(one_failure_is_enough())]);
    let _checks = router.checks();
    let (running, check) = busy(&router, &upstream).await;
    router.go.add_permits(1);
    assert_eq!(soon(running).await.unwrap().0, 200);
    is_late(check).await;
    let (_next, _) = check_at(&upstream).await;
    assert!(router.endpoint("a").healthy());
}

#[tokio::test]
async fn an_endpoint_that_streams_is_busy_not_down() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of([endpoint("a", &upstream).health(one_failure_is_enough())]);
    let _checks = router.checks();
    answer(&upstream, WELL).await;

    let (bytes, rest) = mpsc::unbounded_channel::<Bytes>();
    let rest = std::sync::Mutex::new(Some(rest));
    let inner = service_fn(move |_: Request<RouteBody<Empty<Bytes>>>| {
        let rest = rest.lock().unwrap().take();
        let frames = stream::unfold(rest, async |mut rest| {
            let bytes = rest.as_mut()?.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(bytes)), rest))
        });
        let body = StreamBody::new(Box::pin(frames));
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let inner = tower::util::BoxService::new(inner);
    let inner = tower::buffer::Buffer::new(inner, 1);
    let request = Request::get("/").header(MODEL, "m").body(Empty::new());
    let response = router.layer.layer(inner).oneshot(request.unwrap());
    let mut body = soon(response).await.unwrap().into_body();

    for _ in 0..2 {
        let (check, _) = check_at(&upstream).await;
        bytes.send("word".into()).unwrap();
        soon(body.frame()).await.unwrap().unwrap();
        is_late(check).await;
    }
    let (silent, _) = check_at(&upstream).await;
    assert!(router.endpoint("a").healthy());
    // A check without any activity counts once nothing runs there.
    drop(body);
    is_late(silent).await;
    until(|| !router.endpoint("a").healthy()).await;
}

#[tokio::test]
async fn late_checks_are_no_proof_against_the_last_endpoint_at_work() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of([endpoint("a", &upstream).health(one_failure_is_enough())]);
    let _checks = router.checks();
    let (running, check) = busy(&router, &upstream).await;
    let waits = router.ask("m");
    is_late(check).await;
    let (next, _) = check_at(&upstream).await;
    assert!(router.endpoint("a").healthy());
    is_late(next).await;
    assert!(!waits.is_finished(), "it loses nothing by waiting");
    router.go.add_permits(2);
    assert_eq!(soon(running).await.unwrap().0, 200);
    assert_eq!(soon(waits).await.unwrap().0, 200);
    pause();
    until(|| !router.endpoint("a").healthy()).await; // nothing runs there any more
}

#[tokio::test]
async fn late_checks_count_where_another_endpoint_is_in_service() {
    let upstream = Upstream::bind().await;
    let checked = endpoint("a", &upstream).health(one_failure_is_enough());
    let other = endpoint("b", &upstream).priority(90);
    let router = TestRouter::of([checked, other]);
    let _checks = router.checks();
    let (_running, check) = busy(&router, &upstream).await;
    is_late(check).await;
    until(|| !router.endpoint("a").healthy()).await;
}

#[tokio::test]
async fn refused_connections_count_although_requests_are_answered() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of([endpoint("a", &upstream).health(one_failure_is_enough())]);
    let _checks = router.checks();
    let (running, check) = busy(&router, &upstream).await;
    drop(upstream);
    router.go.add_permits(1);
    soon(running).await.unwrap();
    drop(check);
    until(|| !router.endpoint("a").healthy()).await;
}
