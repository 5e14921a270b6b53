//! Who waits, for how long, who goes next, and who is told to go away.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::backend::{Arrived, Backend};
use crate::client::{Ask, Sent};
use crate::process::{Gateway, Setup};

/// A gateway in front of one backend for model `m` whose only slot is taken.
struct Busy {
    gateway: Gateway,
    backend: Backend,
    first: Sent,
    running: Arrived,
}

impl Busy {
    async fn start(queue: &str) -> Self {
        let backend = Backend::start().await;
        let setup = Setup::new()
            .queue(queue)
            .backend("gpu-1", &backend, 1, &["m"]);
        let gateway = setup.start().await;
        let first = gateway.ask("m").send();
        let running = backend.next().await;
        Self {
            gateway,
            backend,
            first,
            running,
        }
    }

    /// Sends requests, each when the one before it waits.
    async fn queue(&self, asks: impl IntoIterator<Item = Ask>) -> Vec<Sent> {
        let before = self.gateway.state().await.depth();
        let mut sent = Vec::new();
        for (ask, depth) in asks.into_iter().zip(before + 1..) {
            sent.push(ask.send());
            self.gateway.depth(depth).await;
        }
        sent
    }

    /// Gives the slot back, and serves those who wait: in which order?
    async fn serve(self, waiters: Vec<Sent>) -> Vec<String> {
        self.running.answer("first");
        let mut order = Vec::new();
        for _ in &waiters {
            let next = self.backend.next().await;
            order.push(next.label().to_owned());
            next.answer("next");
        }
        self.first.answer().await.must_say("first");
        for waiter in waiters {
            waiter.answer().await.must_say("next");
        }
        assert_eq!(self.backend.counts().peak, 1);
        order
    }

    /// Gives the slot back when nobody waits.
    async fn free(self) -> (Gateway, Backend) {
        self.running.answer("first");
        self.first.answer().await.must_say("first");
        self.gateway.idle().await;
        (self.gateway, self.backend)
    }

    fn ask(&self, label: &str) -> Ask {
        self.gateway.ask("m").label(label)
    }
}

#[tokio::test]
async fn of_fifty_on_ten_chairs_ten_wait_and_forty_are_told_when_to_return() {
    let busy = Busy::start("max_size = 10").await;
    let mut all: Vec<Sent> = (0..50).map(|n| busy.ask(&n.to_string()).send()).collect();
    let full = |state: &crate::process::State| state.rejected("queue_full") == 40;
    let state = busy.gateway.until("40 rejected", full).await;
    assert_eq!((state.depth(), state.running()), (10, 1));
    let mut rejected = Vec::new();
    while rejected.len() < 40 {
        for sent in std::mem::take(&mut all) {
            if sent.is_answered() {
                rejected.push(sent.answer().await);
            } else {
                all.push(sent);
            }
        }
        sleep(Duration::from_millis(1)).await;
    }
    for answer in &rejected {
        answer.must_be(503, "queue_full");
    }
    assert_eq!(busy.backend.counts().arrived, 1);
    assert_eq!(busy.serve(all).await.len(), 10);
}

#[tokio::test]
async fn a_high_priority_overtakes_and_equals_keep_their_order() {
    let busy = Busy::start("").await;
    let waiters = [
        busy.ask("n1"),
        busy.ask("h1").high(),
        busy.ask("n2").header("x-priority", "normal"),
        busy.ask("h2").header("x-priority", "high"),
    ];
    let waiters = busy.queue(waiters).await;
    assert_eq!(busy.serve(waiters).await, ["h1", "h2", "n1", "n2"]);
}

#[tokio::test]
async fn a_priority_is_read_in_any_case_and_anything_unknown_is_the_default() {
    let busy = Busy::start("").await;
    let spelt = |label, name: &'static [u8]| busy.ask(label).header("x-priority", name);
    let waiters = [
        spelt("low", b"low"),
        spelt("urgent", b"urgent"),
        spelt("empty", b""),
        spelt("latin", b"h\xefgh"),
        spelt("utf8", "high\u{e9}".as_bytes()),
        spelt("two", b"high, high"),
        spelt("normal", b"nORMAL"),
        spelt("padded", b" \tHIGH "),
        spelt("mixed", b"HiGh"),
    ];
    let waiters = busy.queue(waiters).await;
    let order = busy.serve(waiters).await;
    assert_eq!(order[..2], ["padded", "mixed"]);
    assert_eq!(
        order[2..],
        ["low", "urgent", "empty", "latin", "utf8", "two", "normal"]
    );
}

