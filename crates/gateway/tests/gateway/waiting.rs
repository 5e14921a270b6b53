//! Tests of the waiting room: bound, order, time limits and rejections.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::backend::{Backend, BackendRequest};
use crate::client::{ClientRequest, PendingResponse};
use crate::process::{Gateway, Setup};

/// A gateway with one backend for model `m` and its only slot taken.
struct BusyGateway {
    gateway: Gateway,
    backend: Backend,
    first: PendingResponse,
    running: BackendRequest,
}

impl BusyGateway {
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

    /// Sends requests one after the other, each once the previous one waits.
    async fn queue(&self, asks: impl IntoIterator<Item = ClientRequest>) -> Vec<PendingResponse> {
        let before = self.gateway.state().await.depth();
        let mut sent = Vec::new();
        for (ask, depth) in asks.into_iter().zip(before + 1..) {
            sent.push(ask.send());
            self.gateway.depth(depth).await;
        }
        sent
    }

    /// Frees the slot and serves all waiters. Returns their labels in the order of service.
    async fn serve(self, waiters: Vec<PendingResponse>) -> Vec<String> {
        self.running.answer("first");
        let mut order = Vec::new();
        for _ in &waiters {
            let next = self.backend.next().await;
            order.push(next.label().to_owned());
            next.answer("next");
        }
        self.first.answer().await.assert_ok("first");
        for waiter in waiters {
            waiter.answer().await.assert_ok("next");
        }
        assert_eq!(self.backend.counts().peak, 1);
        order
    }

    /// Frees the slot. No request may be waiting.
    async fn free(self) -> (Gateway, Backend) {
        self.running.answer("first");
        self.first.answer().await.assert_ok("first");
        self.gateway.idle().await;
        (self.gateway, self.backend)
    }

    fn ask(&self, label: &str) -> ClientRequest {
        self.gateway.ask("m").label(label)
    }
}

#[tokio::test]
async fn full_room_rejects_the_excess_with_retry_after() {
    let busy = BusyGateway::start("max_size = 10").await;
    let mut all: Vec<PendingResponse> = (0..50).map(|n| busy.ask(&n.to_string()).send()).collect();
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
        answer.assert_error(503, "queue_full");
    }
    assert_eq!(busy.backend.counts().arrived, 1);
    assert_eq!(busy.serve(all).await.len(), 10);
}

