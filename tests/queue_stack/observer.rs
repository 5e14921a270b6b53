//! The events of a queue's requests, on Tokio's paused clock.

use std::convert::Infallible;

use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderValue, Method, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tower::util::BoxCloneSyncService;
use tower_triage::queue::{Observer, RequestEnd, RequestHead};

use super::*;

type Content = UnsyncBoxBody<Bytes, BoxError>;

/// Writes down each event with the request's path, and its time in milliseconds.
#[derive(Default)]
struct Journal(Mutex<Vec<String>>);

impl Journal {
    fn add(&self, path: &str, event: impl std::fmt::Display) {
        self.0.lock().unwrap().push(format!("{path} {event}"));
    }

    /// Returns the events since the last call.
    fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Journal {
    type Request = String;

    fn on_arrived(&self, head: &RequestHead<'_>) -> String {
        head.uri().path().trim_start_matches('/').to_owned()
    }

    fn on_queued(&self, path: &mut String) {
        self.add(path, "queued");
    }

    fn on_admitted(&self, path: &mut String, waited: Duration) {
        self.add(path, format_args!("admitted {}", waited.as_millis()));
    }

    fn on_rejected(
        &self,
        path: &mut String,
        reason: &RejectReason,
        status: StatusCode,
        waited: Duration,
    ) {
        let (status, waited) = (status.as_u16(), waited.as_millis());
        self.add(path, format_args!("rejected {reason:?} {status} {waited}"));
    }

    fn on_abandoned(&self, path: &mut String, waited: Duration) {
        self.add(path, format_args!("abandoned {}", waited.as_millis()));
    }

    fn on_finished(&self, path: &mut String, end: RequestEnd, ran: Duration) {
        self.add(path, format_args!("finished {end:?} {}", ran.as_millis()));
    }
}

/// A body that knows its length but reports its end only when it is asked for one more frame.
struct Exact(Option<Frame<Bytes>>);

impl Body for Exact {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.0.take().map(Ok))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(6)
    }
}

/// Serves what the path asks for.
async fn serve(request: Request<Full<Bytes>>) -> Result<Response<Content>, &'static str> {
    let data =
        |text: &'static str| Ok::<_, BoxError>(Frame::data(Bytes::from_static(text.as_bytes())));
    let trailers = Ok(Frame::trailers(http::HeaderMap::new()));
    let whole = Full::new(Bytes::from("served")).map_err(|never: Infallible| match never {});
    let streamed = |frames: Vec<Result<Frame<Bytes>, BoxError>>| {
        let endless = stream::iter(frames).chain(stream::pending());
        StreamBody::new(endless).boxed_unsync()
    };
    let path = request.uri().path();
    let kind = path.rsplit('/').next().unwrap();
    let body = match kind {
        "blocks" => {
            _ = advance(secs(1.0)).now_or_never(); // a handler that computes for a second
            whole.boxed_unsync()
        }
        "slow" => {
            sleep(secs(1.0)).await;
            whole.boxed_unsync()
        }
        "hangs" => std::future::pending().await,
        "fails" => return Err("failed"),
        "panics" => panic!("the inner service panics"),
        "empty" => Empty::new().map_err(|never| match never {}).boxed_unsync(),
        "exact" => Exact(data("served").ok()).boxed_unsync(),
        "stalls" | "sized" => streamed(vec![data("served")]),
        "breaks-off" => streamed(vec![data("a"), Err("broken off".into())]),
        "trailers" => streamed(vec![data("a"), trailers]),
        "body-panics" => {
            let frames = stream::poll_fn(|_| panic!("the body panics"));
            StreamBody::new(frames).boxed_unsync()
        }
        _ => whole.boxed_unsync(),
    };
    let mut response = Response::new(body);
    if kind == "sized" {
        let six = HeaderValue::from_static("6");
        response.headers_mut().insert("content-length", six);
    }
    Ok(response)
}

fn get(path: &'static str) -> Request<Full<Bytes>> {
    let mut request = Request::default();
    *request.uri_mut() = http::Uri::from_static(path);
    request
}

