//! Limits on the time for which a request may hold its slot, and for which its body may be silent.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower_triage::queue::{HoldError, QueueResponseBody};

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

type Body = Channel<Bytes, Infallible>;
type Held = Response<QueueResponseBody<Body>>;

/// A queue of one slot whose responses are streams, and the senders of their bodies.
struct Streams {
    queue: Queue<ServiceFn>,
    handle: QueueHandle,
    senders: mpsc::UnboundedReceiver<Sender<Bytes, Infallible>>,
}

type ServiceFn = tower::util::BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, Infallible>;

impl Streams {
    fn new(config: QueueConfig) -> Self {
        let (send, senders) = mpsc::unbounded_channel();
        let service = service_fn(move |_: Request<Full<Bytes>>| {
            let (sender, body) = Channel::new(8);
            send.send(sender).unwrap();
            async { Ok::<_, Infallible>(Response::new(body)) }
        });
        let layer = QueueLayer::new(config);
        Self {
            handle: layer.handle(),
            queue: layer.layer(ServiceFn::new(service)),
            senders,
        }
    }

    fn ask(&self) -> tokio::task::JoinHandle<Held> {
        let queue = self.queue.clone();
        tokio::spawn(async { queue.oneshot(request(&[])).await.unwrap() })
    }

    /// A response whose body is sent by the returned sender.
    async fn open(&mut self) -> (Sender<Bytes, Infallible>, Held) {
        let response = self.ask().await.unwrap();
        (self.senders.recv().await.unwrap(), response)
    }
}

fn limited() -> QueueConfig {
    QueueConfig::new(1).max_hold(LIMIT)
}

async fn error(body: &mut QueueResponseBody<Body>) -> HoldError {
    let error = body.frame().await.unwrap().unwrap_err();
    *error.downcast().expect("an error of the queue")
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_never_read_gives_its_slot_back_in_time() {
    let mut streams = Streams::new(limited());
    let began = Instant::now();
    let (_sender, mut stalled) = streams.open().await;
    let next = streams.ask().await.unwrap();
    assert_eq!(next.body().queue_time(), began.elapsed());
    assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
    assert_eq!(streams.handle.status().running, 1);

    let over = error(stalled.body_mut()).await;
    assert_eq!(over, HoldError::TooLong(LIMIT));
    assert!(stalled.body_mut().frame().await.is_none());
    drop(stalled);
    assert_eq!(streams.handle.status().running, 1); // given back once
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_is_woken_at_the_end_of_its_time() {
    let mut streams = Streams::new(limited());
    let (mut sender, mut response) = streams.open().await;
    sender.send_data("a".into()).await.unwrap();
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "a");
    assert_eq!(error(response.body_mut()).await, HoldError::TooLong(LIMIT));
    assert!(sender.send_data("b".into()).await.is_err()); // the inner body is gone
    assert_eq!(streams.handle.status().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_in_time_ends_as_usual() {
    for config in [limited(), QueueConfig::new(1).idle_timeout(LIMIT)] {
        let mut streams = Streams::new(config);
        let (mut sender, response) = streams.open().await;
        sender.send_data("whole".into()).await.unwrap();
        assert_eq!(streams.handle.status().running, 1);
        drop(sender);
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "whole");
        assert_eq!(streams.handle.status().running, 0);
        advance(LIMIT * 2).await;
        let (_sender, _response) = streams.open().await;
        assert_eq!(streams.handle.status().running, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_gives_its_slot_back_at_once() {
    let mut streams = Streams::new(limited());
    let (_sender, response) = streams.open().await;
    drop(response);
    assert_eq!(streams.handle.status().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_body_ends_with_an_error() {
    let mut streams = Streams::new(QueueConfig::new(1).idle_timeout(LIMIT));
    let (mut sender, mut response) = streams.open().await;
    for _ in 0..3 {
        sender.send_data("a".into()).await.unwrap();
        advance(LIMIT * 9 / 10).await; // nothing is awaited
        assert!(response.body_mut().frame().await.unwrap().is_ok());
    }
    assert_eq!(error(response.body_mut()).await, HoldError::Silent(LIMIT));
    assert!(sender.send_data("b".into()).await.is_err()); // the inner body is gone
    assert_eq!(streams.handle.status().running, 0);
}

/// A service that never answers, and the number of calls that it still has.
#[expect(clippy::type_complexity, reason = "an `impl Trait` has no alias")]
fn silent() -> (
    impl Service<
        Request<Full<Bytes>>,
        Response = Response<Full<Bytes>>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static,
    Arc<()>,
) {
    let calls = Arc::new(());
    let of_service = Arc::clone(&calls);
    let service = service_fn(move |_: Request<Full<Bytes>>| {
        let call = Arc::clone(&of_service);
        async move {
            let _call = call;
            pending().await
        }
    });
    (service, calls)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_is_dropped_and_answered_504() {
    let (service, calls) = silent();
    let layer = QueueLayer::new(limited());
    let queue = layer.layer(service);
    // The second one waits for the first one's slot.
    let asked = [(), ()].map(|()| tokio::spawn(queue.clone().oneshot(request(&[]))));
    drop(queue);
    for (asked, seconds) in asked.into_iter().zip([10, 20]) {
        let began = Instant::now();
        let response = asked.await.unwrap().unwrap();
        assert_eq!(response.status(), 504);
        assert_eq!(response.body().reason(), Some(&RejectReason::HeldTooLong));
        assert!(began.elapsed() <= secs(f64::from(seconds)));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = std::str::from_utf8(&body).unwrap();
        assert!(body.contains("\"slot_timeout\""), "{body}");
    }
    assert_eq!(layer.handle().status().running, 0);
    assert_eq!(Arc::strong_count(&calls), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_grpc_call_has_its_status() {
    let (service, _calls) = silent();
    let queue = QueueLayer::new(limited()).layer(service);
    let request = request(&[("content-type", "application/grpc")]);
    let response = queue.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], "4");
}

#[tokio::test(start_paused = true)]
async fn an_own_rejection_sees_the_head_of_a_late_call() {
    let (service, _calls) = silent();
    let queue = QueueLayer::new(limited()).on_reject(|rejection, head| {
        let text = format!(
            "{} {}",
            rejection.code(),
            head.headers()["x-mine"].to_str().unwrap()
        );
        Response::new(text)
    });
    let response = queue.layer(service).oneshot(request(&[("x-mine", "1")]));
    let body = response.await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "slot_timeout 1");
}

#[tokio::test(start_paused = true)]
async fn a_plain_service_fails_with_the_reason() {
    let service = service_fn(|_: u32| pending::<Result<u32, std::io::Error>>());
    let queue = QueueLayer::plain(limited()).layer(service);
    let error = queue.oneshot(1).await.unwrap_err();
    assert!(matches!(
        error,
        QueueError::Rejected(RejectReason::HeldTooLong)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_limits_later_requests() {
    let mut streams = Streams::new(QueueConfig::new(1));
    let (_sender, unlimited) = streams.open().await;
    streams.handle.reconfigure(limited()).unwrap();
    advance(LIMIT * 100).await;
    assert_eq!(streams.handle.status().running, 1);
    drop(unlimited);
    let (_sender, _limited) = streams.open().await;
    tokio::time::sleep(LIMIT * 2).await;
    assert_eq!(streams.handle.status().running, 0);
}
