//! `QueueLayer` in an axum app, on real sockets.
#![cfg(not(loom))]

mod constructors;
mod exempt;
#[path = "../support/queue_http.rs"]
mod http_app;
mod limit_of_two;
mod observer;
mod on_reject;
mod optional;
mod overload_status;
mod per_key;
mod read_ahead;
mod shed;
mod tenant_limits;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use axum::middleware::map_response;
use axum::response::IntoResponse;
use axum::routing::get as on_get;
use axum::{Json, Router};
use futures_util::future::join_all;
use http_app::{Client, Jobs, Reply, get, serve, stream, until};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_triage::queue::{Hold, QueueResponseBody, QueueTime, Streaming};
use tower_triage::rejection::{Rejection, RetryAfter};
use tower_triage::{Discipline, Priority, QueueConfig, QueueHandle, QueueLayer, RejectReason};

/// An app with one handler. Its requests finish when the test says so.
struct App {
    jobs: Jobs,
    handle: QueueHandle,
    addr: SocketAddr,
}

impl App {
    async fn start(config: QueueConfig) -> Self {
        Self::with(QueueLayer::new(config)).await
    }

    async fn with(layer: QueueLayer) -> Self {
        let handle = layer.handle();
        let jobs = Jobs::new();
        let addr = serve(router(&jobs).layer(layer)).await;
        Self { jobs, handle, addr }
    }

    fn client(&self, name: &str) -> Client {
        get(self.addr, "/").named(name)
    }

    /// Sends a request and waits until it runs.
    async fn run(&self, name: &str) -> JoinHandle<Reply> {
        let running = self.jobs.running();
        let sent = self.client(name).spawn();
        until("it runs", || self.jobs.running() == running + 1).await;
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

fn router(jobs: &Jobs) -> Router {
    let run = |State(jobs): State<Jobs>, headers: HeaderMap| jobs.run(headers);
    Router::new()
        .route("/", on_get(run))
        .route("/other", on_get(run))
        .with_state(jobs.clone())
}

/// An app with its only slot taken.
async fn busy(config: QueueConfig) -> (App, JoinHandle<Reply>) {
    let app = App::start(config).await;
    let running = app.run("running").await;
    (app, running)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test]
async fn requests_over_the_rooms_size_are_rejected_at_once() {
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
    // Another request has its answer before any of those that wait.
    assert_eq!(app.client("late").send().await.code().await, "queue_full");
    assert_eq!(app.depth(), 10);
    assert!(answered.try_recv().is_err());
    app.jobs.finish(11);
    for _ in 0..10 {
        assert_eq!(answered.recv().await.unwrap().status, 200);
    }
    assert_eq!(running.await.unwrap().text().await, "served");
    assert_eq!(app.jobs.peak(), 1);
    app.is_idle().await;
}

#[tokio::test]
async fn the_header_names_the_level_or_the_default() {
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
        app.jobs.finish(4);
        for reply in join_all(sent).await {
            assert_eq!(reply.unwrap().status, 200);
        }
        let order = if is_high {
            ["running", "x", "n1", "n2"]
        } else {
            ["running", "n1", "x", "n2"]
        };
        assert_eq!(app.jobs.started(), order, "{value:?}");
    }
}

#[tokio::test]
async fn a_wait_that_times_out_is_never_served() {
    let (app, running) = busy(QueueConfig::new(1).max_wait(ms(300))).await;
    let began = Instant::now();
    let late = app.client("late").send().await;
    let waited = began.elapsed();
    assert!(waited >= ms(299), "{waited:?}");
    assert_eq!(late.status, 503);
    assert_eq!(late.code().await, "queue_timeout");
    app.jobs.finish(1);
    assert_eq!(running.await.unwrap().status, 200);
    assert_eq!(app.jobs.started(), ["running"]);
    app.is_idle().await;
}

#[tokio::test]
async fn max_wait_does_not_bound_the_handler() {
    let (app, running) = busy(QueueConfig::new(1).max_wait(ms(60_000))).await;
    let waiting = app.wait(app.client("in time")).await;
    app.jobs.finish(1);
    until("it is dispatched", || app.jobs.started().len() == 2).await;
    tokio::time::pause();
    tokio::time::sleep(ms(90_000)).await;
    tokio::time::resume();
    assert!(!waiting.is_finished());
    app.jobs.finish(1);
    assert_eq!(waiting.await.unwrap().status, 200);
    assert_eq!(running.await.unwrap().status, 200);
}

#[tokio::test]
async fn waiters_that_hang_up_leave_at_once_unserved() {
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
    until("no request waits", || app.depth() == 0).await;
    let next = app.wait(app.client("next")).await;
    app.jobs.finish(2);
    assert_eq!(next.await.unwrap().status, 200);
    assert_eq!(running.await.unwrap().status, 200);
    assert_eq!(app.jobs.started(), ["running", "next"]);
    assert_eq!(app.handle.status().stats.cancelled, 4);
    app.is_idle().await;
}

#[tokio::test]
async fn a_running_request_that_hangs_up_frees_its_slot() {
    let (app, running) = busy(QueueConfig::new(1)).await;
    let next = app.wait(app.client("next")).await;
    running.abort();
    until("the next one runs", || app.jobs.started().len() == 2).await;
    app.jobs.finish(1);
    assert_eq!(next.await.unwrap().status, 200);
    app.is_idle().await;
}

mod streamed {
    use super::*;