/// Returns a request that asks for its position while it waits.
fn streamed(path: &'static str) -> Request<Full<Bytes>> {
    let asks = [("x-queue-status", "sse"), ("accept", "text/event-stream")];
    let mut request = request(&asks);
    *request.uri_mut() = http::Uri::from_static(path);
    request
}

/// Reads a response to its end, as servers do: no further than its length, and not beyond trailers.
async fn read<B: Body<Data = Bytes> + Unpin>(response: Response<B>) {
    let header = response.headers().get("content-length");
    let header = header.map(|length| length.to_str().unwrap().parse().unwrap());
    let exact = response.body().size_hint().exact();
    let mut left = header.or(exact.map(|length| length as usize));
    let mut body = response.into_body();
    while left != Some(0)
        && !body.is_end_stream()
        && let Some(Ok(frame)) = body.frame().await
        && !frame.is_trailers()
    {
        let read = frame.data_ref().map_or(0, Bytes::len);
        left = left.map(|left| left - read);
    }
}

type Inner = BoxCloneSyncService<Request<Full<Bytes>>, Response<Content>, &'static str>;

fn inner() -> Inner {
    Inner::new(service_fn(serve))
}

/// Sends a request, and reads its response.
fn send<Q, B>(queue: &Q, request: Request<Full<Bytes>>) -> JoinHandle<()>
where
    Q: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    Q::Future: Send,
    Q::Error: Send,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    let call = queue.clone().oneshot(request);
    tokio::spawn(async move {
        if let Ok(response) = call.await {
            read(response).await;
        }
    })
}

/// Sends a request, which has arrived when this returns.
async fn ask<Q, B>(queue: &Q, request: Request<Full<Bytes>>) -> JoinHandle<()>
where
    Q: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    Q::Future: Send,
    Q::Error: Send,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    let sent = send(queue, request);
    settle().await;
    sent
}

/// Lets one request wait for another, then others be rejected, abandoned and served.
async fn courses<Q, B>(queue: Q, handle: QueueHandle, journal: &Journal)
where
    Q: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    Q::Future: Send,
    Q::Error: Send,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    let _slow = ask(&queue, get("/slow")).await;
    assert_eq!(journal.events(), ["slow admitted 0"]);
    let _waits = ask(&queue, get("/waits")).await;
    let gives_up = ask(&queue, get("/gives-up")).await;
    let _refused = ask(&queue, get("/refused")).await;
    assert_eq!(
        journal.events(),
        [
            "waits queued",
            "gives-up queued",
            "refused rejected Full 503 0"
        ]
    );
    advance(secs(0.5)).await;
    gives_up.abort();
    settle().await;
    let _late = ask(&queue, get("/late")).await;
    assert_eq!(journal.events(), ["gives-up abandoned 500", "late queued"]);
    advance(secs(0.5)).await;
    settle().await;
    let events = journal.events();
    for event in [
        "slow finished Complete(200) 1000",
        "waits admitted 1000",
        "waits finished Complete(200) 0",
        "late admitted 500",
        "late finished Complete(200) 0",
    ] {
        assert!(
            events.iter().any(|seen| seen == event),
            "{event}: {events:?}"
        );
    }
    assert_eq!(events.len(), 5);

    let hangs = ask(&queue, get("/hangs")).await;
    let _times_out = ask(&queue, get("/times-out")).await;
    advance(secs(2.0)).await;
    settle().await;
    hangs.abort();
    settle().await;
    assert_eq!(
        journal.events(),
        [
            "hangs admitted 0",
            "times-out queued",
            "times-out rejected TimedOut 503 2000",
            "hangs finished Cancelled 2000",
        ]
    );
    nothing_is_left(&handle);
}

fn config() -> QueueConfig {
    QueueConfig::new(1)
        .max_size(2)
        .max_wait(secs(2.0))
        .target_wait(TargetWait::Off)
}