#[tokio::test]
async fn levels_and_headers_are_those_of_the_configuration() {
    let queue = r#"
        priorities = ["gold", "silver", "bronze"]
        default_priority = "silver"
        priority_header = "x-tier"
    "#;
    let busy = Busy::start(queue).await;
    let tier = |label, name: &str| busy.ask(label).header("x-tier", name);
    let waiters = [
        tier("bronze", "bronze"),
        busy.ask("none").high(),
        tier("gold", "Gold"),
        tier("unknown", "lead"),
    ];
    let waiters = busy.queue(waiters).await;
    let order = busy.serve(waiters).await;
    assert_eq!(order, ["gold", "none", "unknown", "bronze"]);
}

#[tokio::test]
async fn who_has_waited_as_long_as_allowed_is_told_while_the_backend_still_works() {
    let busy = Busy::start("max_wait_seconds = 0.3").await;
    let answer = busy.ask("late").answer().await;
    answer.must_be(503, "queue_timeout");
    assert!(answer.after >= Duration::from_millis(300), "{answer:?}");
    assert_eq!(busy.gateway.state().await.depth(), 0);
    let (gateway, backend) = busy.free().await;
    let next = gateway.ask("m").label("next").send();
    assert_eq!(backend.next().await.label(), "next");
    next.hang_up();
}

#[tokio::test]
async fn a_longest_wait_bounds_the_wait_and_not_the_answer() {
    let busy = Busy::start("max_wait_seconds = 1").await;
    let waiter = busy.queue([busy.ask("in time")]).await.remove(0);
    busy.running.answer("first");
    let served = busy.backend.next().await;
    sleep(Duration::from_millis(1_500)).await;
    assert!(!waiter.is_answered());
    served.answer("slow");
    let answer = waiter.answer().await;
    answer.must_say("slow");
    assert!(answer.after > Duration::from_millis(1_500));
}

#[tokio::test]
async fn who_hangs_up_while_waiting_leaves_no_trace() {
    let busy = Busy::start("max_size = 4").await;
    let names = ["a", "b", "c", "d"];
    let ghosts = busy.queue(names.map(|name| busy.ask(name))).await;
    busy.ask("one too many")
        .answer()
        .await
        .must_be(503, "queue_full");
    for ghost in ghosts {
        ghost.hang_up();
    }
    busy.gateway.depth(0).await;
    assert!(!busy.first.is_answered());
    let waiters = busy.queue([busy.ask("alive")]).await;
    assert_eq!(busy.serve(waiters).await, ["alive"]);
}

#[tokio::test]
async fn a_slot_is_held_until_the_last_chunk_is_out() {
    let Busy {
        gateway,
        backend,
        first,
        running,
    } = Busy::start("").await;
    first.hang_up();
    running.hung_up().await;
    gateway.idle().await;

    let asked = gateway.ask("m").open();
    let (streamed, stream) = tokio::join!(asked, async { backend.next().await.stream() });
    let mut body = streamed.into_body();
    let second = gateway.ask("m").label("second").send();
    gateway.depth(1).await;
    for word in ["you ", "are ", "next"] {
        stream.send(word);
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), word);
        assert_eq!(
            (gateway.state().await.depth(), backend.more().await),
            (1, 0)
        );
    }
    stream.end();
    assert!(body.frame().await.is_none());
    let arrived = backend.next().await;
    assert_eq!(arrived.label(), "second");
    arrived.answer("served");
    second.answer().await.must_say("served");
    assert_eq!(backend.counts().peak, 1);
}

#[tokio::test]
async fn a_slot_can_be_given_back_at_the_headers() {
    let Busy {
        gateway,
        backend,
        first,
        running,
    } = Busy::start("hold = \"headers\"").await;
    let second = gateway.ask("m").label("second").send();
    gateway.depth(1).await;
    let stream = running.stream();
    stream.send("a");
    let arrived = backend.next().await;
    assert_eq!(arrived.label(), "second");
    assert!(!first.is_answered());
    arrived.answer("b");
    second.answer().await.must_say("b");
    stream.end();
    first.answer().await.must_say("a");
}

#[tokio::test]
async fn of_two_tenants_the_one_who_asks_for_little_is_served_second() {
    let busy = Busy::start("max_size = 200\ndiscipline = \"fair\"").await;
    let crowd: Vec<Sent> = (0..100).map(|_| busy.ask("a").tenant("a").send()).collect();
    busy.gateway.depth(100).await;
    let mut waiters = busy.queue([busy.ask("b").tenant("b")]).await;
    waiters.extend(crowd);
    let order = busy.serve(waiters).await;
    assert_eq!(order.iter().position(|tenant| tenant == "b"), Some(1));
}