    type Parts = mpsc::UnboundedSender<&'static str>;

    /// An app with response bodies that the test writes.
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
        let status = handle.status();
        assert_eq!((status.running, status.depth), (1, 1));
        assert!(started.try_recv().is_err());
        drop(parts);
        assert_eq!(first.next().await, None);
        drop(started.recv().await.unwrap());
        assert_eq!(second.await.unwrap().text().await, "");
        until("all slots are free", || handle.status().running == 0).await;
    }

    #[tokio::test]
    async fn hanging_up_during_a_stream_frees_the_slot() {
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
    async fn streams_of_events_hold_no_slot_if_they_are_excepted() {
        let layer = QueueLayer::new(QueueConfig::new(1).hold(Hold::ExceptEventStreams));
        let handle = layer.handle();
        let (bodies, mut parts) = mpsc::unbounded_channel::<Parts>();
        let of_type = |content_type: &'static str| {
            let bodies = bodies.clone();
            on_get(move || async move {
                let (sender, body) = mpsc::unbounded_channel();
                bodies.send(sender).unwrap();
                ([("content-type", content_type)], stream(body))
            })
        };
        let router = Router::new()
            .route("/events", of_type("text/event-stream; charset=utf-8"))
            .route("/text", of_type("text/plain"));
        let addr = serve(router.layer(layer)).await;
        for (path, running) in [("/events", 0), ("/text", 1)] {
            let mut answer = get(addr, path).send().await;
            let parts = parts.recv().await.unwrap();
            until("the head is sent", || handle.status().running == running).await;
            parts.send("a").unwrap();
            assert_eq!(answer.next().await.unwrap(), "a");
            drop(parts);
            assert_eq!(answer.next().await, None);
            until("it is over", || handle.status().running == 0).await;
        }
    }