#[tokio::test(start_paused = true)]
async fn each_course_of_a_request_is_reported_with_its_times() {
    let journal = Arc::new(Journal::default());
    let layer = QueueLayer::new(config()).observe(Arc::clone(&journal));
    courses(layer.layer(inner()), layer.handle(), &journal).await;
    let layer = QueueLayer::new(config())
        .status_stream()
        .observe(Arc::clone(&journal));
    courses(layer.layer(inner()), layer.handle(), &journal).await;
    let layer = QueueLayer::new(config())
        .on_reject(|rejection, _| rejection.clone().into_response().map(Full::new))
        .observe(Arc::clone(&journal))
        .map_response_body(UnsyncBoxBody::new);
    courses(layer.layer(inner()), layer.handle(), &journal).await;
}

#[tokio::test(start_paused = true)]
async fn requests_are_observed_under_a_limit_per_key() {
    let journal = Arc::new(Journal::default());
    let layer = QueueLayer::shed(1)
        .per_key(|request: &Request<Full<Bytes>>| request.uri().path())
        .observe(Arc::clone(&journal));
    let queue = layer.layer(inner());
    let _runs = ask(&queue, get("/slow")).await;
    let _refused = ask(&queue, get("/slow")).await;
    let _other = ask(&queue, get("/whole")).await;
    let expected = [
        "slow admitted 0",
        "slow rejected Shed 503 0",
        "whole admitted 0",
        "whole finished Complete(200) 0",
    ];
    assert_eq!(journal.events(), expected);
    assert_eq!(layer.handle().status().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_has_no_body_is_complete_without_it() {
    let journal = Arc::new(Journal::default());
    let layer = QueueLayer::new(config()).observe(Arc::clone(&journal));
    for (status, end) in [
        (204, "Complete(204)"),
        (304, "Complete(304)"),
        (201, "BodyDropped(201)"),
    ] {
        let service = service_fn(move |_: Request<Full<Bytes>>| async move {
            let mut response = Response::new(Full::<Bytes>::from("not sent"));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            Ok::<_, Infallible>(response)
        });
        drop(layer.layer(service).oneshot(get("/a")).await.unwrap());
        let finished = format!("a finished {end} 0");
        assert_eq!(journal.events(), ["a admitted 0", &*finished]);
    }
}

#[tokio::test(start_paused = true)]
async fn over_http_2_a_body_ends_with_its_trailers() {
    let journal = Arc::new(Journal::default());
    let layer = QueueLayer::new(config()).observe(Arc::clone(&journal));
    for (version, end) in [
        (http::Version::HTTP_11, "Complete(200)"),
        (http::Version::HTTP_2, "BodyDropped(200)"),
    ] {
        let mut request = get("/exact");
        *request.version_mut() = version;
        let mut body = layer
            .layer(inner())
            .oneshot(request)
            .await
            .unwrap()
            .into_body();
        body.frame().await.unwrap().unwrap();
        drop(body);
        let finished = format!("exact finished {end} 0");
        assert_eq!(journal.events(), ["exact admitted 0", &*finished]);
    }
}

/// A body of the type that `until_headers` needs.
async fn serve_text(request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, &'static str> {
    serve(request)
        .await
        .map(|response| response.map(|_| Full::new(Bytes::from("served"))))
}

#[tokio::test(start_paused = true)]
async fn a_slot_until_the_headers_is_observed_until_the_body_ends() {
    let journal = Arc::new(Journal::default());
    let layer = QueueLayer::until_headers(config()).observe(Arc::clone(&journal));
    courses(
        layer.layer(service_fn(serve_text)),
        layer.handle(),
        &journal,
    )
    .await;

    let response = layer.layer(service_fn(serve_text)).oneshot(get("/")).await;
    nothing_is_left(&layer.handle());
    assert_eq!(journal.events(), [" admitted 0"]);
    read(response.unwrap()).await;
    assert_eq!(journal.events(), [" finished Complete(200) 0"]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_body_is_reported_as_it_was() {
    let journal = Arc::new(Journal::default());
    let layer = QueueLayer::new(config()).observe(Arc::clone(&journal));
    let queue = layer.layer(inner());
    for (path, end) in [
        ("/empty", "Complete(200)"),
        ("/whole", "Complete(200)"),
        ("/sized", "Complete(200)"),
        ("/exact", "Complete(200)"),
        ("/trailers", "Complete(200)"),
        ("/breaks-off", "BodyFailed(200)"),
        ("/stalls", "BodyDropped(200)"),
        ("/hangs", "Cancelled"),
        ("/fails", "ServiceFailed"),
        ("/panics", "Panicked"),
        ("/body-panics", "Panicked"),
    ] {
        let asked = ask(&queue, get(path)).await;
        asked.abort();
        _ = asked.await;
        let path = &path[1..];
        assert_eq!(
            journal.events(),
            [
                format!("{path} admitted 0"),
                format!("{path} finished {end} 0")
            ]
        );
        nothing_is_left(&layer.handle());
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_head_request_is_complete_without_its_body() {
    let journal = Arc::new(Journal::default());
    let queue = QueueLayer::limit(1)
        .observe(Arc::clone(&journal))
        .layer(inner());
    let mut request = get("/whole");
    *request.method_mut() = Method::HEAD;
    drop(queue.oneshot(request).await.unwrap());
    assert_eq!(
        journal.events(),
        ["whole admitted 0", "whole finished Complete(200) 0"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_computes_runs_from_its_admission() {
    let journal = Arc::new(Journal::default());
    let queue = QueueLayer::limit(1)
        .observe(Arc::clone(&journal))
        .layer(inner());
    let _slow = ask(&queue, get("/slow")).await;
    let blocks = ask(&queue, get("/blocks")).await;
    blocks.await.unwrap();
    let events = journal.events();
    assert_eq!(
        events[events.len() - 2..],
        ["blocks admitted 1000", "blocks finished Complete(200) 1000"]
    );
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_are_not_observed() {
    let journal = Arc::new(Journal::default());
    let layer = QueueLayer::new(QueueConfig::new(0).max_size(0))
        .exempt(|request| request.uri().path() != "/refused")
        .observe(Arc::clone(&journal));
    let queue = layer.layer(inner());
    for path in ["/whole", "/stalls", "/fails", "/panics", "/hangs"] {
        ask(&queue, get(path)).await.abort();
    }
    settle().await;
    assert_eq!(journal.events(), [""; 0]);
    ask(&queue, get("/refused")).await.await.unwrap();
    assert_eq!(journal.events(), ["refused rejected Disabled 503 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_observed_while_it_waits_in_its_body() {
    let journal = Arc::new(Journal::default());
    let layer = QueueLayer::new(config())
        .status_stream()
        .observe(Arc::clone(&journal));
    let queue = layer.layer(inner());
    for (path, leaves_after, events) in [
        ("/whole", 5, ["admitted 1000", "finished Complete(200) 0"]),
        (
            "/blocks",
            5,
            ["admitted 1000", "finished Complete(200) 1000"],
        ),
        ("/fails", 5, ["admitted 1000", "finished Complete(500) 0"]),
        (
            "/breaks-off",
            5,
            ["admitted 1000", "finished BodyFailed(200) 0"],
        ),
        (
            "/stalls",
            5,
            ["admitted 1000", "finished BodyDropped(200) 4000"],
        ),
        ("/hangs", 5, ["admitted 1000", "finished Cancelled 4000"]),
        ("/panics", 5, ["admitted 1000", "finished Panicked 0"]),
        ("/leaves", 1, ["abandoned 1000", ""]),
    ] {
        let _hangs = ask(
            &queue,
            get(if leaves_after == 1 { "/hangs" } else { "/slow" }),
        )
        .await;
        let asked = ask(&queue, streamed(path)).await;
        sleep(secs(leaves_after as f64)).await;
        asked.abort();
        settle().await;
        let path = &path[1..];
        let mut seen = journal.events();
        seen.retain(|event| event.starts_with(path) && *event != format!("{path} admitted 0"));
        let events = ["queued"]
            .into_iter()
            .chain(events)
            .filter(|event| !event.is_empty());
        let events: Vec<_> = events.map(|event| format!("{path} {event}")).collect();
        assert_eq!(seen, events);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_in_the_body_of_a_waiting_request_is_reported() {
    let journal = Arc::new(Journal::default());
    let layer = QueueLayer::new(config())
        .status_stream()
        .observe(Arc::clone(&journal));
    let queue = layer.layer(inner());
    let _hangs = ask(&queue, get("/hangs")).await;
    let late = ask(&queue, streamed("/late")).await;
    late.await.unwrap();
    let events = [
        "hangs admitted 0",
        "late queued",
        "late rejected TimedOut 503 2000",
    ];
    assert_eq!(journal.events(), events);
}

/// A service that is ready after a second, fails in `poll_ready`, or panics there.
#[derive(Clone)]
enum Unready {
    Fails,
    Panics,
    PanicsInCall,
}

impl Service<Request<Full<Bytes>>> for Unready {
    type Response = Response<Content>;
    type Error = &'static str;
    type Future = std::future::Pending<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match self {
            Self::Fails => Poll::Ready(Err("not ready")),
            Self::Panics => panic!("the inner service panics in poll_ready"),
            Self::PanicsInCall => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        panic!("the inner service panics in call")
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_cannot_be_called_ends_its_requests() {
    for (inner, end) in [
        (Unready::Fails, "ServiceFailed"),
        (Unready::Panics, "Panicked"),
        (Unready::PanicsInCall, "Panicked"),
    ] {
        let journal = Arc::new(Journal::default());
        let layer = QueueLayer::limit(1).observe(Arc::clone(&journal));
        let queue = layer.layer(inner);
        _ = ask(&queue, get("/a")).await.await;
        let finished = format!("a finished {end} 0");
        assert_eq!(journal.events(), ["a admitted 0", &finished]);

        let gate = layer.handle().gate().unwrap().clone();
        let slot = gate.try_acquire(&()).unwrap();
        let waits = ask(&queue, get("/a")).await;
        advance(secs(1.0)).await;
        drop(slot);
        _ = waits.await;
        assert_eq!(journal.events(), ["a queued", "a admitted 1000", &finished]);
    }
}

#[tokio::test(start_paused = true)]
async fn random_requests_have_exactly_one_last_event() {
    let [journal, second] = [(); 2].map(|()| Arc::new(Journal::default()));
    let config = QueueConfig::new(3).max_size(4).max_wait(secs(3.0));
    let layer = QueueLayer::new(config)
        .status_stream()
        .observe((Arc::clone(&journal), Arc::clone(&second)));
    let queue = layer.layer(inner());
    let kinds = [
        "whole",
        "slow",
        "hangs",
        "fails",
        "panics",
        "empty",
        "stalls",
        "sized",
        "breaks-off",
        "trailers",
        "body-panics",
    ];
    let mut random = fastrand::Rng::with_seed(27);
    let mut asked = Vec::new();
    const REQUESTS: usize = 2_000;
    for n in 0..REQUESTS {
        let path = format!("/{n}/{}", kinds[random.usize(..kinds.len())]);
        let mut request = match random.bool() {
            true => streamed("/"),
            false => get("/"),
        };
        *request.uri_mut() = path.parse().unwrap();
        asked.push(send(&queue, request));
        if random.bool() {
            sleep(secs(random.f64())).await;
        }
        if asked.len() > 12 {
            let index = random.usize(..asked.len());
            asked.swap_remove(index).abort();
        }
    }
    asked.iter().for_each(JoinHandle::abort);
    settle().await;
    nothing_is_left(&layer.handle());
    let mut courses = vec![String::new(); REQUESTS];
    let events = journal.events();
    assert_eq!(second.events(), events);
    for event in events {
        let (path, event) = event.split_once(' ').unwrap();
        let n: usize = path.split('/').next().unwrap().parse().unwrap();
        courses[n] += event.split(' ').next().unwrap();
        courses[n] += " ";
    }
    let mut count = std::collections::BTreeMap::<_, usize>::new();
    courses
        .iter()
        .for_each(|course| *count.entry(course.trim_end()).or_default() += 1);
    let known = [
        "", // never polled, so it has not arrived
        "abandoned",
        "admitted finished",
        "queued abandoned",
        "queued admitted finished",
        "queued rejected",
        "rejected",
    ];
    assert!(
        count.keys().all(|course| known.contains(course)),
        "{count:?}"
    );
    assert!(count.len() >= 6, "{count:?}");
}
