//! Tests of backends with `max_concurrent = "auto"`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::time::sleep;

use crate::backend::{Backend, status};
use crate::process::{Gateway, Setup};

fn auto(backend: &Backend, limit: &str) -> Setup {
    let lines = format!(
        "max_concurrent = \"auto\"\nlimit = {{ algorithm = \"aimd\", {limit} }}\nmodels = [{{ name = \"m\" }}]"
    );
    Setup::new().backend_with("a", &backend.url(), &lines)
}

async fn limit(gateway: &Gateway) -> u64 {
    let state = gateway.state().await;
    state.0["endpoints"][0]["limit"].as_u64().unwrap()
}

#[tokio::test]
async fn limit_grows_while_waiters_are_served_and_survives_a_reload() {
    let backend = Backend::start().await;
    let gateway = auto(&backend, "initial = 1").start().await;
    assert_eq!(limit(&gateway).await, 1);
    let asked: Vec<_> = (0..3).map(|_| gateway.ask("m").send()).collect();
    backend.next().await.answer("ok");
    let (second, third) = (backend.next().await, backend.next().await);
    assert_eq!(limit(&gateway).await, 2);

    gateway.reload(&auto(&backend, "initial = 1, max = 64"));
    gateway.logs(&["INFO", "endpoints changed: a"]).await;
    assert_eq!(limit(&gateway).await, 2);
    second.answer("ok");
    third.answer("ok");
    for asked in asked {
        asked.answer().await.assert_ok("ok");
    }
    gateway.idle().await;
}

#[tokio::test]
async fn refusals_of_the_backend_lower_the_limit() {
    let backend = Backend::failing(429).await;
    let gateway = auto(&backend, "initial = 20").start().await;
    let asked = gateway.ask("m").header("x-request-timeout", "0.05");
    assert_eq!(asked.answer().await.status, 429);
    let limit = limit(&gateway).await;
    assert!(limit <= 18, "{limit}");
}

#[tokio::test]
async fn probes_of_a_backend_that_refuses_cost_no_client_its_answer() {
    for slots in [4, 16] {
        let (running, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let refusals = Arc::clone(&refused);
        let backend = Backend::answering(move |arrived| {
            if running.fetch_add(1, SeqCst) >= slots {
                running.fetch_sub(1, SeqCst);
                refusals.fetch_add(1, SeqCst);
                return arrived.respond(status(503));
            }
            let running = Arc::clone(&running);
            tokio::spawn(async move {
                sleep(Duration::from_millis(10)).await;
                running.fetch_sub(1, SeqCst);
                arrived.answer("ok");
            });
        })
        .await;
        let gateway = auto(&backend, &format!("initial = {slots}")).start().await;
        let clients = (0..2 * slots).map(|_| {
            let gateway = &gateway;
            async move {
                for _ in 0..40 {
                    gateway.ask("m").answer().await.assert_ok("ok");
                }
            }
        });
        futures_util::future::join_all(clients).await;
        assert!(refused.load(SeqCst) > 0, "{slots}: nothing was probed");
    }
}
