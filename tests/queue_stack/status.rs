//! Requests that are told their position while they wait, on Tokio's paused clock.

use std::convert::Infallible;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::{mpsc, oneshot};
use tower::util::BoxCloneSyncService;
use tower_triage::queue::{
    DelayedHead, FromHeaders, Http, QueueResponseBody, QueueTime, RequestHead, WithStatus,
};
use tower_triage::rejection::RetryAfter;

use super::adaptive::aimd;
use super::*;

type Events = UnsyncBoxBody<Bytes, BoxError>;
type Inner = BoxCloneSyncService<Request<Full<Bytes>>, Response<Events>, &'static str>;
type Answered = Response<QueueResponseBody<Events>>;
type Status = Http<FromHeaders, WithStatus>;

/// A call of the inner service, and the way to answer it.
struct Call {
    headers: HeaderMap,
    answer: oneshot::Sender<Result<Response<Events>, &'static str>>,
}

impl Call {
    fn answer(self, response: Response<Events>) {
        let _ = self.answer.send(Ok(response)); // its caller may be gone
    }
}

/// A queue in front of a service that the test writes.
struct TestQueue {
    queue: Queue<Inner, Status>,
    handle: QueueHandle,
    calls: mpsc::UnboundedReceiver<Call>,
}

impl TestQueue {
    fn new(config: QueueConfig) -> Self {
        Self::of(&QueueLayer::new(config).status_stream())
    }

    fn of(layer: &QueueLayer<Status>) -> Self {
        let (sender, calls) = mpsc::unbounded_channel();
        let inner = service_fn(move |request: Request<Full<Bytes>>| {
            let (answer, answered) = oneshot::channel();
            let headers = request.into_parts().0.headers;
            sender.send(Call { headers, answer }).ok();
            let answered: BoxFuture<'static, _> =
                Box::pin(async move { answered.await.unwrap_or(Err("dropped")) });
            answered
        });
        Self {
            queue: layer.layer(Inner::new(inner)),
            handle: layer.handle(),
            calls,
        }
    }

    /// A queue of one slot, which is taken.
    async fn busy(config: QueueConfig) -> (Self, Call) {
        let mut queue = Self::new(config);
        drop(queue.send(&[]));
        let first = queue.call().await;
        (queue, first)
    }

    fn send(&self, headers: &[(&'static str, &'static str)]) -> Sending {
        tokio::spawn(self.queue.clone().oneshot(request(headers)))
    }

    /// The response to a request that asks for its status, which is there at once.
    async fn ask(&self) -> Answered {
        let sent = self.send(&ASKS);
        assert!(is_done(&sent).await, "it is not answered while it waits");
        let response = sent.await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        response
    }

    async fn call(&mut self) -> Call {
        self.calls.recv().await.expect("the queue is there")
    }
}

type Sending = tokio::task::JoinHandle<Result<Answered, &'static str>>;

const ASKS: [(&str, &str); 2] = [("accept", "text/event-stream"), ("x-queue-status", "sse")];

/// A body of these frames.
fn frames(frames: impl IntoIterator<Item = Frame<Bytes>, IntoIter: Send + 'static>) -> Events {
    let frames = frames.into_iter().map(Ok::<_, BoxError>);
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

fn answer(
    status: u16,
    content_type: &'static str,
    body: &'static [&'static str],
) -> Response<Events> {
    let mut response = Response::new(frames(body.iter().map(|text| data(text))));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert("content-type", content_type);
    response
}

fn events(body: &'static [&'static str]) -> Response<Events> {
    answer(200, "text/event-stream", body)
}

/// The next piece of a body, once it is there.
async fn next<B: Body<Data = Bytes, Error = BoxError> + Unpin>(body: &mut B) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