#[tokio::test]
async fn tenants_are_served_by_their_weights() {
    let queue = "discipline = \"fair\"\ntenant_header = \"x-team\"\ntenant_weights = { a = 2 }";
    let busy = Busy::start(queue).await;
    let team = |name: &str| busy.ask(name).header("x-team", name);
    let waiters = ["b", "b", "a", "a", "a", "a"].map(team);
    let waiters = busy.queue(waiters).await;
    let order = busy.serve(waiters).await;
    for round in order.chunks(3) {
        let of_a = round.iter().filter(|tenant| *tenant == "a").count();
        assert_eq!(of_a, 2, "{order:?}");
    }
}

#[tokio::test]
async fn without_a_tenant_header_all_requests_are_of_one_tenant() {
    let none = "discipline = \"fair\"\ntenant_header = \"none\"\nmax_wait_seconds = \"none\"";
    let busy = Busy::start(none).await;
    let of = |label, tenant| busy.ask(label).tenant(tenant);
    let waiters = [of("first", "a"), of("second", "a"), of("third", "b")];
    let waiters = busy.queue(waiters).await;
    let order = busy.serve(waiters).await;
    assert_eq!(order, ["first", "second", "third"]);
}

#[tokio::test]
async fn the_earliest_deadline_goes_first() {
    let busy = Busy::start("discipline = \"deadline\"").await;
    let within = |label, seconds: &str| busy.ask(label).header("x-request-timeout", seconds);
    let waiters = [
        busy.ask("30 s"),
        within("25 s", "25"),
        within("20 s", "20"),
        busy.ask("22 s").header("grpc-timeout", "22S"),
    ];
    let waiters = busy.queue(waiters).await;
    let order = busy.serve(waiters).await;
    assert_eq!(order, ["20 s", "22 s", "25 s", "30 s"]);
}

#[tokio::test]
async fn a_saturated_model_holds_nobody_else_up() {
    for max_size in [100, 50] {
        let (a, b) = (Backend::start().await, Backend::start().await);
        let setup = Setup::new()
            .queue(&format!("max_size = {max_size}"))
            .backend("gpu-a", &a, 1, &["a"])
            .backend("gpu-b", &b, 1, &["b"]);
        let gateway = setup.start().await;
        let running = gateway.ask("a").send();
        let _never_answered = a.next().await;
        let crowd: Vec<Sent> = (0..50).map(|_| gateway.ask("a").send()).collect();
        gateway.depth(50).await;
        for _ in 0..3 {
            let (answer, ()) = tokio::join!(gateway.ask("b").answer(), async {
                b.next().await.answer("b");
            });
            answer.must_say("b");
        }
        assert_eq!(gateway.state().await.depth(), 50);
        drop((running, crowd));
    }
}

#[tokio::test]
async fn a_higher_priority_takes_the_chair_of_a_lower_one_if_it_may() {
    let busy = Busy::start("max_size = 2\ndisplace = true").await;
    let mut sent = busy.queue([busy.ask("n1"), busy.ask("n2")]).await;
    let high = busy.ask("h").high().send();
    sent.remove(1).answer().await.must_be(503, "displaced");
    busy.ask("n3").answer().await.must_be(503, "queue_full");
    assert_eq!(busy.gateway.state().await.depth(), 2);
    sent.push(high);
    assert_eq!(busy.serve(sent).await, ["h", "n1"]);
}

#[tokio::test]
async fn a_higher_priority_takes_nobodys_chair_by_default() {
    let busy = Busy::start("max_size = 1").await;
    let waiters = busy.queue([busy.ask("n")]).await;
    busy.ask("h")
        .high()
        .answer()
        .await
        .must_be(503, "queue_full");
    assert_eq!(busy.serve(waiters).await, ["n"]);
}

#[tokio::test]
async fn without_chairs_requests_are_served_or_told_at_once() {
    for queue in ["max_size = 0", "enabled = false", "max_wait_seconds = 0"] {
        let busy = Busy::start(queue).await;
        for _ in 0..3 {
            busy.ask("busy")
                .answer()
                .await
                .must_be(503, "queue_disabled");
        }
        let (gateway, backend) = busy.free().await;
        let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
            backend.next().await.answer("free");
        });
        answer.must_say("free");
    }
}

