//! Which of the endpoints that could serve a request is given it.

use std::time::Duration;

use tokio::time::sleep;

use crate::backend::{Arrived, Backend};
use crate::client::Sent;
use crate::process::{Gateway, Setup};

/// Requests that are being served for as long as this is kept.
struct Held {
    sent: Vec<Sent>,
    arrived: Vec<Arrived>,
}

async fn hold(gateway: &Gateway, backend: &Backend, model: &str, count: usize) -> Held {
    let sent = (0..count).map(|_| gateway.ask(model).send()).collect();
    let mut arrived = Vec::new();
    for _ in 0..count {
        arrived.push(backend.next().await);
    }
    Held { sent, arrived }
}

/// One more request for `m`: does it go to `chosen`?
async fn goes_to(gateway: &Gateway, chosen: &Backend) {
    let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
        chosen.next().await.answer("chosen");
    });
    answer.must_say("chosen");
}

async fn three() -> [Backend; 3] {
    [
        Backend::saying("0").await,
        Backend::saying("1").await,
        Backend::saying("2").await,
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
async fn round_robin_gives_each_of_three_two_of_six() {
    let backends = three().await;
    let gateway = gateway("strategy = \"round_robin\"", &backends, 4).await;
    for turn in ["0", "1", "2", "0", "1", "2"] {
        gateway.ask("m").answer().await.must_say(turn);
        // Another model has turns of its own.
        gateway.ask("n").answer().await.must_say(turn);
    }
}

#[tokio::test]
async fn round_robin_is_as_even_when_all_come_at_once() {
    let backends = three().await;
    let gateway = gateway("strategy = \"round_robin\"", &backends, 300).await;
    let sent: Vec<Sent> = (0..300).map(|_| gateway.ask("m").send()).collect();
    for sent in sent {
        assert_eq!(sent.answer().await.status, 200);
    }
    assert_eq!(backends.map(|backend| backend.counts().arrived), [100; 3]);
}

#[tokio::test]
async fn priority_only_takes_the_lowest_number_however_busy_it_is() {
    let (second, first) = (Backend::start().await, Backend::start().await);
    let with = |priority| {
        format!("priority = {priority}\nmax_concurrent = 10\nmodels = [{{ name = \"m\" }}]")
    };
    let setup = Setup::new()
        .routing("strategy = \"priority_only\"")
        .backend_with("second", &second.url(), &with(2))
        .backend_with("first", &first.url(), &with(1));
    let gateway = setup.start().await;
    goes_to(&gateway, &first).await;
    let _all_of_them = hold(&gateway, &first, "m", 10).await;
    assert_eq!(second.counts().arrived, 0);
    goes_to(&gateway, &second).await;
}

#[tokio::test]
async fn random_is_about_even() {
    let backends = three().await;
    let gateway = gateway("strategy = \"random\"", &backends, 100).await;
    for _ in 0..10 {
        let sent: Vec<Sent> = (0..100).map(|_| gateway.ask("m").send()).collect();
        for sent in sent {
            assert_eq!(sent.answer().await.status, 200);
        }
    }
    for backend in &backends {
        // 333 with a standard deviation of 15: a coin would have to fall on its edge to leave this.
        let arrived = backend.counts().arrived;
        assert!((250..450).contains(&arrived), "{arrived}");
    }
}

/// Endpoints `a` and `b`, each for a model of its own name, and for `m`.
async fn pair(routing: &str, slots: u32) -> (Gateway, Backend, Backend) {
    let (a, b) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .routing(routing)
        .backend("a", &a, slots, &["a", "m"])
        .backend("b", &b, slots, &["b", "m"]);
    (setup.start().await, a, b)
}

#[tokio::test]
async fn who_has_less_to_do_scores_higher() {
    let (gateway, a, b) = pair("", 100).await;
    let _busy = hold(&gateway, &a, "a", 10).await;
    let _less_busy = hold(&gateway, &b, "b", 2).await;
    goes_to(&gateway, &b).await;
}

#[tokio::test]
async fn who_is_quicker_scores_higher_and_who_is_unknown_highest() {
    let (gateway, a, b) = pair("weights = { priority = 0, load = 0, latency = 100 }", 4).await;
    let slow = async |model, backend: &Backend, length| {
        let sent = gateway.ask(model).send();
        let arrived = backend.next().await;
        sleep(length).await;
        arrived.answer("slow");
        sent.answer().await.must_say("slow");
    };
    slow("a", &a, Duration::from_millis(800)).await;
    for _ in 0..3 {
        goes_to(&gateway, &b).await;
    }
    slow("b", &b, Duration::from_millis(50)).await;
    for _ in 0..3 {
        goes_to(&gateway, &b).await;
    }
}

#[tokio::test]
async fn of_equal_scores_the_first_in_the_file_is_taken() {
    let (gateway, a, b) = pair("weights = { priority = 50, load = 50, latency = 0 }", 4).await;
    for _ in 0..5 {
        goes_to(&gateway, &a).await;
    }
    let _busy = hold(&gateway, &a, "a", 2).await;
    goes_to(&gateway, &b).await;
}

#[tokio::test]
async fn a_priority_above_100_is_as_bad_as_100() {
    for (priorities, chosen) in [([1000, 100], 0), ([1000, 99], 1), ([101, 1000], 0)] {
        let backends = [Backend::start().await, Backend::start().await];
        let mut setup = Setup::new().routing("weights = { priority = 100, load = 0, latency = 0 }");
        for (n, priority) in priorities.into_iter().enumerate() {
            let lines = format!("priority = {priority}\nmodels = [{{ name = \"m\" }}]");
            setup = setup.backend_with(&format!("gpu-{n}"), &backends[n].url(), &lines);
        }
        let gateway = setup.start().await;
        for _ in 0..2 {
            goes_to(&gateway, &backends[chosen]).await;
        }
    }
}

#[tokio::test]
async fn more_than_100_in_flight_are_as_bad_as_100() {
    let (gateway, a, b) = pair("weights = { priority = 0, load = 100, latency = 0 }", 200).await;
    let _more = hold(&gateway, &a, "a", 130).await;
    let less = hold(&gateway, &b, "b", 101).await;
    goes_to(&gateway, &a).await;
    less.arrived
        .into_iter()
        .for_each(|arrived| arrived.answer("done"));
    for sent in less.sent {
        sent.answer().await.must_say("done");
    }
    gateway
        .until("b is idle", |state| state.in_flight()[1] == 0)
        .await;
    goes_to(&gateway, &b).await;
}

#[tokio::test]
async fn an_unknown_strategy_is_smart_and_the_log_says_so() {
    let (gateway, a, b) = pair("strategy = \"best\"", 10).await;
    gateway
        .logs(&["WARN", "strategy", "\"best\"", "smart"])
        .await;
    let _busy = hold(&gateway, &a, "a", 5).await;
    goes_to(&gateway, &b).await;
}
