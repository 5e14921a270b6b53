//! Rejected requests that keep their places, on Tokio's paused clock.

use http::{HeaderMap, HeaderValue};
use tokio::sync::{mpsc, oneshot};
use tower_triage::queue::{QueueResponseBody, QueueTime, RetryPlaces};
use tower_triage::rejection::RetryAfter;

use super::*;

type Answered = Response<QueueResponseBody<Full<Bytes>>>;
type Sending = tokio::task::JoinHandle<Answered>;

/// A queue of one slot, whose calls the test finishes.
struct TestQueue {
    layer: QueueLayer,
    calls: mpsc::UnboundedReceiver<(String, oneshot::Sender<()>)>,
    call: mpsc::UnboundedSender<(String, oneshot::Sender<()>)>,
}

impl TestQueue {
    fn new(layer: QueueLayer) -> Self {
        let (call, calls) = mpsc::unbounded_channel();
        Self { layer, calls, call }
    }

    /// Sends a request of this name, which has arrived when this returns.
    async fn send(&self, name: &'static str, headers: &HeaderMap) -> Sending {
        let call = self.call.clone();
        let inner = service_fn(move |request: Request<Full<Bytes>>| {
            let call = call.clone();
            async move {
                let name = request.headers()["x-name"].to_str().unwrap().to_owned();
                let (finish, finished) = oneshot::channel();
                call.send((name, finish)).ok();
                finished.await.ok();
                Ok::<_, std::convert::Infallible>(Response::new(Full::default()))
            }
        });
        let mut request = request(&[("x-name", name)]);
        request.headers_mut().extend(headers.clone());
        let service = self.layer.layer(inner);
        let sent = tokio::spawn(async move { service.oneshot(request).await.unwrap() });
        settle().await;
        sent
    }

    /// The call that runs by now.
    async fn next(&mut self) -> (String, oneshot::Sender<()>) {
        self.calls.recv().await.unwrap()
    }
}

fn config() -> QueueConfig {
    QueueConfig::new(1)
        .max_size(1)
        .retry_after(RetryAfter::fixed(2))
}

fn places() -> RetryPlaces {
    RetryPlaces::with_key([7; 32])
}

/// The token of a rejection, to be sent back.
fn token(rejected: &Answered) -> HeaderMap {
    assert_eq!(rejected.status(), 503);
    let token = rejected.headers()["x-triage-place"].clone();
    HeaderMap::from_iter([(http::HeaderName::from_static("x-triage-place"), token)])
}

/// The rejection of a request in a room for two that was full; a second later its waiters have gone on, and the last of
/// them runs.
async fn rejected(config: QueueConfig) -> (TestQueue, Answered, oneshot::Sender<()>) {
    let config = config.max_size(2).max_wait(None).retry_places(places());
    let mut queue = TestQueue::new(QueueLayer::new(config));
    let none = HeaderMap::new();
    let _running = queue.send("running", &none).await;
    let _waiting = queue.send("waiting", &none).await;
    let _waiting = queue.send("waiting, too", &none).await;
    let rejected = queue.send("again", &none).await.await.unwrap();
    tokio::time::advance(secs(1.0)).await;
    drop(queue.next().await);
    drop(queue.next().await);
    let (_, last) = queue.next().await;
    (queue, rejected, last)
}