#[tokio::test]
async fn a_stream_does_not_wait_where_streams_may_not() {
    let busy = Busy::start("streaming = \"reject\"").await;
    let stream = r#"{"model":"m","messages":[],"stream":true}"#;
    for asks_for_stream in [
        busy.ask("s").body(stream),
        busy.ask("s").header("accept", "text/event-stream"),
    ] {
        let answer = asks_for_stream.answer().await;
        answer.must_be(503, "streaming_not_queued");
    }
    let whole = busy.ask("w").body(r#"{"model":"m","stream":false}"#);
    busy.queue([whole]).await.remove(0).hang_up();
    busy.gateway.depth(0).await;
    let (gateway, backend) = busy.free().await;
    let (answer, ()) = tokio::join!(gateway.ask("m").body(stream).answer(), async {
        backend.next().await.answer("streamed");
    });
    answer.must_say("streamed");
}

#[tokio::test]
async fn a_requests_own_deadline_ends_its_wait() {
    let busy = Busy::start("").await;
    for (name, value) in [
        ("x-request-timeout", "0.2"),
        ("x-request-timeout", "0"),
        ("grpc-timeout", "200m"),
    ] {
        let answer = busy.ask("late").header(name, value).answer().await;
        answer.must_be(504, "deadline_exceeded");
        assert_eq!(answer.header("retry-after"), None);
    }
    let nonsense = ["soon", "-1", "nan", "1e300"];
    let asks = nonsense.map(|value| busy.ask(value).header("x-request-timeout", value));
    let waiters = busy.queue(asks).await;
    assert_eq!(busy.serve(waiters).await, nonsense);
}

#[tokio::test]
async fn a_requests_own_deadline_counts_from_its_first_byte() {
    let busy = Busy::start("max_size = 1").await;
    let _waiting = busy.queue([busy.ask("n")]).await;
    let mut socket = TcpStream::connect(busy.gateway.addr()).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-request-timeout: 0.2\r\n";
    let start = format!("{head}content-length: 13\r\n\r\n{{\"model\"");
    socket.write_all(start.as_bytes()).await.unwrap();
    sleep(Duration::from_millis(400)).await;
    socket.write_all(b":\"m\"}").await.unwrap();
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 504");
}

#[tokio::test]
async fn who_waits_long_enough_rises_a_level() {
    let busy = Busy::start("promote_after_seconds = 0.2").await;
    let mut waiters = busy.queue([busy.ask("patient")]).await;
    sleep(Duration::from_millis(500)).await;
    waiters.extend(busy.queue([busy.ask("high").high()]).await);
    assert_eq!(busy.serve(waiters).await, ["patient", "high"]);
}

#[tokio::test]
async fn a_tenants_share_of_the_chairs_is_bounded() {
    let busy = Busy::start("max_size_per_tenant = 2").await;
    let of = |tenant: &str| busy.ask(tenant).tenant(tenant);
    let mut waiters = busy.queue([of("a"), of("a")]).await;
    of("a").answer().await.must_be(429, "tenant_queue_full");
    waiters.extend(busy.queue([of("b")]).await);
    assert_eq!(busy.serve(waiters).await, ["a", "a", "b"]);
}

#[tokio::test]
async fn a_fixed_retry_after_is_sent_as_it_is() {
    let retry_after = "retry_after = { mode = \"fixed\", min_seconds = 7 }";
    let busy = Busy::start(&format!("max_size = 0\n{retry_after}")).await;
    let answer = busy.ask("").answer().await;
    assert_eq!(answer.header("retry-after"), Some("7"));
}

#[tokio::test]
async fn with_backpressure_nobody_is_told_that_the_room_is_full() {
    let busy = Busy::start("max_size = 2\noverflow = \"backpressure\"").await;
    let crowd: Vec<Sent> = (0..20).map(|n| busy.ask(&n.to_string()).send()).collect();
    busy.gateway.depth(2).await;
    assert_eq!(busy.serve(crowd).await.len(), 20);
}

#[tokio::test]
async fn waiters_are_told_how_long_they_waited() {
    let busy = Busy::start("").await;
    let queued = busy.queue([busy.ask("second")]).await.remove(0);
    sleep(Duration::from_millis(100)).await;
    busy.running.answer("first");
    busy.backend.next().await.answer("second");
    let waited = |answer: crate::client::Answer| {
        let timing = answer.header("server-timing").unwrap().to_owned();
        let ms = timing.strip_prefix("queue;dur=").unwrap();
        ms.parse::<f64>().unwrap()
    };
    let first = busy.first.answer().await;
    assert_eq!(first.header("server-timing"), None);
    assert!(waited(queued.answer().await) >= 100.0);
}
