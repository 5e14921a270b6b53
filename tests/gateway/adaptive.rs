//! Tests of backends with `max_concurrent = "auto"`.

use crate::backend::Backend;
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
    assert_eq!(gateway.ask("m").answer().await.status, 429);
    assert_eq!(limit(&gateway).await, 18);
}
