//! Tests of failing endpoints: retries, ejection, recovery and the retry budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::time::Instant;

use crate::backend::{Backend, status};
use crate::client::PendingResponse;
use crate::process::{Gateway, Setup};

/// A backend that answers with a status that the test can change.
async fn flaky(code: u16) -> (Backend, Arc<AtomicU16>) {
    let code = Arc::new(AtomicU16::new(code));
    let now = code.clone();
    let backend = Backend::answering(move |arrived| arrived.respond(status(now.load(SeqCst))));
    (backend.await, code)
}

#[tokio::test]
async fn retries_hide_failing_endpoint_until_it_is_ejected() {
    let (bad, _code) = flaky(503).await;
    let good = Backend::replying("good").await;
    let setup = Setup::new()
        .routing("strategy = \"round_robin\"\nmax_retries = 2\neject_seconds = 600")
        .backend("b1", &bad, 4, &["m"])
        .backend("b2", &good, 4, &["m"]);
    let gateway = setup.start().await;
    for _ in 0..100 {
        gateway.ask("m").answer().await.assert_ok("good");
    }
    assert_eq!((bad.counts().arrived, good.counts().arrived), (5, 100));
    assert_eq!(gateway.state().await.healthy(), [false, true]);
    gateway.logs(&["WARN", "b1", "out of service"]).await;
}

#[tokio::test]
async fn a_passing_check_shortens_an_ejection() {
    let (sick, code) = flaky(503).await;
    let good = Backend::replying("").await;
    let setup = Setup::new()
        .routing("strategy = \"round_robin\"\neject_seconds = 600")
        .backend_checked("b1", &sick.url(), "interval_seconds = 0.5")
        .backend("b2", &good, 4, &["m"]);
    let gateway = setup.start().await;
    while gateway.logged("left alone for a while") < 1 {
        assert_eq!(gateway.ask("m").answer().await.status, 200);
    }
    code.store(200, SeqCst);
    let end = Instant::now() + crate::process::TIMEOUT;
    while !gateway.state().await.healthy()[0] {
        assert!(Instant::now() < end, "it is still ejected");
        assert_eq!(gateway.ask("m").answer().await.status, 200);
    }
}

#[tokio::test]
async fn ejected_endpoint_returns_once_a_probe_succeeds() {
    let (sick, code) = flaky(503).await;
    let good = Backend::replying("").await;
    let setup = Setup::new()
        .routing("strategy = \"round_robin\"\neject_after = 3\neject_seconds = 0.05")
        .backend("b1", &sick, 4, &["m"])
        .backend("b2", &good, 4, &["m"]);
    let gateway = setup.start().await;
    // Until a probe has failed and it is ejected for a second, longer time.
    while gateway.logged("left alone for a while") < 2 {
        assert_eq!(gateway.ask("m").answer().await.status, 200);
    }
    code.store(200, SeqCst);
    while !gateway.state().await.healthy()[0] {
        assert_eq!(gateway.ask("m").answer().await.status, 200);
    }
    let before = sick.counts().arrived;
    for _ in 0..10 {
        assert_eq!(gateway.ask("m").answer().await.status, 200);
    }
    assert_eq!(sick.counts().arrived, before + 5);
}

#[tokio::test]
async fn client_errors_eject_no_endpoint() {
    let (strict, code) = flaky(400).await;
    let setup = Setup::new()
        .routing("eject_after = 1\neject_seconds = 600")
        .backend("gpu-1", &strict, 4, &["m"]);
    let gateway = setup.start().await;
    for status in [400, 401, 404, 422] {
        code.store(status, SeqCst);
        assert_eq!(gateway.ask("m").answer().await.status, status);
    }
    assert_eq!(gateway.state().await.healthy(), [true]);
}

/// Sends 1,000 requests that all fail; returns the largest number of retries that the budget allows.
async fn send_1000_failing(gateway: &Gateway) -> usize {
    let start = Instant::now();
    for _ in 0..20 {
        let sent: Vec<PendingResponse> = (0..50).map(|_| gateway.ask("m").send()).collect();
        for sent in sent {
            let answer = sent.answer().await;
            assert!([502, 503].contains(&answer.status), "{answer:?}");
        }
    }
    // A fifth of the requests, and 100 in each window. Tower's budget moves on by two of its ten slots each second, so its
    // window of 10 s takes 5 s.
    let windows = start.elapsed().as_secs() as usize / 5;
    200 + 100 * (windows + 1)
}

#[tokio::test]
async fn retry_budget_holds_when_all_endpoints_answer_503() {
    let backends = [Backend::failing(503).await, Backend::failing(503).await];
    for eject_after in [0, 5] {
        let before = backends.each_ref().map(|backend| backend.counts().arrived);
        let setup = Setup::new()
            .routing(&format!("eject_after = {eject_after}"))
            .backend("b1", &backends[0], 50, &["m"])
            .backend("b2", &backends[1], 50, &["m"]);
        let gateway = setup.start().await;
        let allowed = send_1000_failing(&gateway).await;
        let after = backends.each_ref().map(|backend| backend.counts().arrived);
        let tries = after.iter().sum::<usize>() - before.iter().sum::<usize>();
        assert!(
            (1_000..=1_000 + allowed).contains(&tries),
            "{tries} {allowed}"
        );
        assert!(eject_after > 0 || tries > 1_100, "{tries}");
        gateway.idle().await;
    }
}

#[tokio::test]
async fn retry_budget_holds_when_all_endpoints_refuse_connections() {
    let (one, two) = (Backend::unreachable(), Backend::unreachable());
    let setup = Setup::new()
        .routing("eject_after = 0")
        .backend_at("b1", &one, 50, &["m"])
        .backend_at("b2", &two, 50, &["m"]);
    let gateway = setup.start().await;
    let allowed = send_1000_failing(&gateway).await;
    let tries = || gateway.logged("no answer from the endpoint");
    while tries() < 1_100 {
        tokio::task::yield_now().await; // the last lines are not read yet
    }
    assert!(tries() <= 1_000 + allowed, "{} {allowed}", tries());
    gateway.idle().await;
}

#[tokio::test]
async fn retry_budget_bounds_load_on_last_reachable_endpoint() {
    let last = Backend::failing(503).await;
    let setup = Setup::new()
        .backend_at("b1", &Backend::unreachable(), 50, &["m"])
        .backend("b2", &last, 50, &["m"]);
    let gateway = setup.start().await;
    let allowed = send_1000_failing(&gateway).await;
    let tries = last.counts().arrived;
    assert!(
        (900..=1_000 + allowed).contains(&tries),
        "{tries} {allowed}"
    );
    gateway.idle().await;
}

#[tokio::test]
async fn one_of_two_refusing_endpoints_stays_in_service() {
    let gone = Backend::unreachable();
    let setup = Setup::new()
        .routing("eject_after = 5\neject_seconds = 600")
        .backend_at("b1", &gone, 50, &["m"])
        .backend_at("b2", &gone, 50, &["m"]);
    let gateway = setup.start().await;
    send_1000_failing(&gateway).await;
    let healthy = gateway.state().await.healthy();
    assert!(healthy.contains(&true), "{healthy:?}");
    let answer = gateway.ask("m").answer().await;
    answer.assert_error(502, "upstream_unreachable");
}
