//! Tests of many requests that wait for models on shared endpoints.

use http_body_util::BodyExt;

use crate::backend::Backend;
use crate::client::PendingResponse;
use crate::process::Setup;

#[tokio::test]
async fn disconnects_mid_response_free_slots_on_every_endpoint() {
    let backends = [Backend::start().await, Backend::start().await];
    let setup = Setup::new()
        .routing("strategy = \"round_robin\"")
        .backend("gpu-1", &backends[0], 3, &["m"])
        .backend("gpu-2", &backends[1], 3, &["m"]);
    let gateway = setup.start().await;
    let (mut bodies, mut streams) = (Vec::new(), Vec::new());
    for n in 0..5 {
        let asked = gateway.ask("m").open();
        let backend = &backends[n % 2];
        let (response, stream) = tokio::join!(asked, async { backend.next().await.stream() });
        stream.send("a word");
        let mut body = response.into_body();
        let word = body.frame().await.unwrap().unwrap();
        assert_eq!(word.into_data().unwrap(), "a word");
        bodies.push(body);
        streams.push(stream);
    }
    assert_eq!(gateway.state().await.in_flight(), [3, 2]);
    drop(bodies);
    for stream in streams {
        stream.disconnected().await;
    }
    gateway.idle().await;
    for backend in &backends {
        assert_eq!(backend.counts().in_flight, 0);
    }
}

#[tokio::test]
async fn concurrent_requests_fill_every_slot_of_four_endpoints() {
    let mut backends = Vec::new();
    let mut setup = Setup::new();
    for n in 0..4 {
        let backend = Backend::start().await;
        setup = setup.backend(&format!("gpu-{n}"), &backend, 50, &["m"]);
        backends.push(backend);
    }
    let gateway = setup.start().await;
    let sent: Vec<PendingResponse> = (0..200).map(|_| gateway.ask("m").send()).collect();
    let mut arrived = Vec::new();
    for backend in &backends {
        for _ in 0..50 {
            arrived.push(backend.next().await);
        }
    }
    let state = gateway.state().await;
    assert_eq!((state.in_flight(), state.depth()), (vec![50; 4], 0));
    arrived
        .into_iter()
        .for_each(|arrived| arrived.answer("fine"));
    for sent in sent {
        sent.answer().await.assert_ok("fine");
    }
    for backend in &backends {
        let counts = backend.counts();
        assert_eq!((counts.arrived, counts.peak), (50, 50));
    }
    gateway.idle().await;
}

#[tokio::test]
async fn fair_discipline_shares_an_endpoint_among_models() {
    let backend = Backend::start().await;
    let models: Vec<String> = (0..10).map(|n| format!("model-{n}")).collect();
    let names: Vec<&str> = models.iter().map(String::as_str).collect();
    let setup = Setup::new()
        .queue("max_size = 500\ndiscipline = \"fair\"\nmax_wait_seconds = 600")
        .backend("gpu-1", &backend, 1, &names);
    let gateway = setup.start().await;
    let first = gateway.ask("model-0").send();
    let running = backend.next().await;
    let mut sent = Vec::new();
    for (n, model) in names.iter().enumerate() {
        sent.extend((0..50).map(|_| gateway.ask(model).send()));
        gateway.depth(50 * (n as u64 + 1)).await;
    }
    running.answer("fine");
    first.answer().await.assert_ok("fine");
    let mut served: Vec<String> = Vec::new();
    for _ in 0..500 {
        let arrived = backend.next().await;
        served.push(arrived.model());
        arrived.answer("fine");
    }
    // Time with the slot counts, too, so later turns depend on how long the answers took. The first model has had one.
    let mut first_turns = served[..10].to_vec();
    first_turns.retain(|model| model != "model-0");
    first_turns.sort_unstable();
    first_turns.dedup();
    assert_eq!(first_turns, names[1..], "{served:?}");
    for sent in sent {
        sent.answer().await.assert_ok("fine");
    }
    assert_eq!(backend.counts().peak, 1);
}

#[tokio::test]
async fn waiters_are_served_by_last_endpoint_after_it_fails() {
    for retries in [0, 2] {
        let backend = Backend::start().await;
        let setup = Setup::new()
            .queue("max_wait_seconds = 600")
            .routing("eject_after = 1\neject_seconds = 600")
            .routing(&format!("max_retries = {retries}"))
            .backend("gpu-1", &backend, 1, &["m"]);
        let gateway = setup.start().await;
        let running = gateway.ask("m").send();
        let arrived = backend.next().await;
        let waiting: Vec<PendingResponse> = (0..20).map(|_| gateway.ask("m").send()).collect();
        gateway.depth(20).await;
        drop(arrived);
        running.answer().await.assert_error(502, "upstream_failed");
        for _ in 0..20 {
            backend.next().await.answer("fine");
        }
        for sent in waiting {
            sent.answer().await.assert_ok("fine");
        }
        gateway.idle().await;
        assert_eq!(backend.counts().arrived, 21);
    }
}

#[tokio::test]
async fn waiters_move_to_fallback_when_last_endpoint_is_ejected() {
    let (big, small) = (Backend::start().await, Backend::replying("small").await);
    let setup = Setup::new()
        .queue("max_wait_seconds = 600")
        .routing("eject_after = 1\neject_seconds = 600")
        .routing("fallbacks = { big = [\"small\"] }")
        .backend("gpu-1", &big, 1, &["big"])
        .backend("gpu-2", &small, 4, &["small"]);
    let gateway = setup.start().await;
    let mut sent = vec![gateway.ask("big").send()];
    let arrived = big.next().await;
    sent.extend((0..20).map(|_| gateway.ask("big").send()));
    gateway.depth(20).await;
    assert_eq!(small.counts().arrived, 0);
    drop(arrived);
    for sent in sent {
        let answer = sent.answer().await;
        answer.assert_ok("small");
        assert_eq!(answer.header("x-triage-model"), Some("small"));
    }
    assert!(small.counts().peak <= 4);
    gateway.idle().await;
}

#[tokio::test]
async fn model_room_bounds_its_own_waiters_only() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .routing("[routing.rooms.\"m\"]\nmax_size = 2")
        .backend("gpu-1", &backend, 1, &["m", "n"]);
    let gateway = setup.start().await;
    let mut sent = vec![gateway.ask("m").send()];
    let arrived = backend.next().await;
    for (depth, model) in (1..).zip(["m", "m", "n", "n", "n"]) {
        sent.push(gateway.ask(model).send());
        gateway.depth(depth).await;
    }
    let third = gateway.ask("m").answer().await;
    third.assert_error(503, "queue_full");
    sent.push(gateway.ask("n").send());
    gateway.depth(6).await;
    arrived.answer("fine");
    for _ in 0..6 {
        backend.next().await.answer("fine");
    }
    for sent in sent {
        sent.answer().await.assert_ok("fine");
    }
}
