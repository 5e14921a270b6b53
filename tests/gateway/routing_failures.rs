//! Endpoints that fail, for a while or for good, and how little their clients see of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::time::Instant;

use crate::backend::{Backend, status};
use crate::client::Sent;
use crate::process::{Gateway, Setup};

/// A backend that answers `code` until it is changed.
async fn moody(code: u16) -> (Backend, Arc<AtomicU16>) {
    let mood = Arc::new(AtomicU16::new(code));
    let now = mood.clone();
    let backend = Backend::answering(move |arrived| arrived.respond(status(now.load(SeqCst))));
    (backend.await, mood)
}

#[tokio::test]
async fn nobody_sees_that_one_of_two_always_fails_and_it_is_soon_left_alone() {
    let (bad, _mood) = moody(503).await;
    let good = Backend::saying("good").await;
    let setup = Setup::new()
        .routing("strategy = \"round_robin\"\nmax_retries = 2\neject_seconds = 600")
        .backend("b1", &bad, 4, &["m"])
        .backend("b2", &good, 4, &["m"]);
    let gateway = setup.start().await;
    for _ in 0..100 {
        gateway.ask("m").answer().await.must_say("good");
    }
    assert_eq!((bad.counts().arrived, good.counts().arrived), (5, 100));
    assert_eq!(gateway.state().await.healthy(), [false, true]);
    gateway.logs(&["WARN", "b1", "out of service"]).await;
}

#[tokio::test]
async fn an_endpoint_that_was_left_alone_comes_back_when_it_is_well() {
    let (sick, mood) = moody(503).await;
    let good = Backend::saying("").await;
    let setup = Setup::new()
        .routing("strategy = \"round_robin\"\neject_after = 3\neject_seconds = 0.05")
        .backend("b1", &sick, 4, &["m"])
        .backend("b2", &good, 4, &["m"]);
    let gateway = setup.start().await;
    // Until it was tried once more, failed again, and is left alone for longer.
    while gateway.logged("left alone for a while") < 2 {
        assert_eq!(gateway.ask("m").answer().await.status, 200);
    }
    mood.store(200, SeqCst);
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
async fn what_clients_do_wrong_ejects_nobody() {
    let (strict, mood) = moody(400).await;
    let setup = Setup::new()
        .routing("eject_after = 1\neject_seconds = 600")
        .backend("gpu-1", &strict, 4, &["m"]);
    let gateway = setup.start().await;
    for code in [400, 401, 404, 422, 429] {
        mood.store(code, SeqCst);
        assert_eq!(gateway.ask("m").answer().await.status, code);
    }
    assert_eq!(gateway.state().await.healthy(), [true]);
}

/// Sends 1,000 requests, of which none succeeds; returns how many retries there may be of them.
async fn thousand_in_vain(gateway: &Gateway) -> usize {
    let start = Instant::now();
    for _ in 0..20 {
        let sent: Vec<Sent> = (0..50).map(|_| gateway.ask("m").send()).collect();
        for sent in sent {
            let answer = sent.answer().await;
            assert!([502, 503].contains(&answer.status), "{answer:?}");
        }
    }
    // A fifth of the requests, and 10 a second, which may be saved for 10 seconds.
    let tens = start.elapsed().as_secs() as usize / 10;
    200 + 100 * (tens + 1)
}

#[tokio::test]
async fn when_all_fail_retries_stay_within_their_budget() {
    let backends = [Backend::failing(503).await, Backend::failing(503).await];
    for eject_after in [0, 5] {
        let before = backends.each_ref().map(|backend| backend.counts().arrived);
        let setup = Setup::new()
            .routing(&format!("eject_after = {eject_after}"))
            .backend("b1", &backends[0], 50, &["m"])
            .backend("b2", &backends[1], 50, &["m"]);
        let gateway = setup.start().await;
        let allowed = thousand_in_vain(&gateway).await;
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
async fn when_all_refuse_connections_retries_stay_within_their_budget() {
    let (one, two) = (Backend::gone().await, Backend::gone().await);
    let setup = Setup::new()
        .routing("eject_after = 0")
        .backend_at("b1", &one, 50, &["m"])
        .backend_at("b2", &two, 50, &["m"]);
    let gateway = setup.start().await;
    let allowed = thousand_in_vain(&gateway).await;
    let tries = || gateway.logged("no answer from the endpoint");
    while tries() < 1_100 {
        tokio::task::yield_now().await; // the last lines are on their way
    }
    assert!(tries() <= 1_000 + allowed, "{} {allowed}", tries());
    gateway.idle().await;
}

#[tokio::test]
async fn the_last_that_answers_is_asked_no_more_than_the_budget_allows() {
    let last = Backend::failing(503).await;
    let setup = Setup::new()
        .backend_at("b1", &Backend::gone().await, 50, &["m"])
        .backend("b2", &last, 50, &["m"]);
    let gateway = setup.start().await;
    let allowed = thousand_in_vain(&gateway).await;
    let tries = last.counts().arrived;
    assert!(
        (900..=1_000 + allowed).contains(&tries),
        "{tries} {allowed}"
    );
    gateway.idle().await;
}

#[tokio::test]
async fn of_two_endpoints_that_refuse_connections_one_stays_in_service() {
    let gone = Backend::gone().await;
    let setup = Setup::new()
        .routing("eject_after = 5\neject_seconds = 600")
        .backend_at("b1", &gone, 50, &["m"])
        .backend_at("b2", &gone, 50, &["m"]);
    let gateway = setup.start().await;
    thousand_in_vain(&gateway).await;
    let healthy = gateway.state().await.healthy();
    assert!(healthy.contains(&true), "{healthy:?}");
    let answer = gateway.ask("m").answer().await;
    answer.must_be(502, "upstream_unreachable");
}