/// Whether a request that is rejected and returns after so long goes before one that came meanwhile.
async fn goes_first(returns_after: f64, headers: impl Fn(&Answered) -> HeaderMap) -> bool {
    let (mut queue, rejected, last) = rejected(config()).await;
    let none = HeaderMap::new();
    let _other = queue.send("other", &none).await;
    tokio::time::advance(secs(returns_after - 1.0)).await;
    let _again = queue.send("again", &headers(&rejected)).await;
    drop(last);
    let (first, _) = queue.next().await;
    let (second, _) = queue.next().await;
    assert_ne!(first, second);
    first == "again"
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_obeyed_goes_before_what_came_meanwhile() {
    assert!(goes_first(2.01, token).await);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_came_too_early_or_too_late_goes_behind() {
    assert!(!goes_first(1.9, token).await);
    assert!(!goes_first(62.1, token).await);
    assert!(!goes_first(2.01, |_| HeaderMap::new()).await);
}

#[tokio::test(start_paused = true)]
async fn a_retry_promoted_by_its_first_arrival_displaces_a_later_request() {
    let config = config().promote_after(secs(3.0)).retry_places(places());
    let mut queue = TestQueue::new(QueueLayer::new(config));
    let none = HeaderMap::new();
    let _running = queue.send("running", &none).await;
    let _waiting = queue.send("waiting", &none).await;
    let rejected = queue.send("again", &none).await.await.unwrap();
    tokio::time::advance(secs(1.0)).await;
    drop(queue.next().await);
    let last = queue.next().await;
    let other = queue.send("other", &none).await;
    tokio::time::advance(secs(2.5)).await;
    let _again = queue.send("again", &token(&rejected)).await;
    assert!(other.is_finished(), "its place is taken");
    drop(last);
    assert_eq!(queue.next().await.0, "again");
}

#[tokio::test(start_paused = true)]
async fn the_time_a_client_was_away_makes_no_queue_stand() {
    let config = config().target_wait(secs(1.5)).lifo_when_standing(true);
    let (mut queue, rejected, last) = rejected(config).await;
    let none = HeaderMap::new();
    tokio::time::advance(secs(1.01)).await;
    let _other = queue.send("other", &none).await;
    let _again = queue.send("again", &token(&rejected)).await;
    drop(last);
    assert_eq!(queue.next().await.0, "again");
    assert_eq!(queue.next().await.0, "other");
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_tenant_or_key_is_of_no_use() {
    let other_tenant = |rejected: &Answered| {
        let mut headers = token(rejected);
        headers.insert("x-tenant-id", HeaderValue::from_static("team-b"));
        headers
    };
    assert!(!goes_first(2.01, other_tenant).await);
    let forged = |_: &Answered| {
        let token = HeaderValue::try_from("00".repeat(49)).unwrap();
        HeaderMap::from_iter([(http::HeaderName::from_static("x-triage-place"), token)])
    };
    assert!(!goes_first(2.01, forged).await);
}

#[tokio::test(start_paused = true)]
async fn every_rejection_that_says_when_to_return_has_a_token() {
    let sorry = |_: &Rejection, _: &HeaderMap| {
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        response
    };
    let config = config().max_wait(secs(5.0)).retry_places(places());
    for layer in [
        QueueLayer::new(config.clone()),
        QueueLayer::new(config).on_reject(sorry),
    ] {
        let queue = TestQueue::new(layer);
        let none = HeaderMap::new();
        let _running = queue.send("running", &none).await;
        let timed_out = queue.send("waits", &none).await;
        let full = queue.send("full", &none).await.await.unwrap();
        let full = token(&full);
        assert_ne!(token(&timed_out.await.unwrap()), full);

        let timeout = HeaderValue::from_static("1");
        let deadline =
            HeaderMap::from_iter([(http::HeaderName::from_static("x-request-timeout"), timeout)]);
        let too_late = queue.send("too late", &deadline).await.await.unwrap();
        assert!(!too_late.headers().contains_key("x-triage-place"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_rejection_keeps_the_first_arrival() {
    let config = config().max_size(2).retry_places(places());
    let mut queue = TestQueue::new(QueueLayer::new(config));
    let none = HeaderMap::new();
    let _running = queue.send("running", &none).await;
    let _waiting = queue.send("waiting", &none).await;
    let _waiting = queue.send("waiting, too", &none).await;
    let first = queue.send("again", &none).await.await.unwrap();
    tokio::time::advance(secs(1.0)).await;
    drop(queue.next().await);
    let running = queue.next().await;
    // It comes between the first attempt and the second.
    let _other = queue.send("other", &none).await;
    tokio::time::advance(secs(1.1)).await;
    let second = queue.send("again", &token(&first)).await.await.unwrap();
    drop(running);
    let waited = queue.next().await;
    tokio::time::advance(secs(2.1)).await;
    let again = queue.send("again", &token(&second)).await;
    tokio::time::advance(secs(0.5)).await;
    drop(waited);
    let (next, finish) = queue.next().await;
    assert_eq!(next, "again");
    drop(finish);
    let response = again.await.unwrap();
    // The time between its attempts is no wait.
    let waited = response.extensions().get();
    assert_eq!(waited, Some(&QueueTime(secs(0.5))));
}

#[tokio::test(start_paused = true)]
async fn by_default_no_place_is_kept() {
    let queue = TestQueue::new(QueueLayer::new(config()));
    let none = HeaderMap::new();
    let _running = queue.send("running", &none).await;
    let _waiting = queue.send("waiting", &none).await;
    let rejected = queue.send("again", &none).await.await.unwrap();
    assert_eq!(rejected.status(), 503);
    assert!(!rejected.headers().contains_key("x-triage-place"));
}