/// What a body says from now on.
async fn rest<B: Body<Data = Bytes, Error = BoxError>>(body: B) -> String {
    let bytes = body.collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What is said after the first comment once a single waiter's call is answered so.
async fn after_comment(answer: Result<Response<Events>, &'static str>) -> String {
    let (mut queue, first) = TestQueue::busy(QueueConfig::new(1)).await;
    let mut body = queue.ask().await.into_body();
    assert_eq!(next(&mut body).await.unwrap(), ": queue position=1\n\n");
    drop(first);
    let said = tokio::spawn(rest(body));
    let _ = queue.call().await.answer.send(answer);
    let said = said.await.unwrap();
    nothing_is_left(&queue.handle);
    said
}

#[tokio::test(start_paused = true)]
async fn a_waiter_hears_its_position_every_second_and_then_the_events() {
    let (mut queue, first) = TestQueue::busy(QueueConfig::new(1)).await;
    let ahead = queue.send(&[]);
    settle().await;
    let mut body = queue.ask().await.into_body();
    for seconds in 0..3 {
        let start = tokio::time::Instant::now();
        assert_eq!(next(&mut body).await.unwrap(), ": queue position=2\n\n");
        assert_eq!(start.elapsed().as_secs(), u64::from(seconds > 0));
    }
    drop(first);
    let second = queue.call().await;
    // The next arrival measures that one waiter left in 2 seconds.
    let behind = queue.send(&[]);
    settle().await;
    assert_eq!(
        next(&mut body).await.unwrap(),
        ": queue position=1 eta=2s\n\n"
    );
    second.answer(events(&[]));
    drop(ahead.await);
    let reading = tokio::spawn(async move {
        let mut said = String::new();
        while let Some(Ok(frame)) = body.frame().await {
            match frame.into_data() {
                Ok(data) => said.push_str(std::str::from_utf8(&data).unwrap()),
                Err(frame) => return (said, frame.into_trailers().unwrap()),
            }
        }
        panic!("no trailers");
    });
    let mut response = events(&[]);
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("x-checksum"),
        HeaderValue::from_static("7"),
    )]);
    *response.body_mut() = frames([
        data("data: a\n\n"),
        data("data: b"),
        data("\n\n"),
        Frame::trailers(trailers.clone()),
    ]);
    queue.call().await.answer(response);
    let expected = ("data: a\n\ndata: b\n\n".to_owned(), trailers);
    assert_eq!(reading.await.unwrap(), expected);
    behind.abort();
    settle().await;
    nothing_is_left(&queue.handle);
}