    #[tokio::test]
    async fn hold_headers_frees_the_slot_with_the_head() {
        let (addr, handle, mut started) = start(QueueConfig::new(1).hold(Hold::Headers)).await;
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
    async fn streaming_requests_are_rejected_if_they_may_not_wait() {
        let (app, running) = busy(QueueConfig::new(1).streaming(Streaming::Reject)).await;
        let stream = |name| app.client(name).header("accept", "text/event-stream");
        let refused = stream("refused").send().await;
        assert_eq!(refused.status, 503);
        assert_eq!(refused.code().await, "streaming_not_queued");
        let waiting = app.wait(app.client("waiting")).await;
        app.jobs.finish(3);
        assert_eq!(running.await.unwrap().status, 200);
        assert_eq!(waiting.await.unwrap().status, 200);
        assert_eq!(stream("alone").send().await.status, 200);
    }
}

#[tokio::test]
async fn under_fair_one_tenants_burst_delays_no_other() {
    let (app, running) = busy(
        QueueConfig::new(1)
            .max_size(200)
            .discipline(Discipline::Fair),
    )
    .await;
    let mut sent = vec![running];
    for _ in 0..100 {
        let client = app.client("a").header("x-tenant-id", "a");
        sent.push(app.wait(client).await);
    }
    let client = app.client("b").header("x-tenant-id", "b");
    sent.push(app.wait(client).await);
    app.jobs.finish(102);
    for reply in join_all(sent).await {
        assert_eq!(reply.unwrap().status, 200);
    }
    assert_eq!(app.jobs.started()[..3], ["running", "a", "b"]);
}

#[tokio::test]
async fn a_tenant_over_its_limit_gets_429() {
    let (app, running) = busy(QueueConfig::new(1).max_size_per_tenant(1)).await;
    let from = |tenant: &str| app.client(tenant).header("x-tenant-id", tenant);
    let first = app.wait(from("a")).await;
    let refused = from("a").send().await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.code().await, "tenant_queue_full");
    let other = app.wait(from("b")).await;
    app.jobs.finish(3);
    for sent in [running, first, other] {
        assert_eq!(sent.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn shrinking_the_room_rejects_the_latest_waiters() {
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
    app.jobs.finish(6);
    for served in sent {
        assert_eq!(served.await.unwrap().status, 200);
    }
    assert_eq!(running.await.unwrap().status, 200);
    assert_eq!(app.jobs.started(), ["running", "0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn handlers_that_panic_free_their_slots() {
    let app = App::start(QueueConfig::new(4)).await;
    let sent = (0..100).map(|_| app.client("boom").header("x-panic", "1").try_send());
    for reply in join_all(sent).await {
        assert!(reply.is_err(), "the connection dies with its handler");
    }
    app.is_idle().await;
    assert_eq!(app.jobs.started().len(), 100);
    assert!(app.jobs.peak() <= 4);
    app.jobs.finish(1);
    assert_eq!(app.client("next").send().await.status, 200);
}

#[tokio::test]
async fn one_limit_holds_over_routes_and_connections() {
    let layer = QueueLayer::new(QueueConfig::new(1));
    let jobs = Jobs::new();
    let whole = router(&jobs).layer(layer.clone());
    let run = |State(jobs): State<Jobs>, headers: HeaderMap| jobs.run(headers);
    let each = Router::new()
        .route("/", on_get(run).layer(layer.clone()))
        .route("/other", on_get(run).layer(layer.clone()))
        .with_state(jobs.clone());
    for router in [whole, each] {
        let addr = serve(router).await;
        let sent: Vec<_> = ["/", "/other", "/", "/other"]
            .map(|path| get(addr, path).spawn())
            .into();
        until("three wait", || layer.handle().status().depth == 3).await;
        assert_eq!(layer.handle().status().running, 1);
        jobs.finish(4);
        for reply in join_all(sent).await {
            assert_eq!(reply.unwrap().status, 200);
        }
    }
    assert_eq!(jobs.peak(), 1);
}

#[tokio::test]
async fn a_limit_lowered_under_load_retires_returned_slots() {
    let app = App::start(QueueConfig::new(20)).await;
    let sent: Vec<_> = (0..64).map(|_| app.client("n").spawn()).collect();
    until("44 wait", || app.depth() == 44).await;
    app.handle.reconfigure(QueueConfig::new(5)).unwrap();
    app.jobs.finish(15);
    until("15 came back", || app.handle.status().running == 5).await;
    assert_eq!((app.jobs.running(), app.depth()), (5, 44));
    app.jobs.finish(49);
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
    app.jobs.finish(2);
    let running = running.await.unwrap();
    assert!(!running.headers.contains_key("server-timing"));
    let waited = dur(&waiting.await.unwrap());
    assert!((50.0..5_000.0).contains(&waited), "{waited}");

    app.handle
        .reconfigure(QueueConfig::new(1).server_timing(false))
        .unwrap();
    let running = app.run("running").await;
    let silent = app.wait(app.client("silent")).await;
    app.jobs.finish(2);
    assert_eq!(running.await.unwrap().status, 200);
    let silent = silent.await.unwrap();
    assert!(!silent.headers.contains_key("server-timing"));
}

#[tokio::test]
async fn tickets_can_be_read_by_the_user() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let layer = QueueLayer::new(QueueConfig::new(1)).classify(move |request, context| {
        let name = request.headers()["x-name"].to_str().unwrap().to_owned();
        let priority = Priority(u8::from(name != "vip"));
        noted.lock().unwrap().push(name);
        let mut ticket = context.ticket_from_headers(request.headers());
        ticket.priority = priority;
        ticket
    });
    let handle = layer.handle();
    let jobs = Jobs::new();
    let addr = serve(router(&jobs).layer(layer)).await;
    let app = App { jobs, handle, addr };
    let mut sent = vec![app.run("running").await];
    for name in ["n1", "n2", "vip"] {
        sent.push(app.wait(app.client(name)).await);
    }
    app.jobs.finish(4);
    for reply in join_all(sent).await {
        assert_eq!(reply.unwrap().status, 200);
    }
    assert_eq!(app.jobs.started(), ["running", "vip", "n1", "n2"]);
    assert_eq!(*asked.lock().unwrap(), ["n1", "n2", "vip"]);
}

#[tokio::test]
async fn shutting_down_rejects_waiters_and_lets_running_requests_finish() {
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

    let mut closed = pin!(app.handle.closed());
    let noop = &mut Context::from_waker(Waker::noop());
    assert!(closed.as_mut().poll(noop).is_pending());
    app.jobs.finish(3);
    for reply in join_all(running).await {
        assert_eq!(reply.unwrap().text().await, "served");
    }
    closed.await;
    assert_eq!(app.jobs.started(), ["a", "b", "c"]);
}

#[test]
fn a_layer_built_before_the_runtime_shuts_down() {
    let token = CancellationToken::new();
    let layer = QueueLayer::new(QueueConfig::new(1)).shutdown(token.clone());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let app = App::with(layer).await;
        let running = app.run("running").await;
        let waiting = app.wait(app.client("waiting")).await;
        token.cancel();
        assert_eq!(waiting.await.unwrap().code().await, "shutting_down");
        app.jobs.finish(1);
        assert_eq!(running.await.unwrap().status, 200);
        app.handle.closed().await;
    });
}

#[tokio::test]
async fn the_clients_own_deadline_ends_its_wait() {
    let (app, running) = busy(QueueConfig::new(1)).await;
    let with_timeout = |seconds| app.client("x").header("x-request-timeout", seconds);
    let began = Instant::now();
    let late = with_timeout("0.2").send().await;
    assert!(began.elapsed() >= ms(199));
    assert_eq!(late.status, 504);
    assert!(!late.headers.contains_key("retry-after"));
    assert_eq!(late.code().await, "deadline_exceeded");

    let at_once = with_timeout("0").send().await;
    assert_eq!(at_once.status, 504);
    assert!(!at_once.headers.contains_key("server-timing"));

    let nonsense = app.wait(with_timeout("-1")).await;
    app.jobs.finish(2);
    assert_eq!(nonsense.await.unwrap().status, 200);
    assert_eq!(running.await.unwrap().status, 200);
    app.jobs.finish(1);
    assert_eq!(
        with_timeout("0").send().await.status,
        200,
        "no request has to wait"
    );
}

#[tokio::test]
async fn with_displace_a_higher_priority_replaces_a_lower_one() {
    let (app, running) = busy(QueueConfig::new(1).max_size(1).displace(true)).await;
    let displaced = app.wait(app.client("displaced")).await;
    let urgent = app.client("urgent").header("x-priority", "high").spawn();
    assert_eq!(displaced.await.unwrap().code().await, "displaced");
    app.jobs.finish(2);
    assert_eq!(urgent.await.unwrap().status, 200);
    assert_eq!(running.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_limit_alone_lets_all_others_wait_in_order() {
    let layer = QueueLayer::limit(1);
    let handle = layer.handle();
    let jobs = Jobs::new();
    let addr = serve(router(&jobs).layer(layer)).await;
    let first = get(addr, "/").named("first").spawn();
    until("it runs", || jobs.running() == 1).await;

    // More than may wait by default; a header gives none of them precedence, or a deadline.
    let mut waiting = Vec::new();
    for n in 0..120 {
        let client = get(addr, "/other").named("later");
        let client = client.header("x-priority", ["normal", "high"][n % 2]);
        waiting.push(client.header("x-request-timeout", "0").spawn());
    }
    until("all wait", || handle.status().depth == 120).await;
    let last = get(addr, "/").named("last").header("x-priority", "high");
    waiting.push(last.spawn());
    until("the last one waits", || handle.status().depth == 121).await;

    jobs.finish(122);
    let first = first.await.unwrap();
    assert!(!first.headers.contains_key("server-timing"));
    for reply in join_all(waiting).await {
        assert_eq!(reply.unwrap().text().await, "served");
    }
    let came = jobs.started();
    assert_eq!((jobs.peak(), came.len()), (1, 122));
    assert_eq!(came.last().unwrap(), "last");
    assert_eq!(handle.status().stats.rejected(), 0);
}

#[tokio::test]
async fn layers_around_read_the_reason_and_the_wait() {
    async fn describe<B>(mut response: Response<B>) -> Response<B> {
        let reason = response.extensions().get::<RejectReason>();
        let waited = response.extensions().get::<QueueTime>();
        let text = format!("{reason:?} {}", waited.is_some());
        let text = HeaderValue::from_str(&text).unwrap();
        response.headers_mut().insert("x-seen", text);
        response
    }
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(1).max_wait(ms(100)));
    let (handle, jobs) = (layer.handle(), Jobs::new());
    let layer = ServiceBuilder::new()
        .map_response(QueueResponseBody::with_extensions)
        .layer(layer);
    let router = router(&jobs).layer(layer);
    let addr = serve(router.layer(map_response(describe::<axum::body::Body>))).await;

    let running = get(addr, "/").named("running").spawn();
    until("it runs", || jobs.running() == 1).await;
    let late = get(addr, "/").named("late").spawn();
    until("it waits", || handle.status().depth == 1).await;
    let refused = get(addr, "/").named("refused").send().await;
    assert_eq!(refused.header("x-seen"), "Some(Full) false");
    assert_eq!(late.await.unwrap().header("x-seen"), "Some(TimedOut) true");

    let waiting = get(addr, "/").named("waiting").spawn();
    until("it waits", || handle.status().depth == 1).await;
    jobs.finish(2);
    assert_eq!(running.await.unwrap().header("x-seen"), "None false");
    assert_eq!(waiting.await.unwrap().header("x-seen"), "None true");
}
