//! What the gateway says of its priority levels: in `/admin/state`, and in `/metrics`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::backend::Backend;
use crate::metrics::{assert_samples, scrape};
use crate::process::{Gateway, Setup};

async fn level(gateway: &Gateway, nth: usize) -> Value {
    gateway.state().await.0["queue"]["levels"][nth].clone()
}

#[tokio::test]
async fn a_reserved_slot_is_shown_and_left_to_its_level() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .queue("reserve = { high = 1 }")
        .backend("gpu-1", &backend, 2, &["m"]);
    let gateway = setup.start().await;
    let mut shown = level(&gateway, 0).await;
    // Nothing is known yet of what is idle: more than half of what the room lets a request wait.
    let target = shown["target_wait_seconds"].take().as_f64().unwrap();
    assert!((15.0..30.0).contains(&target), "{target}");
    assert_eq!(
        shown,
        json!({
            "name": "high", "waiting": 0, "refused": 0, "estimated_wait_seconds": 0.0, "target_wait_seconds": null,
            "reserved": 1,
        })
    );
    let normal = [gateway.ask("m").send(), gateway.ask("m").send()];
    let first = backend.next().await;
    gateway.depth(1).await;
    let high = gateway.ask("m").high().send();
    let second = backend.next().await;
    let shown = level(&gateway, 1).await;
    assert_eq!(shown["waiting"], 1);
    assert_eq!(shown["estimated_wait_seconds"], Value::Null);
    assert_samples(
        &scrape(&gateway).await,
        &[
            ("triage_level_waiting{priority=\"normal\"}", 1.0),
            ("triage_level_reserved_slots{priority=\"high\"}", 1.0),
            ("triage_level_reserved_slots{priority=\"normal\"}", 0.0),
            (
                "triage_level_target_wait_seconds{priority=\"high\"}",
                target,
            ),
        ],
    );
    first.answer("ok");
    second.answer("ok");
    backend.next().await.answer("ok");
    for sent in normal.into_iter().chain([high]) {
        sent.answer().await.assert_ok("ok");
    }
}

#[tokio::test]
async fn refusals_of_a_lower_level_are_counted_for_it_alone() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .queue("max_size = 100")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let _normal: Vec<_> = (0..60).map(|_| gateway.ask("m").send()).collect();
    gateway.depth(59).await;
    // From these, the gateway learns that a slot comes back every 50 ms or more: about 2.5 s for all that wait.
    for _ in 0..10 {
        let next = backend.next().await;
        sleep(Duration::from_millis(50)).await;
        next.answer("ok");
    }
    gateway.depth(49).await;
    let ask = || gateway.ask("m").header("x-request-timeout", "1");
    ask().answer().await.assert_error(503, "overloaded");
    let _high = ask().high().send();
    gateway.depth(50).await;

    let (high, normal) = (level(&gateway, 0).await, level(&gateway, 1).await);
    let counts = |level: &Value| [level["waiting"].clone(), level["refused"].clone()];
    assert_eq!(counts(&high), [json!(1), json!(0)]);
    assert_eq!(counts(&normal), [json!(49), json!(1)]);
    let wait = |level: &Value| level["estimated_wait_seconds"].as_f64().unwrap();
    assert!(wait(&high) > 0.0 && wait(&normal) > 10.0 * wait(&high));
    let samples = scrape(&gateway).await;
    assert_samples(
        &samples,
        &[
            ("triage_level_waiting{priority=\"high\"}", 1.0),
            ("triage_level_waiting{priority=\"normal\"}", 49.0),
            (
                "triage_level_rejected_total{priority=\"normal\",code=\"overloaded\"}",
                1.0,
            ),
        ],
    );
    let refused = samples.keys();
    let refused = refused.filter(|name| name.starts_with("triage_level_rejected_total"));
    assert_eq!(refused.count(), 1, "{samples:#?}");
    assert!(samples["triage_level_estimated_wait_seconds{priority=\"normal\"}"] > 1.0);
}

#[tokio::test]
async fn a_limit_that_adapts_says_how() {
    let backend = Backend::start().await;
    let lines =
        "max_concurrent = \"auto\"\nlimit = { algorithm = \"aimd\", initial = 3, max = 64 }";
    let models = "models = [{ name = \"m\" }]";
    let gateway = Setup::new()
        .backend_with("auto", &backend.url(), &format!("{lines}\n{models}"))
        .backend("fixed", &backend, 2, &["m"])
        .start()
        .await;
    let state = gateway.state().await.0;
    assert_eq!(state["endpoints"][0]["limit"], 3);
    assert_eq!(
        state["endpoints"][0]["adaptive"],
        json!({ "algorithm": "aimd", "min": 1, "max": 64, "initial": 3 })
    );
    assert_eq!(state["endpoints"][1].get("adaptive"), None);
    let adaptive = |endpoint| format!("triage_endpoint_limit_adaptive{{endpoint=\"{endpoint}\"}}");
    assert_samples(
        &scrape(&gateway).await,
        &[(&adaptive("auto"), 1.0), (&adaptive("fixed"), 0.0)],
    );
}