#[tokio::test(start_paused = true)]
async fn the_head_of_the_answer_is_known_once_it_is_there() {
    for (answer, status) in [(Ok(answer(404, "text/plain", &[])), 404), (Err("no"), 500)] {
        let (mut queue, first) = TestQueue::busy(QueueConfig::new(1)).await;
        let response = queue.ask().await;
        let delayed = response.extensions().get::<DelayedHead>().unwrap().clone();
        assert!(delayed.get().is_none());
        tokio::time::advance(Duration::from_secs(2)).await;
        drop(first);
        let said = tokio::spawn(rest(response.into_body()));
        let _ = queue.call().await.answer.send(answer);
        said.await.unwrap();
        let head = delayed.get().unwrap();
        assert_eq!(head.status, status);
        if status == 404 {
            let QueueTime(waited) = head.extensions.get().unwrap();
            assert_eq!(waited.as_secs(), 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_slot_is_held_until_the_events_end() {
    let (mut queue, first) = TestQueue::busy(QueueConfig::new(1)).await;
    let mut body = queue.ask().await.into_body();
    next(&mut body).await.unwrap();
    drop(first);
    let reading = tokio::spawn(async move { (next(&mut body).await, body) });
    let call = queue.call().await;
    assert_eq!(call.headers["accept-encoding"], "identity");
    call.answer(events(&["data: a\n\n"]));
    let (said, body) = reading.await.unwrap();
    assert_eq!(said.unwrap(), "data: a\n\n");
    assert_eq!(queue.handle.status().running, 1);
    assert_eq!(rest(body).await, "");
    nothing_is_left(&queue.handle);
}

#[tokio::test(start_paused = true)]
async fn behind_a_limit_that_adapts_a_waiter_hears_its_position() {
    let mut queue = TestQueue::new(aimd(2));
    drop((queue.send(&[]), queue.send(&[])));
    let (first, _second) = (queue.call().await, queue.call().await);
    let mut body = queue.ask().await.into_body();
    let unread = queue.ask().await;
    for _ in 0..2 {
        assert_eq!(next(&mut body).await.unwrap(), ": queue position=1\n\n");
    }
    drop(unread);
    assert_eq!(queue.handle.status().depth, 1);
    first.answer(events(&[]));
    let reading = tokio::spawn(async move { (next(&mut body).await, body) });
    let call = queue.call().await;
    assert_eq!(call.headers["accept-encoding"], "identity");
    call.answer(events(&["data: a\n\n"]));
    let (said, body) = reading.await.unwrap();
    assert_eq!(said.unwrap(), "data: a\n\n");
    assert_eq!(queue.handle.status().running, 2);
    assert_eq!(rest(body).await, "");
    assert_eq!(queue.handle.status().running, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_a_status_stream_is_measured() {
    let mut queue = TestQueue::new(aimd(10));
    (0..10).for_each(|_| drop(queue.send(&[])));
    let mut running = Vec::new();
    for _ in 0..10 {
        running.push(queue.call().await);
    }
    let body = queue.ask().await.into_body();
    let reading = tokio::spawn(rest(body));
    settle().await;
    running.pop().unwrap().answer(events(&[]));
    let call = queue.call().await;
    assert_eq!(queue.handle.status().limit, 10);
    call.answer(answer(429, "text/plain", &["slow down"]));
    assert!(reading.await.unwrap().contains("slow down"));
    assert_eq!(queue.handle.status().limit, 9);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_an_event_with_the_same_body_and_when_to_retry() {
    let config = QueueConfig::new(1)
        .max_wait(secs(1.5))
        .retry_after(RetryAfter::fixed(7));
    let (queue, first) = TestQueue::busy(config).await;
    let plain = queue.send(&[("accept", "text/event-stream")]);
    let body = queue.ask().await.into_body();
    let said = rest(body).await;
    let plain = plain.await.unwrap().unwrap();
    let retry_after = plain.headers()["retry-after"].to_str().unwrap().to_owned();
    assert_eq!(retry_after, "7");
    let rejection = text(plain).await;
    assert!(
        rejection.contains(r#""code":"queue_timeout""#),
        "{rejection}"
    );
    let comments = ": queue position=2\n\n".repeat(2);
    let event = said
        .strip_prefix(&format!("{comments}event: error\ndata: "))
        .unwrap();
    let event: serde_json::Value = serde_json::from_str(event.trim_end()).unwrap();
    let mut expected: serde_json::Value = serde_json::from_str(&rejection).unwrap();
    expected["error"]["retry_after"] = 7.into();
    assert_eq!(event, expected);
    drop(first);
    settle().await;
    nothing_is_left(&queue.handle);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_in_the_user_s_words_is_an_event() {
    let sorry = |_: &Rejection, _: &RequestHead<'_>| {
        let mut response = Response::new(Full::<Bytes>::from(r#"{"sorry": true}"#));
        *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert("content-type", json);
        response
    };
    let config = QueueConfig::new(1).max_wait(secs(0.5));
    let mut queue = TestQueue::of(&QueueLayer::new(config).on_reject(sorry).status_stream());
    drop(queue.send(&[]));
    let _first = queue.call().await;
    let said = rest(queue.ask().await.into_body()).await;
    let expected = "event: error\ndata: {\"sorry\": true}\n\n";
    assert_eq!(said, format!(": queue position=1\n\n{expected}"));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_body_frees_the_place_at_once() {
    let (mut queue, first) = TestQueue::busy(QueueConfig::new(1)).await;
    let unread = queue.ask().await;
    let mut read = queue.ask().await.into_body();
    next(&mut read).await.unwrap();
    assert_eq!(queue.handle.status().depth, 2);
    drop(read);
    assert_eq!(queue.handle.status().depth, 1);
    drop(unread);
    assert_eq!(queue.handle.status().depth, 0);
    drop(first);
    settle().await;
    nothing_is_left(&queue.handle);
    assert!(
        queue.calls.try_recv().is_err(),
        "it was served nevertheless"
    );
}

#[tokio::test(start_paused = true)]
async fn dropping_the_body_cancels_the_call() {
    let (mut queue, first) = TestQueue::busy(QueueConfig::new(1)).await;
    let body = queue.ask().await.into_body();
    drop(first);
    let reading = tokio::spawn(rest(body));
    let call = queue.call().await;
    assert_eq!(queue.handle.status().running, 1);
    reading.abort();
    settle().await;
    assert!(call.answer.is_closed());
    nothing_is_left(&queue.handle);
}

#[tokio::test(start_paused = true)]
async fn a_panic_behind_the_comments_costs_no_slot() {
    let layer = QueueLayer::new(QueueConfig::new(1)).status_stream();
    let service = layer.layer(service_fn(|_: Request<Full<Bytes>>| async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert!(tokio::task::try_id().is_none(), "a bug");
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    let first = tokio::spawn(service.clone().oneshot(request(&[])));
    settle().await;
    let second = service.oneshot(request(&ASKS)).await.unwrap();
    let second = tokio::spawn(rest(second.into_body()));
    assert!(first.await.unwrap_err().is_panic());
    assert_eq!(layer.handle().status().running, 1);
    assert!(second.await.unwrap_err().is_panic());
    nothing_is_left(&layer.handle());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_success_is_an_error_event() {
    let json = r#"{"error":{"message":"too long","type":"invalid_request_error","param":null,"code":"context"}}"#;
    let wrapped = |kind: &str, message: &str| {
        format!(
            r#"{{"error":{{"message":"{message}","type":"{kind}","param":null,"code":"upstream_failed"}}}}"#
        )
    };
    let cases = [
        (
            answer(
                400,
                "application/json; charset=utf-8",
                &[
                    r#"{"error":{"message":"too long","type":"invalid_request_error","#,
                    r#""param":null,"code":"context"}}"#,
                ],
            ),
            json.to_owned(),
        ),
        (
            answer(502, "text/html", &["<h1>bad \"gateway\"</h1>"]),
            wrapped("server_error", r#"<h1>bad \"gateway\"</h1>"#),
        ),
        (
            answer(429, "application/json", &[]),
            wrapped(
                "rate_limit_error",
                "the request was answered with 429 Too Many Requests",
            ),
        ),
        (
            answer(302, "text/event-stream", &[]),
            wrapped("server_error", "the request was answered with 302 Found"),
        ),
    ];
    for (answer, data) in cases {
        let said = after_comment(Ok(answer)).await;
        assert_eq!(said, format!("event: error\ndata: {data}\n\n"));
    }
    let said = after_comment(Err("no route to host")).await;
    let message = "the request failed before there was a response";
    let data = wrapped("server_error", message);
    assert_eq!(said, format!("event: error\ndata: {data}\n\n"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_says_when_to_retry_says_so_in_its_event() {
    let slow_down = |content_type, body, retry_after| {
        let mut answer = answer(429, content_type, body);
        let retry_after = HeaderValue::from_static(retry_after);
        answer.headers_mut().insert("retry-after", retry_after);
        answer
    };
    let json = "application/json";
    let said = after_comment(Ok(slow_down(json, &[r#"{"error":{"code":1}}"#], "30"))).await;
    let data = r#"{"error":{"retry_after":30,"code":1}}"#;
    assert_eq!(said, format!("event: error\ndata: {data}\n\n"));
    let said = after_comment(Ok(slow_down("text/plain", &["later"], "30"))).await;
    assert!(
        said.contains(r#"{"error":{"retry_after":30,"message":"later","#),
        "{said}"
    );
    let date = "Wed, 21 Oct 2026 07:28:00 GMT";
    let said = after_comment(Ok(slow_down("text/plain", &["later"], date))).await;
    assert!(said.contains(r#"{"error":{"message":"later","#), "{said}");
}

#[tokio::test(start_paused = true)]
async fn an_encoded_answer_is_an_error_event() {
    let mut gzip = events(&["\u{1f}\u{8b}"]);
    let encoding = HeaderValue::from_static("gzip");
    gzip.headers_mut().insert("content-encoding", encoding);
    let said = after_comment(Ok(gzip)).await;
    assert!(said.starts_with("event: error\n"), "{said}");
    assert!(said.contains("upstream_failed"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_stream_is_an_event_per_line() {
    let json = answer(200, "application/json", &[r#"{"text""#, r#": "hello"}"#]);
    let said = after_comment(Ok(json)).await;
    assert_eq!(said, "data: {\"text\": \"hello\"}\n\n");

    let lines = answer(
        200,
        "application/x-ndjson",
        &["{\"n\":1}\n", "{\"n\":2}\r\n"],
    );
    let said = after_comment(Ok(lines)).await;
    assert_eq!(said, "data: {\"n\":1}\n\ndata: {\"n\":2}\n\n");

    assert_eq!(after_comment(Ok(answer(204, "text/plain", &[]))).await, "");
}

#[tokio::test(start_paused = true)]
async fn the_trailers_of_a_text_follow_its_last_event() {
    let (mut queue, first) = TestQueue::busy(QueueConfig::new(1)).await;
    let body = queue.ask().await.into_body();
    drop(first);
    let said = tokio::spawn(body.collect());
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from(7))]);
    let body = frames([data("a"), Frame::trailers(trailers.clone())]);
    queue.call().await.answer(Response::new(body));
    let said = said.await.unwrap().unwrap();
    assert_eq!(said.trailers(), Some(&trailers));
    let text = String::from_utf8(said.to_bytes().to_vec()).unwrap();
    assert!(text.ends_with("data: a\n\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn only_a_stream_that_asks_for_it_is_answered_while_it_waits() {
    let (queue, _first) = TestQueue::busy(QueueConfig::new(1)).await;
    let cases: [&[(&str, &str)]; 5] = [
        &[("x-queue-status", "sse")],
        &[("x-queue-status", "sse"), ("accept", "*/*")],
        &[("accept", "text/event-stream")],
        &[("accept", "text/event-stream"), ("x-queue-status", "on")],
        &[ASKS[0], ASKS[1], ("content-type", "application/grpc")],
    ];
    for headers in cases {
        let sent = queue.send(headers);
        assert!(!is_done(&sent).await, "{headers:?}");
        sent.abort();
    }
    // The server drops the body of its response.
    for method in [http::Method::HEAD, http::Method::CONNECT] {
        let mut bodyless = request(&ASKS);
        *bodyless.method_mut() = method;
        let sent = tokio::spawn(queue.queue.clone().oneshot(bodyless));
        assert!(!is_done(&sent).await);
    }
    let off = QueueConfig::new(1).status_stream(false);
    let (queue, _first) = TestQueue::busy(off).await;
    assert!(!is_done(&queue.send(&ASKS)).await);
}

#[tokio::test(start_paused = true)]
async fn a_layer_without_status_stream_answers_when_the_wait_is_over() {
    let never = service_fn(|_: Request<Full<Bytes>>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let queue = QueueLayer::new(QueueConfig::new(1)).layer(never);
    let [_running, waiting] =
        [(), ()].map(|()| tokio::spawn(queue.clone().oneshot(request(&ASKS))));
    assert!(!is_done(&waiting).await);
    assert_eq!(queue.handle().status().depth, 1);
}

#[tokio::test(start_paused = true)]
async fn what_need_not_wait_is_answered_as_ever() {
    let mut queue = TestQueue::new(QueueConfig::new(1).max_size(0));
    let served = queue.send(&ASKS);
    let call = queue.call().await;
    assert!(!call.headers.contains_key("accept-encoding"));

    let rejected = queue.send(&ASKS).await.unwrap().unwrap();
    assert_eq!(rejected.status(), 503);
    assert!(rejected.headers().contains_key("retry-after"));
    assert!(text(rejected).await.contains("queue_disabled"));

    call.answer(answer(418, "text/plain", &["short"]));
    let served = served.await.unwrap().unwrap();
    assert_eq!(served.status(), 418);
    assert_eq!(served.headers()["content-type"], "text/plain");
    assert_eq!(text(served).await, "short");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_service_that_is_not_ready_hears_its_position() {
    let layer = QueueLayer::new(QueueConfig::inner()).status_stream();
    let slots = Arc::new(tokio::sync::Semaphore::new(0));
    let finish = Arc::clone(&slots);
    let slow = service_fn(move |_: Request<Full<Bytes>>| {
        let slots = Arc::clone(&slots);
        async move {
            slots.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(events(&["data: a\n\n"]))
        }
    });
    let queue = layer.layer(ConcurrencyLimit::new(slow, 1));
    let first = tokio::spawn(queue.clone().oneshot(request(&ASKS)));
    assert!(!is_done(&first).await, "it need not wait");
    let second = tokio::spawn(queue.clone().oneshot(request(&ASKS)));
    assert!(is_done(&second).await);
    let mut body = second.await.unwrap().unwrap().into_body();
    for _ in 0..2 {
        assert_eq!(next(&mut body).await.unwrap(), ": queue position=1\n\n");
    }
    finish.add_permits(2);
    drop(first.await);
    assert_eq!(rest(body).await, "data: a\n\n");
    nothing_is_left(&layer.handle());
}
