//! Endpoints that come, go and change while checks run.

use futures_util::FutureExt;
use http::header::{AUTHORIZATION, HeaderValue};

use super::*;

#[tokio::test]
async fn added_endpoints_are_checked_and_removed_ones_not() {
    let (a, b) = (Upstream::bind().await, Upstream::bind().await);
    let router = TestRouter::of([endpoint("a", &a).health(often())]);
    let _checks = router.checks();
    let (first, _) = check_at(&a).await;

    let new = endpoint("b", &b).health(often());
    router.handle.change_endpoints(|all| all.push(new)).unwrap();
    answer(&b, ILL).await;
    until(|| !router.endpoint("b").healthy()).await;

    router
        .handle
        .change_endpoints(|all| _ = all.remove(0))
        .unwrap();
    soon(first.closed()).await;
    for _ in 0..5 {
        answer(&b, WELL).await;
    }
    assert!(router.endpoint("b").healthy());
    assert!(a.accept().now_or_never().is_none());
}

#[tokio::test]
async fn unrelated_changes_do_not_interrupt_checks() {
    let (a, b) = (Upstream::bind().await, Upstream::bind().await);
    let router = TestRouter::of([endpoint("a", &a).health(often())]);
    let checks = router.checks();
    for result in [WELL, ILL, ILL] {
        answer(&a, result).await;
    }
    let (mut third, _) = check_at(&a).await;
    let new = endpoint("b", &b).health(once());
    router
        .handle
        .change_endpoints(|all| {
            all[0] = all[0].clone().priority(7).model(Model::new("n"));
            all.push(new);
        })
        .unwrap();
    tokio::join!(answer(&b, WELL), soon(checks.first_results()));
    third.send(ILL).await;
    until(|| !router.endpoint("a").healthy()).await;
}

#[tokio::test]
async fn another_path_header_or_address_is_checked_anew() {
    let (a, b) = (Upstream::bind().await, Upstream::bind().await);
    let router = TestRouter::of([endpoint("a", &a).health(once())]);
    let checks = router.checks();
    let change = |to: Endpoint| {
        let changes = router.handle.change_endpoints(|all| all[0] = to).unwrap();
        assert_eq!(changes.changed, ["a"]);
    };
    let (first, _) = check_at(&a).await;

    change(endpoint("a", &a).health(HealthCheck::new("/up")));
    soon(first.closed()).await;
    let (second, head) = check_at(&a).await;
    assert!(head.starts_with("get /up "), "{head}");

    let keyed = endpoint("a", &a).header(AUTHORIZATION, HeaderValue::from_static("key"));
    change(keyed.health(once()));
    soon(second.closed()).await;
    let (mut third, head) = check_at(&a).await;
    assert!(head.contains("authorization: key"), "{head}");
    third.send(ILL).await;
    soon(checks.first_results()).await;
    assert!(!router.endpoint("a").healthy());

    change(endpoint("a", &b).health(once()));
    tokio::join!(answer(&b, WELL), soon(checks.first_results()));
    assert!(router.endpoint("a").healthy());
}

#[tokio::test]
async fn an_endpoint_that_loses_its_check_is_healthy() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of([endpoint("a", &upstream).health(once())]);
    let checks = router.checks();
    let first_results = soon(checks.first_results());
    upstream.accept_while(first_results, ILL).await;
    assert!(!router.endpoint("a").healthy());
    router
        .handle
        .change_endpoints(|all| all[0].health = None)
        .unwrap();
    until(|| router.endpoint("a").healthy()).await;
}

#[tokio::test]
async fn an_endpoint_added_again_forgets_its_old_checks() {
    let (a, b) = (Upstream::bind().await, Upstream::bind().await);
    let router = TestRouter::of([
        endpoint("a", &a).health(once()),
        endpoint("b", &b).health(once()),
    ]);
    let checks = router.checks();
    let first_results = soon(checks.first_results());
    tokio::join!(answer(&a, ILL), answer(&b, WELL), first_results);
    let old = router.endpoint("a");
    router
        .handle
        .change_endpoints(|all| _ = all.remove(0))
        .unwrap();
    until(|| old.healthy()).await;
    let again = endpoint("a", &a);
    router
        .handle
        .change_endpoints(|all| all.push(again))
        .unwrap();
    assert!(router.endpoint("a").healthy());
}

#[tokio::test]
async fn first_results_waits_for_an_endpoint_that_is_checked_again() {
    let a = Upstream::bind().await;
    let router = TestRouter::of([endpoint("a", &a).health(once())]);
    let checks = router.checks();
    tokio::join!(answer(&a, ILL), soon(checks.first_results()));
    let set_check = |check: Option<HealthCheck>| {
        let changed = router
            .handle
            .change_endpoints(|all| all[0].health = check.clone());
        changed.unwrap();
    };
    set_check(None);
    until(|| router.endpoint("a").healthy()).await;

    set_check(Some(once()));
    let mut results = std::pin::pin!(checks.first_results());
    let (_hangs, _) = check_at(&a).await;
    assert!((&mut results).now_or_never().is_none());
}

#[tokio::test]
async fn first_results_ignores_endpoints_no_longer_checked() {
    let (a, b) = (Upstream::bind().await, Upstream::bind().await);
    let router = TestRouter::of([endpoint("a", &a), endpoint("b", &b)]);
    let checks = router.checks();
    soon(checks.first_results()).await; // no endpoint has a check

    router
        .handle
        .change_endpoints(|all| all.iter_mut().for_each(|one| one.health = Some(once())))
        .unwrap();
    let mut results = std::pin::pin!(checks.first_results());
    assert!((&mut results).now_or_never().is_none());
    answer(&b, WELL).await;
    let (_hangs, _) = check_at(&a).await;
    assert!((&mut results).now_or_never().is_none());
    router
        .handle
        .change_endpoints(|all| all[0].health = None)
        .unwrap();
    soon(results).await;
}

#[tokio::test]
async fn all_checks_stop_when_they_are_dropped() {
    let (a, b) = (Upstream::bind().await, Upstream::bind().await);
    let router = TestRouter::of([
        endpoint("a", &a).health(often()),
        endpoint("b", &b).health(often()),
    ]);
    let checks = router.checks();
    let ((on_a, _), (on_b, _)) = tokio::join!(check_at(&a), check_at(&b));
    drop(checks);
    soon(on_a.closed()).await;
    soon(on_b.closed()).await;
}
