//! `QueueLayer` in an axum app, on real sockets.
#![cfg(not(loom))]

#[path = "support/queue_http.rs"]
mod http_app;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Request, Response};
use axum::routing::get as on_get;
use bytes::Bytes;
use futures_util::future::join_all;
use http_app::{Client, Reply, Ward, a_while, get, serve, stream, until};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower_triage::{Priority, QueueConfig, QueueHandle, QueueLayer, Rejection, RetryAfter, Ticket};

/// An app with one handler, which stays until it is told to finish.
struct App {
    ward: Ward,
    handle: QueueHandle,
    addr: SocketAddr,
}

impl App {
    async fn start(config: QueueConfig) -> Self {
        Self::with(QueueLayer::new(config)).await
    }

    async fn with(layer: QueueLayer) -> Self {
        let handle = layer.handle();
        let ward = Ward::new();
        let addr = serve(router(&ward).layer(layer)).await;
        Self { ward, handle, addr }
    }

    fn client(&self, name: &str) -> Client {
        get(self.addr, "/").named(name)
    }

    /// Sends a request and waits until it runs.
    async fn run(&self, name: &str) -> JoinHandle<Reply> {
        let running = self.ward.running();
        let sent = self.client(name).spawn();
        until("it runs", || self.ward.running() == running + 1).await;
        sent
    }

    /// Sends a request and waits until it waits.
    async fn wait(&self, client: Client) -> JoinHandle<Reply> {
        let depth = self.depth();
        let sent = client.spawn();
        until("it waits", || self.depth() == depth + 1).await;
        sent
    }

    fn depth(&self) -> usize {
        self.handle.status().depth
    }

    async fn is_idle(&self) {
        until("all slots are free", || {
            let status = self.handle.status();
            (status.depth, status.running) == (0, 0)
        })
        .await;
    }
}

fn router(ward: &Ward) -> Router {
    let stay = |State(ward): State<Ward>, headers: HeaderMap| ward.stay(headers);
    Router::new()
        .route("/", on_get(stay))
        .route("/other", on_get(stay))
        .with_state(ward.clone())
}

/// One slot that is taken.
async fn busy(config: QueueConfig) -> (App, JoinHandle<Reply>) {
    let app = App::start(config).await;
    let running = app.run("running").await;
    (app, running)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test]
async fn fifty_on_ten_chairs_are_ten_who_wait_and_forty_who_are_told_at_once() {
    let (app, running) = busy(QueueConfig::new(1).max_size(10)).await;
    let (answers, mut answered) = mpsc::unbounded_channel();
    for _ in 0..50 {
        let (client, answers) = (app.client("crowd"), answers.clone());
        tokio::spawn(async move { answers.send(client.send().await) });
    }
    for _ in 0..40 {
        let reply = answered.recv().await.unwrap();
        assert_eq!(reply.status, 503);
        assert_eq!(reply.code().await, "queue_full");
    }
    assert_eq!(app.depth(), 10);
    a_while().await;
    assert!(answered.try_recv().is_err());
    app.ward.finish(11);
    for _ in 0..10 {
        assert_eq!(answered.recv().await.unwrap().status, 200);
    }
    assert_eq!(running.await.unwrap().text().await, "served");
    assert_eq!(app.ward.peak(), 1);
    app.is_idle().await;
}

#[tokio::test]
async fn the_header_names_the_level_and_anything_unknown_is_the_default() {
    let cases: [(&[u8], bool); 9] = [
        (b"high", true),
        (b" HIGH ", true),
        (b"HiGh", true),
        (b"normal", false),
        (b"low", false),
        (b"urgent", false),
        (b"", false),
        (b"h\xefgh", false),
        ("höchste".as_bytes(), false),
    ];
    for (value, is_high) in cases {
        let (app, running) = busy(QueueConfig::new(1)).await;
        let mut sent = vec![running, app.wait(app.client("n1")).await];
        let client = app.client("x").header("x-priority", value);
        sent.push(app.wait(client).await);
        sent.push(app.wait(app.client("n2")).await);
        app.ward.finish(4);
        for reply in join_all(sent).await {
            assert_eq!(reply.unwrap().status, 200);
        }
        let order = if is_high {
            ["running", "x", "n1", "n2"]
        } else {
            ["running", "n1", "x", "n2"]
        };
        assert_eq!(app.ward.came(), order, "{value:?}");
    }
}

