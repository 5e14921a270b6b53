//! Requests that pass the queue without a slot.

use std::convert::Infallible;
use std::future::{Ready, ready};

use http_body::Body;
use tokio::task::JoinHandle;
use tower_triage::queue::{QueueTime, SharedQueueLayer};

use super::*;

type Text = Full<Bytes>;

fn is_health_check(request: &Request<Text>) -> bool {
    request.headers().contains_key("x-health")
}

fn health() -> Request<Text> {
    request(&[("x-health", "yes")])
}

/// Answers health checks at once, and other requests after a second.
fn slow() -> impl Service<Request<Text>, Response = Response<Text>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    service_fn(|request: Request<Text>| async move {
        if !is_health_check(&request) {
            tokio::time::sleep(secs(1.0)).await;
        }
        Ok(Response::new(Full::from("served")))
    })
}

/// Sends health checks past a slot that is taken and a room that is full, and then closed.
async fn pass<Q, B>(queue: Q, handle: QueueHandle)
where
    Q: Service<Request<Text>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    Q::Future: Send,
    B: Body<Data = Bytes, Error: std::fmt::Debug> + Send + 'static,
{
    let send = |request| tokio::spawn(queue.clone().oneshot(request));
    let running = send(request(&[]));
    settle().await;
    let passed = async || {
        let response = send(health()).await.unwrap().unwrap();
        assert_eq!((handle.status().running, handle.status().depth), (1, 0));
        assert!(!response.headers().contains_key("server-timing"));
        assert_eq!(text(response).await, "served");
    };
    passed().await;
    let refused = async || send(request(&[])).await.unwrap().unwrap().status();
    assert_eq!(refused().await, 503);
    handle.close();
    passed().await;
    assert_eq!(refused().await, 503);
    assert_eq!(text(running.await.unwrap().unwrap()).await, "served");
    nothing_is_left(&handle);
    assert_eq!(handle.status().served, 1);
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_pass_a_full_and_a_closed_room() {
    let config = || QueueConfig::new(1).max_size(0);
    let layer = QueueLayer::new(config()).exempt(is_health_check);
    pass(layer.layer(slow()), layer.handle()).await;
    let layer = QueueLayer::until_headers(config()).exempt(is_health_check);
    pass(layer.layer(slow()), layer.handle()).await;
    let layer = QueueLayer::new(config())
        .exempt(is_health_check)
        .status_stream();
    pass(layer.layer(slow()), layer.handle()).await;
    let layer = QueueLayer::new(config())
        .on_reject(|rejection: &Rejection, _| {
            let mut response = Response::new(String::new());
            *response.status_mut() = rejection.status();
            response
        })
        .exempt(|request: &Request<_>| request.headers().contains_key("x-health"))
        .classify(|_: &Request<_>, context| context.default_ticket());
    pass(layer.layer(slow()), layer.handle()).await;
}

#[tokio::test(start_paused = true)]
async fn the_body_of_an_exempt_request_holds_no_slot() {
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(0)).exempt(is_health_check);
    let queue = layer.layer(slow());
    let unread = queue.clone().oneshot(health()).await.unwrap();
    assert!(unread.body().queue_time().is_zero() && unread.body().reason().is_none());
    nothing_is_left(&layer.handle());
    let served = queue.oneshot(request(&[])).await.unwrap();
    assert_eq!(served.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_exempt_request_that_asks_for_its_status_is_answered_plainly() {
    let layer = QueueLayer::new(QueueConfig::new(1)).status_stream();
    let queue = layer.exempt(is_health_check).layer(slow());
    let running = tokio::spawn(queue.clone().oneshot(request(&[])));
    settle().await;
    let asks = [
        ("x-health", "yes"),
        ("accept", "text/event-stream"),
        ("x-queue-status", "sse"),
    ];
    let response = queue.oneshot(request(&asks)).await.unwrap();
    assert!(!response.headers().contains_key("content-type"));
    assert_eq!(text(response).await, "served");
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_exempt_request_waits_until_the_inner_service_is_ready() {
    for config in [QueueConfig::new(8), QueueConfig::inner()] {
        let layer = QueueLayer::new(config).exempt(is_health_check);
        let queue = layer.layer(ConcurrencyLimit::new(slow(), 1));
        let send = |request| -> JoinHandle<_> { tokio::spawn(queue.clone().oneshot(request)) };
        let running = send(request(&[]));
        settle().await;
        let checked = send(health());
        assert!(!is_done(&checked).await);
        let gone = send(health());
        settle().await;
        gone.abort();
        assert!(gone.await.is_err());
        assert_eq!(running.await.unwrap().unwrap().status(), 200);
        assert_eq!(checked.await.unwrap().unwrap().status(), 200);
        nothing_is_left(&layer.handle());
    }
}

/// Fails before it is called.
#[derive(Clone)]
struct Broken;

impl Service<Request<Text>> for Broken {
    type Response = Response<Text>;
    type Error = &'static str;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Err("broken"))
    }

    fn call(&mut self, _: Request<Text>) -> Self::Future {
        ready(Err("called"))
    }
}

#[tokio::test(start_paused = true)]
async fn an_exempt_request_fails_with_the_inner_service() {
    let layer = QueueLayer::new(QueueConfig::new(1)).exempt(is_health_check);
    let failed = layer.layer(Broken).oneshot(health()).await;
    assert_eq!(failed.unwrap_err(), "broken");
}

#[tokio::test(start_paused = true)]
async fn an_exempt_request_returns_the_place_that_was_reserved_for_it() {
    let config = QueueConfig::new(1)
        .max_size(1)
        .overflow(Overflow::Backpressure);
    let layer = QueueLayer::new(config).exempt(is_health_check);
    let queue = layer.layer(slow());
    let _running = tokio::spawn(queue.clone().oneshot(request(&[])));
    settle().await;
    let (mut first, mut second) = (queue.clone(), queue);
    first.ready().await.unwrap();
    let is_ready = tokio::spawn(async move { second.ready().await.map(|_| ()) });
    assert!(!is_done(&is_ready).await);
    first.call(health()).await.unwrap();
    assert!(is_done(&is_ready).await);
}

#[tokio::test(start_paused = true)]
async fn an_exempt_request_carries_a_queue_time_of_zero() {
    let layer = QueueLayer::new(QueueConfig::new(1)).queue_time_extension();
    let tells = service_fn(|request: Request<Text>| async move {
        let told = request.extensions().get::<QueueTime>();
        Ok::<_, Infallible>(Response::<Text>::new(format!("{told:?}").into()))
    });
    let queue = layer.exempt(is_health_check).layer(tells);
    let told = text(queue.oneshot(health()).await.unwrap()).await;
    assert_eq!(told, "Some(QueueTime(0ns))");
}

#[test]
fn a_rule_that_panics_leaves_nothing_behind() {
    let layer =
        QueueLayer::new(QueueConfig::new(1)).exempt(|_: &Request<Text>| panic!("the rule panics"));
    let mut queue = layer.layer(slow());
    assert!(catch_unwind(AssertUnwindSafe(|| queue.call(health()))).is_err());
    nothing_is_left(&layer.handle());
}

#[test]
fn a_layer_with_exemptions_shares_no_inner_service() {
    let layer = QueueLayer::new(QueueConfig::inner());
    let shared = |shared: Result<SharedQueueLayer<_>, _>| shared.map(|_| ());
    let refused = shared(layer.clone().exempt(is_health_check).share_inner());
    assert!(refused.unwrap_err().to_string().contains("exempts"));

    let layer = QueueLayer::new(QueueConfig::inner());
    let beside = layer.clone();
    let _shared = layer.share_inner().unwrap();
    let exempt = beside.exempt(is_health_check);
    assert!(catch_unwind(AssertUnwindSafe(|| exempt.layer(slow()))).is_err());
}