#[tokio::test]
async fn high_priority_overtakes_and_equals_stay_fifo() {
    let busy = BusyGateway::start("").await;
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
async fn levels_with_weights_share_the_slot() {
    let busy = BusyGateway::start("level_weights = { high = 3 }").await;
    let waiters = [
        busy.ask("n1"),
        busy.ask("n2"),
        busy.ask("h1").high(),
        busy.ask("h2").high(),
        busy.ask("h3").high(),
        busy.ask("h4").high(),
    ];
    let waiters = busy.queue(waiters).await;
    let order = busy.serve(waiters).await;
    assert_eq!(order, ["h1", "h2", "h3", "n1", "h4", "n2"]);
}

#[tokio::test]
async fn priority_names_ignore_case_and_unknown_means_default() {
    let busy = BusyGateway::start("").await;
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
async fn configured_priority_levels_and_header_apply() {
    let queue = r#"
        priorities = ["gold", "silver", "bronze"]
        default_priority = "silver"
        priority_header = "x-tier"
    "#;
    let busy = BusyGateway::start(queue).await;
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
async fn max_wait_rejects_a_waiter_with_queue_timeout() {
    let busy = BusyGateway::start("max_wait_seconds = 0.3").await;
    let answer = busy.ask("late").answer().await;
    answer.assert_error(503, "queue_timeout");
    assert!(answer.after >= Duration::from_millis(300), "{answer:?}");
    assert_eq!(busy.gateway.state().await.depth(), 0);
    let (gateway, backend) = busy.free().await;
    let next = gateway.ask("m").label("next").send();
    assert_eq!(backend.next().await.label(), "next");
    next.disconnect();
}

#[tokio::test]
async fn disconnected_waiters_free_their_places_at_once() {
    let busy = BusyGateway::start("max_size = 4").await;
    let names = ["a", "b", "c", "d"];
    let waiters = busy.queue(names.map(|name| busy.ask(name))).await;
    busy.ask("one too many")
        .answer()
        .await
        .assert_error(503, "queue_full");
    for waiter in waiters {
        waiter.disconnect();
    }
    busy.gateway.depth(0).await;
    assert!(!busy.first.is_answered());
    let waiters = busy.queue([busy.ask("alive")]).await;
    assert_eq!(busy.serve(waiters).await, ["alive"]);
}

#[tokio::test]
async fn slot_is_held_until_the_body_ends() {
    let BusyGateway {
        gateway,
        backend,
        first,
        running,
    } = BusyGateway::start("").await;
    first.disconnect();
    running.disconnected().await;
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
    second.answer().await.assert_ok("served");
    assert_eq!(backend.counts().peak, 1);
}

#[tokio::test]
async fn hold_headers_frees_the_slot_at_the_headers() {
    let BusyGateway {
        gateway,
        backend,
        first,
        running,
    } = BusyGateway::start("hold = \"headers\"").await;
    let second = gateway.ask("m").label("second").send();
    gateway.depth(1).await;
    let stream = running.stream();
    stream.send("a");
    let arrived = backend.next().await;
    assert_eq!(arrived.label(), "second");
    assert!(!first.is_answered());
    arrived.answer("b");
    second.answer().await.assert_ok("b");
    stream.end();
    first.answer().await.assert_ok("a");
}

#[tokio::test]
async fn fair_discipline_serves_a_quiet_tenant_second() {
    let busy = BusyGateway::start("max_size = 200\ndiscipline = \"fair\"").await;
    let requests: Vec<PendingResponse> =
        (0..100).map(|_| busy.ask("a").tenant("a").send()).collect();
    busy.gateway.depth(100).await;
    let mut waiters = busy.queue([busy.ask("b").tenant("b")]).await;
    waiters.extend(requests);
    let order = busy.serve(waiters).await;
    assert_eq!(order.iter().position(|tenant| tenant == "b"), Some(1));
}

#[tokio::test]
async fn fair_discipline_follows_tenant_weights() {
    let queue = "discipline = \"fair\"\ntenant_header = \"x-team\"\ntenant_weights = { a = 2 }";
    let busy = BusyGateway::start(queue).await;
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
    let busy = BusyGateway::start(none).await;
    let of = |label, tenant| busy.ask(label).tenant(tenant);
    let waiters = [of("first", "a"), of("second", "a"), of("third", "b")];
    let waiters = busy.queue(waiters).await;
    let order = busy.serve(waiters).await;
    assert_eq!(order, ["first", "second", "third"]);
}

#[tokio::test]
async fn deadline_discipline_serves_earliest_deadline_first() {
    let busy = BusyGateway::start("discipline = \"deadline\"").await;
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
async fn saturated_model_does_not_block_another() {
    for max_size in [100, 50] {
        let (a, b) = (Backend::start().await, Backend::start().await);
        let setup = Setup::new()
            .queue(&format!("max_size = {max_size}"))
            .backend("gpu-a", &a, 1, &["a"])
            .backend("gpu-b", &b, 1, &["b"]);
        let gateway = setup.start().await;
        let running = gateway.ask("a").send();
        let _never_answered = a.next().await;
        let requests: Vec<PendingResponse> = (0..50).map(|_| gateway.ask("a").send()).collect();
        gateway.depth(50).await;
        for _ in 0..3 {
            let (answer, ()) = tokio::join!(gateway.ask("b").answer(), async {
                b.next().await.answer("b");
            });
            answer.assert_ok("b");
        }
        assert_eq!(gateway.state().await.depth(), 50);
        drop((running, requests));
    }
}

#[tokio::test]
async fn displace_replaces_the_latest_waiter_of_lower_priority() {
    let busy = BusyGateway::start("max_size = 2\ndisplace = true").await;
    let mut sent = busy.queue([busy.ask("n1"), busy.ask("n2")]).await;
    let high = busy.ask("h").high().send();
    sent.remove(1).answer().await.assert_error(503, "displaced");
    busy.ask("n3")
        .answer()
        .await
        .assert_error(503, "queue_full");
    assert_eq!(busy.gateway.state().await.depth(), 2);
    sent.push(high);
    assert_eq!(busy.serve(sent).await, ["h", "n1"]);
}

#[tokio::test]
async fn full_room_rejects_higher_priority_without_displace() {
    let busy = BusyGateway::start("max_size = 1\ndisplace = false").await;
    let waiters = busy.queue([busy.ask("n")]).await;
    busy.ask("h")
        .high()
        .answer()
        .await
        .assert_error(503, "queue_full");
    assert_eq!(busy.serve(waiters).await, ["n"]);
}

#[tokio::test]
async fn disabled_queue_serves_or_rejects_at_once() {
    for queue in ["max_size = 0", "enabled = false", "max_wait_seconds = 0"] {
        let busy = BusyGateway::start(queue).await;
        for _ in 0..3 {
            busy.ask("busy")
                .answer()
                .await
                .assert_error(503, "queue_disabled");
        }
        let (gateway, backend) = busy.free().await;
        let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
            backend.next().await.answer("free");
        });
        answer.assert_ok("free");
    }
}

#[tokio::test]
async fn streaming_reject_queues_no_streaming_request() {
    let busy = BusyGateway::start("streaming = \"reject\"").await;
    let stream = r#"{"model":"m","messages":[],"stream":true}"#;
    for asks_for_stream in [
        busy.ask("s").body(stream),
        busy.ask("s").header("accept", "text/event-stream"),
    ] {
        let answer = asks_for_stream.answer().await;
        answer.assert_error(503, "streaming_not_queued");
    }
    let whole = busy.ask("w").body(r#"{"model":"m","stream":false}"#);
    busy.queue([whole]).await.remove(0).disconnect();
    busy.gateway.depth(0).await;
    let (gateway, backend) = busy.free().await;
    let (answer, ()) = tokio::join!(gateway.ask("m").body(stream).answer(), async {
        backend.next().await.answer("streamed");
    });
    answer.assert_ok("streamed");
}

#[tokio::test]
async fn request_deadline_ends_its_wait_with_504() {
    let busy = BusyGateway::start("").await;
    for (name, value) in [
        ("x-request-timeout", "0.2"),
        ("x-request-timeout", "0"),
        ("grpc-timeout", "200m"),
    ] {
        let answer = busy.ask("late").header(name, value).answer().await;
        answer.assert_error(504, "deadline_exceeded");
        assert_eq!(answer.header("retry-after"), None);
    }
    let nonsense = ["soon", "-1", "nan", "1e300"];
    let asks = nonsense.map(|value| busy.ask(value).header("x-request-timeout", value));
    let waiters = busy.queue(asks).await;
    assert_eq!(busy.serve(waiters).await, nonsense);
}

#[tokio::test]
async fn request_deadline_counts_from_its_first_byte() {
    let busy = BusyGateway::start("max_size = 1").await;
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
async fn waiter_is_promoted_after_the_interval() {
    let busy = BusyGateway::start("promote_after_seconds = 0.2").await;
    let mut waiters = busy.queue([busy.ask("promoted")]).await;
    sleep(Duration::from_millis(500)).await;
    waiters.extend(busy.queue([busy.ask("high").high()]).await);
    assert_eq!(busy.serve(waiters).await, ["promoted", "high"]);
}

#[tokio::test]
async fn max_size_per_tenant_bounds_each_tenant() {
    let busy = BusyGateway::start("max_size_per_tenant = 2").await;
    let of = |tenant: &str| busy.ask(tenant).tenant(tenant);
    let mut waiters = busy.queue([of("a"), of("a")]).await;
    of("a")
        .answer()
        .await
        .assert_error(429, "tenant_queue_full");
    waiters.extend(busy.queue([of("b")]).await);
    assert_eq!(busy.serve(waiters).await, ["a", "a", "b"]);
}

#[tokio::test]
async fn fixed_retry_after_is_sent_as_configured() {
    let retry_after = "retry_after = { mode = \"fixed\", min_seconds = 7 }";
    let busy = BusyGateway::start(&format!("max_size = 0\n{retry_after}")).await;
    let answer = busy.ask("").answer().await;
    assert_eq!(answer.header("retry-after"), Some("7"));
}

#[tokio::test]
async fn backpressure_rejects_no_request_when_room_full() {
    let busy = BusyGateway::start("max_size = 2\noverflow = \"backpressure\"").await;
    let requests: Vec<PendingResponse> = (0..20).map(|n| busy.ask(&n.to_string()).send()).collect();
    busy.gateway.depth(2).await;
    assert_eq!(busy.serve(requests).await.len(), 20);
}

#[tokio::test]
async fn server_timing_header_reports_the_wait_of_waiters() {
    let busy = BusyGateway::start("").await;
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