#[tokio::test]
async fn who_waits_too_long_is_told_so_and_never_served() {
    let (app, running) = busy(QueueConfig::new(1).max_wait(ms(300))).await;
    let began = Instant::now();
    let late = app.client("late").send().await;
    let waited = began.elapsed();
    assert!(waited >= ms(299) && waited < ms(2_000), "{waited:?}");
    assert_eq!(late.status, 503);
    assert_eq!(late.code().await, "queue_timeout");
    app.ward.finish(1);
    assert_eq!(running.await.unwrap().status, 200);
    assert_eq!(app.ward.came(), ["running"]);
    app.is_idle().await;
}

#[tokio::test]
async fn who_was_dispatched_in_time_is_served_for_as_long_as_it_takes() {
    let (app, running) = busy(QueueConfig::new(1).max_wait(ms(300))).await;
    let waiting = app.wait(app.client("in time")).await;
    app.ward.finish(1);
    until("it is dispatched", || app.ward.came().len() == 2).await;
    tokio::time::sleep(ms(500)).await;
    assert!(!waiting.is_finished());
    app.ward.finish(1);
    assert_eq!(waiting.await.unwrap().status, 200);
    assert_eq!(running.await.unwrap().status, 200);
}

#[tokio::test]
async fn clients_that_hang_up_leave_their_chairs_at_once_and_are_never_served() {
    let (app, running) = busy(QueueConfig::new(1).max_size(4)).await;
    let mut gone = Vec::new();
    for _ in 0..4 {
        gone.push(app.wait(app.client("gone")).await);
    }
    let refused = app.client("refused").send().await;
    assert_eq!(refused.code().await, "queue_full");
    for client in gone {
        client.abort();
    }
    until("the chairs are free", || app.depth() == 0).await;
    let next = app.wait(app.client("next")).await;
    app.ward.finish(2);
    assert_eq!(next.await.unwrap().status, 200);
    assert_eq!(running.await.unwrap().status, 200);
    assert_eq!(app.ward.came(), ["running", "next"]);
    assert_eq!(app.handle.status().stats.cancelled, 4);
    app.is_idle().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_while_it_is_served_frees_the_slot() {
    let (app, running) = busy(QueueConfig::new(1)).await;
    let next = app.wait(app.client("next")).await;
    running.abort();
    until("the next one runs", || app.ward.came().len() == 2).await;
    app.ward.finish(1);
    assert_eq!(next.await.unwrap().status, 200);
    app.is_idle().await;
}

mod streamed {
    use super::*;

    type Parts = mpsc::UnboundedSender<&'static str>;

    /// An app whose answers are streams that the test writes.
    async fn start(
        config: QueueConfig,
    ) -> (SocketAddr, QueueHandle, mpsc::UnboundedReceiver<Parts>) {
        let layer = QueueLayer::new(config);
        let handle = layer.handle();
        let (starting, started) = mpsc::unbounded_channel();
        let answer = move || {
            let (parts, body) = mpsc::unbounded_channel();
            starting.send(parts).unwrap();
            async move { stream(body) }
        };
        let router = Router::new().route("/", on_get(answer)).layer(layer);
        (serve(router).await, handle, started)
    }

    #[tokio::test]
    async fn answers_hold_their_slot_until_the_body_has_ended() {
        let (addr, handle, mut started) = start(QueueConfig::new(1)).await;
        let mut first = get(addr, "/").send().await;
        assert_eq!(first.status, 200);
        let parts = started.recv().await.unwrap();
        let second = get(addr, "/").spawn();
        until("it waits", || handle.status().depth == 1).await;
        for part in ["a", "b"] {
            parts.send(part).unwrap();
            assert_eq!(first.next().await.unwrap(), part);
        }
        a_while().await;
        assert!(started.try_recv().is_err());
        assert_eq!(handle.status().running, 1);
        drop(parts);
        assert_eq!(first.next().await, None);
        drop(started.recv().await.unwrap());
        assert_eq!(second.await.unwrap().text().await, "");
        until("all slots are free", || handle.status().running == 0).await;
    }

    #[tokio::test]
    async fn a_client_that_hangs_up_in_mid_stream_frees_the_slot() {
        let (addr, handle, mut started) = start(QueueConfig::new(1)).await;
        let mut first = get(addr, "/").send().await;
        let parts = started.recv().await.unwrap();
        parts.send("a").unwrap();
        assert_eq!(first.next().await.unwrap(), "a");
        let second = get(addr, "/").spawn();
        until("it waits", || handle.status().depth == 1).await;
        drop(first);
        drop(started.recv().await.unwrap());
        assert_eq!(second.await.unwrap().status, 200);
    }

    #[tokio::test]
    async fn with_hold_headers_the_slot_is_free_when_the_head_is_out() {
        let (addr, handle, mut started) = start(QueueConfig::new(1).hold_until_headers()).await;
        let mut first = get(addr, "/").send().await;
        let mut second = get(addr, "/").send().await;
        assert_eq!(handle.status().running, 0);
        for reply in [&mut first, &mut second] {
            let parts = started.recv().await.unwrap();
            parts.send("a").unwrap();
            assert_eq!(reply.next().await.unwrap(), "a");
        }
    }

    #[tokio::test]
    async fn requests_for_a_stream_are_rejected_if_they_may_not_wait() {
        let (app, running) = busy(QueueConfig::new(1).reject_streams()).await;
        let stream = |name| app.client(name).header("accept", "text/event-stream");
        let refused = stream("refused").send().await;
        assert_eq!(refused.status, 503);
        assert_eq!(refused.code().await, "streaming_not_queued");
        let waiting = app.wait(app.client("waiting")).await;
        app.ward.finish(3);
        assert_eq!(running.await.unwrap().status, 200);
        assert_eq!(waiting.await.unwrap().status, 200);
        assert_eq!(stream("alone").send().await.status, 200);
    }
}

#[tokio::test]
async fn one_tenant_that_sends_a_hundred_does_not_delay_another() {
    let (app, running) = busy(QueueConfig::new(1).max_size(200).fair()).await;
    let mut sent = vec![running];
    for _ in 0..100 {
        let client = app.client("a").header("x-tenant-id", "a");
        sent.push(app.wait(client).await);
    }
    let client = app.client("b").header("x-tenant-id", "b");
    sent.push(app.wait(client).await);
    app.ward.finish(102);
    for reply in join_all(sent).await {
        assert_eq!(reply.unwrap().status, 200);
    }
    assert_eq!(app.ward.came()[..3], ["running", "a", "b"]);
}

#[tokio::test]
async fn a_tenant_whose_share_is_full_gets_429() {
    let (app, running) = busy(QueueConfig::new(1).max_size_per_tenant(1)).await;
    let from = |tenant: &str| app.client(tenant).header("x-tenant-id", tenant);
    let first = app.wait(from("a")).await;
    let refused = from("a").send().await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.code().await, "tenant_queue_full");
    let other = app.wait(from("b")).await;
    app.ward.finish(3);
    for sent in [running, first, other] {
        assert_eq!(sent.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn of_twenty_who_wait_five_keep_their_chairs_when_there_are_five_left() {
    let (app, running) = busy(QueueConfig::new(1).max_size(100)).await;
    let mut sent = Vec::new();
    for name in 0..20 {
        sent.push(app.wait(app.client(&name.to_string())).await);
    }
    app.handle
        .reconfigure(QueueConfig::new(1).max_size(5))
        .unwrap();
    assert_eq!(app.depth(), 5);
    for refused in sent.split_off(5) {
        assert_eq!(refused.await.unwrap().code().await, "queue_full");
    }
    app.ward.finish(6);
    for served in sent {
        assert_eq!(served.await.unwrap().status, 200);
    }
    assert_eq!(running.await.unwrap().status, 200);
    assert_eq!(app.ward.came(), ["running", "0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn handlers_that_panic_leave_nothing_behind() {
    let app = App::start(QueueConfig::new(4)).await;
    let sent = (0..100).map(|_| app.client("boom").header("x-panic", "1").try_send());
    for reply in join_all(sent).await {
        assert!(reply.is_err(), "the connection dies with its handler");
    }
    app.is_idle().await;
    assert_eq!(app.ward.came().len(), 100);
    assert!(app.ward.peak() <= 4);
    app.ward.finish(1);
    assert_eq!(app.client("next").send().await.status, 200);
}

#[tokio::test]
async fn a_limit_of_one_is_one_over_two_routes_and_four_connections() {
    let layer = QueueLayer::new(QueueConfig::new(1));
    let ward = Ward::new();
    let whole = router(&ward).layer(layer.clone());
    let stay = |State(ward): State<Ward>, headers: HeaderMap| ward.stay(headers);
    let each = Router::new()
        .route("/", on_get(stay).layer(layer.clone()))
        .route("/other", on_get(stay).layer(layer.clone()))
        .with_state(ward.clone());
    for router in [whole, each] {
        let addr = serve(router).await;
        let sent: Vec<_> = ["/", "/other", "/", "/other"]
            .map(|path| get(addr, path).spawn())
            .into();
        until("three wait", || layer.handle().status().depth == 3).await;
        assert_eq!(layer.handle().status().running, 1);
        ward.finish(4);
        for reply in join_all(sent).await {
            assert_eq!(reply.unwrap().status, 200);
        }
    }
    assert_eq!(ward.peak(), 1);
}

#[tokio::test]
async fn a_limit_lowered_under_load_holds_as_soon_as_enough_came_back() {
    let app = App::start(QueueConfig::new(20)).await;
    let sent: Vec<_> = (0..64).map(|_| app.client("n").spawn()).collect();
    until("44 wait", || app.depth() == 44).await;
    app.handle.reconfigure(QueueConfig::new(5)).unwrap();
    app.ward.finish(15);
    until("15 came back", || app.ward.running() == 5).await;
    a_while().await;
    assert_eq!((app.ward.running(), app.depth()), (5, 44));
    app.ward.finish(49);
    for reply in join_all(sent).await {
        assert_eq!(reply.unwrap().status, 200);
    }
    app.is_idle().await;
}

#[tokio::test]
async fn responses_of_waiters_say_how_long_they_waited() {
    fn dur(reply: &Reply) -> f64 {
        let timing = reply.header("server-timing");
        timing
            .strip_prefix("queue;dur=")
            .unwrap()
            .parse()
            .expect(timing)
    }
    let (app, running) = busy(QueueConfig::new(1).max_size(1)).await;
    let waiting = app.wait(app.client("waiting")).await;
    let refused = app.client("refused").send().await;
    assert!(!refused.headers.contains_key("server-timing"));
    tokio::time::sleep(ms(50)).await;
    app.ward.finish(2);
    let running = running.await.unwrap();
    assert!(!running.headers.contains_key("server-timing"));
    let waited = dur(&waiting.await.unwrap());
    assert!((50.0..5_000.0).contains(&waited), "{waited}");

    app.handle
        .reconfigure(QueueConfig::new(1).no_server_timing())
        .unwrap();
    let running = app.run("running").await;
    let silent = app.wait(app.client("silent")).await;
    app.ward.finish(2);
    assert_eq!(running.await.unwrap().status, 200);
    let silent = silent.await.unwrap();
    assert!(!silent.headers.contains_key("server-timing"));
}

#[tokio::test]
async fn rejections_can_be_written_by_the_user() {
    let config = QueueConfig::new(1)
        .max_size(0)
        .retry_after(RetryAfter::fixed(7));
    let layer = QueueLayer::new(config).on_reject(|rejection: &Rejection, headers: &HeaderMap| {
        let name = headers["x-name"].to_str().unwrap();
        let seconds = rejection.retry_after().unwrap().as_secs();
        let text = format!("{name}: {}, {seconds} s", rejection.code());
        Response::builder()
            .status(418)
            .header("x-teapot", "yes")
            .body(Bytes::from(text))
            .unwrap()
    });
    let app = App::with(layer).await;
    let running = app.run("running").await;
    let refused = app.client("refused").send().await;
    assert_eq!(refused.status, 418);
    assert_eq!(refused.header("x-teapot"), "yes");
    assert_eq!(refused.text().await, "refused: queue_disabled, 7 s");
    app.ward.finish(1);
    assert_eq!(running.await.unwrap().status, 200);
}

#[tokio::test]
async fn tickets_can_be_read_by_the_user() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let layer = QueueLayer::new(QueueConfig::new(1)).classify(
        move |request: &Request<axum::body::Body>, arrival| {
            let name = request.headers()["x-name"].to_str().unwrap().to_owned();
            let priority = Priority(u8::from(name != "vip"));
            noted.lock().unwrap().push(name);
            Ticket::new(priority, arrival)
        },
    );
    let handle = layer.handle();
    let ward = Ward::new();
    let addr = serve(router(&ward).layer(layer)).await;
    let app = App { ward, handle, addr };
    let mut sent = vec![app.run("running").await];
    for name in ["n1", "n2", "vip"] {
        sent.push(app.wait(app.client(name)).await);
    }
    app.ward.finish(4);
    for reply in join_all(sent).await {
        assert_eq!(reply.unwrap().status, 200);
    }
    assert_eq!(app.ward.came(), ["running", "vip", "n1", "n2"]);
    assert_eq!(*asked.lock().unwrap(), ["n1", "n2", "vip"]);
}

#[tokio::test]
async fn shutting_down_answers_who_waits_and_who_comes_and_lets_who_runs_finish() {
    let token = CancellationToken::new();
    let layer = QueueLayer::new(QueueConfig::new(3)).shutdown(token.clone());
    let app = App::with(layer).await;
    let mut running = Vec::new();
    for name in ["a", "b", "c"] {
        running.push(app.run(name).await);
    }
    let waiting: Vec<_> = (0..20).map(|_| app.client("waiting").spawn()).collect();
    until("all wait", || app.depth() == 20).await;

    token.cancel();
    for reply in join_all(waiting).await {
        let reply = reply.unwrap();
        assert_eq!(reply.status, 503);
        assert_eq!(reply.code().await, "shutting_down");
    }
    let later = app.client("later").send().await;
    assert_eq!(later.code().await, "shutting_down");

    let handle = app.handle.clone();
    let closed = tokio::spawn(async move { handle.closed().await });
    a_while().await;
    assert!(!closed.is_finished());
    app.ward.finish(3);
    for reply in join_all(running).await {
        assert_eq!(reply.unwrap().text().await, "served");
    }
    closed.await.unwrap();
    assert_eq!(app.ward.came(), ["a", "b", "c"]);
}

#[test]
fn a_layer_that_is_built_before_the_runtime_shuts_down_all_the_same() {
    let token = CancellationToken::new();
    let layer = QueueLayer::new(QueueConfig::new(1)).shutdown(token.clone());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let app = App::with(layer).await;
        let running = app.run("running").await;
        let waiting = app.wait(app.client("waiting")).await;
        token.cancel();
        assert_eq!(waiting.await.unwrap().code().await, "shutting_down");
        app.ward.finish(1);
        assert_eq!(running.await.unwrap().status, 200);
        app.handle.closed().await;
    });
}

#[tokio::test]
async fn the_clients_own_deadline_ends_its_wait() {
    let (app, running) = busy(QueueConfig::new(1)).await;
    let patient = |seconds| app.client("x").header("x-request-timeout", seconds);
    let began = Instant::now();
    let late = patient("0.2").send().await;
    assert!(began.elapsed() >= ms(199));
    assert_eq!(late.status, 504);
    assert!(!late.headers.contains_key("retry-after"));
    assert_eq!(late.code().await, "deadline_exceeded");

    let at_once = patient("0").send().await;
    assert_eq!(at_once.status, 504);
    assert!(!at_once.headers.contains_key("server-timing"));

    let nonsense = app.wait(patient("-1")).await;
    app.ward.finish(2);
    assert_eq!(nonsense.await.unwrap().status, 200);
    assert_eq!(running.await.unwrap().status, 200);
    app.ward.finish(1);
    assert_eq!(patient("0").send().await.status, 200, "nobody has to wait");
}

#[tokio::test]
async fn a_higher_priority_takes_the_chair_of_a_lower_one_if_it_may() {
    let (app, running) = busy(QueueConfig::new(1).max_size(1).displace()).await;
    let displaced = app.wait(app.client("displaced")).await;
    let urgent = app.client("urgent").header("x-priority", "high").spawn();
    assert_eq!(displaced.await.unwrap().code().await, "displaced");
    app.ward.finish(2);
    assert_eq!(urgent.await.unwrap().status, 200);
    assert_eq!(running.await.unwrap().status, 200);
}
