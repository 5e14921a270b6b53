//! Tests of routing strategies: which of the suitable endpoints gets a request.

use std::time::Duration;

use tokio::time::sleep;

use crate::backend::{Backend, BackendRequest};
use crate::client::PendingResponse;
use crate::process::{Gateway, Setup};

/// Requests that run until this is dropped.
struct HeldRequests {
    sent: Vec<PendingResponse>,
    arrived: Vec<BackendRequest>,
}

async fn hold(gateway: &Gateway, backend: &Backend, model: &str, count: usize) -> HeldRequests {
    let sent = (0..count).map(|_| gateway.ask(model).send()).collect();
    let mut arrived = Vec::new();
    for _ in 0..count {
        arrived.push(backend.next().await);
    }
    HeldRequests { sent, arrived }
}

/// Asserts that the next request for `m` goes to `chosen`.
async fn assert_goes_to(gateway: &Gateway, chosen: &Backend) {
    let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
        chosen.next().await.answer("chosen");
    });
    answer.assert_ok("chosen");
}

async fn three() -> [Backend; 3] {
    [
        Backend::replying("0").await,
        Backend::replying("1").await,
        Backend::replying("2").await,
    ]
}

async fn gateway(routing: &str, backends: &[Backend; 3], slots: u32) -> Gateway {
    let mut setup = Setup::new().routing(routing);
    for (n, backend) in backends.iter().enumerate() {
        setup = setup.backend(&format!("gpu-{n}"), backend, slots, &["m", "n"]);
    }
    setup.start().await
}

#[tokio::test]
async fn round_robin_gives_two_of_six_to_each() {
    let backends = three().await;
    let gateway = gateway("strategy = \"round_robin\"", &backends, 4).await;
    for next in ["0", "1", "2", "0", "1", "2"] {
        gateway.ask("m").answer().await.assert_ok(next);
        // Each model has a rotation of its own.
        gateway.ask("n").answer().await.assert_ok(next);
    }
}

#[tokio::test]
async fn round_robin_is_even_under_concurrent_load() {
    let backends = three().await;
    let gateway = gateway("strategy = \"round_robin\"", &backends, 300).await;
    let sent: Vec<PendingResponse> = (0..300).map(|_| gateway.ask("m").send()).collect();
    for sent in sent {
        assert_eq!(sent.answer().await.status, 200);
    }
    assert_eq!(backends.map(|backend| backend.counts().arrived), [100; 3]);
}

#[tokio::test]
async fn priority_only_picks_lowest_number_until_full() {
    let (second, first) = (Backend::start().await, Backend::start().await);
    let with = |priority| {
        format!("priority = {priority}\nmax_concurrent = 10\nmodels = [{{ name = \"m\" }}]")
    };
    let setup = Setup::new()
        .routing("strategy = \"priority_only\"")
        .backend_with("second", &second.url(), &with(2))
        .backend_with("first", &first.url(), &with(1));
    let gateway = setup.start().await;
    assert_goes_to(&gateway, &first).await;
    let _all_of_them = hold(&gateway, &first, "m", 10).await;
    assert_eq!(second.counts().arrived, 0);
    assert_goes_to(&gateway, &second).await;
}

#[tokio::test]
async fn random_spreads_requests_about_evenly() {
    let backends = three().await;
    let gateway = gateway("strategy = \"random\"", &backends, 100).await;
    for _ in 0..10 {
        let sent: Vec<PendingResponse> = (0..100).map(|_| gateway.ask("m").send()).collect();
        for sent in sent {
            assert_eq!(sent.answer().await.status, 200);
        }
    }
    for backend in &backends {
        // Expected 333, with a standard deviation of 15: the bounds are more than 5 deviations away.
        let arrived = backend.counts().arrived;
        assert!((250..450).contains(&arrived), "{arrived}");
    }
}

/// Endpoints `a` and `b`, each with a model of its own name and with `m`.
async fn pair(routing: &str, slots: u32) -> (Gateway, Backend, Backend) {
    let (a, b) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .routing(routing)
        .backend("a", &a, slots, &["a", "m"])
        .backend("b", &b, slots, &["b", "m"]);
    (setup.start().await, a, b)
}

#[tokio::test]
async fn less_loaded_endpoint_scores_higher() {
    let (gateway, a, b) = pair("", 100).await;
    let _busy = hold(&gateway, &a, "a", 10).await;
    let _less_busy = hold(&gateway, &b, "b", 2).await;
    assert_goes_to(&gateway, &b).await;
}

#[tokio::test]
async fn faster_endpoint_scores_higher_and_unmeasured_highest() {
    let (gateway, a, b) = pair("weights = { priority = 0, load = 0, latency = 100 }", 4).await;
    let slow = async |model, backend: &Backend, length| {
        let sent = gateway.ask(model).send();
        let arrived = backend.next().await;
        sleep(length).await;
        arrived.answer("slow");
        sent.answer().await.assert_ok("slow");
    };
    slow("a", &a, Duration::from_secs(3)).await;
    for _ in 0..3 {
        assert_goes_to(&gateway, &b).await;
    }
    slow("b", &b, Duration::ZERO).await;
    for _ in 0..3 {
        assert_goes_to(&gateway, &b).await;
    }
}

#[tokio::test]
async fn equal_endpoints_share_the_requests_at_random() {
    let replying = [(); 2].map(|()| Backend::replying("ok"));
    let [a, b] = futures_util::future::join_all(replying)
        .await
        .try_into()
        .unwrap_or_else(|_| panic!("two"));
    let gateway = Setup::new()
        .backend("a", &a, 100, &["m"])
        .backend("b", &b, 100, &["m"])
        .routing("weights = { priority = 50, load = 50, latency = 0 }")
        .start()
        .await;
    for _ in 0..60 {
        gateway.ask("m").answer().await.assert_ok("ok");
    }
    for backend in [a, b] {
        // Expected 30, with a standard deviation of 4: the bound is 7 deviations away.
        assert!(backend.counts().arrived > 2, "{:?}", backend.counts());
    }
}

#[tokio::test]
async fn priority_above_100_is_clamped() {
    for (priorities, chosen) in [([1000, 99], 1), ([99, 1000], 0)] {
        let backends = [Backend::start().await, Backend::start().await];
        let mut setup = Setup::new().routing("weights = { priority = 100, load = 0, latency = 0 }");
        for (n, priority) in priorities.into_iter().enumerate() {
            let lines = format!("priority = {priority}\nmodels = [{{ name = \"m\" }}]");
            setup = setup.backend_with(&format!("gpu-{n}"), &backends[n].url(), &lines);
        }
        let gateway = setup.start().await;
        for _ in 0..2 {
            assert_goes_to(&gateway, &backends[chosen]).await;
        }
    }
}

#[tokio::test]
async fn load_is_the_share_of_the_slots_in_use() {
    let (a, b) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .routing("weights = { priority = 0, load = 100, latency = 0 }")
        .backend("a", &a, 10, &["a", "m"])
        .backend("b", &b, 100, &["b", "m"]);
    let gateway = setup.start().await;
    let few = hold(&gateway, &a, "a", 4).await;
    let _many = hold(&gateway, &b, "b", 10).await;
    assert_goes_to(&gateway, &b).await;
    few.arrived
        .into_iter()
        .for_each(|arrived| arrived.answer("done"));
    for sent in few.sent {
        sent.answer().await.assert_ok("done");
    }
    gateway
        .until("a is idle", |state| state.in_flight()[0] == 0)
        .await;
    assert_goes_to(&gateway, &a).await;
}
