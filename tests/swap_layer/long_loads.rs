//! Loads that take longer than a request may wait.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::{Instant, sleep_until};
use tower::{Service, ServiceExt};
use tower_triage::admit::TargetWait;
use tower_triage::endpoints::Registry;
use tower_triage::swap::{SwapConfig, SwapModel};
use tower_triage::{QueueConfig, RouteLayer};

use crate::fake::{Rig, STOP, model};

/// A load takes 100 s, an answer a second, and a request may wait for 30 s, which is the default.
fn rig(config: SwapConfig, queue: QueueConfig) -> Rig {
    loading_for(100, config, queue)
}

fn loading_for(seconds: u64, config: SwapConfig, queue: QueueConfig) -> Rig {
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap()).queue(queue);
    Rig::timed(config, route, Duration::from_secs(seconds), STOP)
}

fn one() -> SwapConfig {
    SwapConfig::memory(1.0).model(model("a", 1.0))
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_load_longer_than_max_wait() {
    let rig = rig(one(), QueueConfig::default());
    assert_eq!(
        rig.ask("a", "normal").await,
        (StatusCode::OK, "a".to_owned(), 101)
    );
    assert_eq!(rig.world.log(), ["start a"]);
}

#[tokio::test(start_paused = true)]
async fn all_that_wait_for_a_load_wait_longer_than_twice_the_target() {
    let target = TargetWait::After(Duration::from_secs(10));
    let rig = rig(one(), QueueConfig::default().target_wait(target));
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(rig.send("a", "normal").await);
    }
    for sent in sent {
        assert_eq!(sent.await.unwrap().0, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_holds_while_its_model_loads() {
    let rig = rig(one(), QueueConfig::default());
    let patient = rig.send("a", "normal").await;
    let (status, body, at) = rig.ask_with("a", &[("x-request-timeout", "40")], "").await;
    assert_eq!((status, at), (StatusCode::GATEWAY_TIMEOUT, 40), "{body}");
    assert_eq!(patient.await.unwrap().0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn max_wait_counts_from_the_end_of_a_load() {
    let queue = QueueConfig::default().target_wait(TargetWait::Off);
    let mut rig = rig(one(), queue);
    rig.answer = Duration::from_secs(60);
    let first = rig.send("a", "normal").await;
    let second = rig.send("a", "normal").await;
    let (status, _, at) = first.await.unwrap();
    assert_eq!((status, at), (StatusCode::OK, 160));
    let (status, body, at) = second.await.unwrap();
    assert_eq!((status, at), (StatusCode::SERVICE_UNAVAILABLE, 130));
    assert!(body.contains("queue_timeout"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn max_wait_counts_while_a_request_waits_for_memory() {
    let config = one().model(model("b", 1.0));
    let mut rig = rig(config, QueueConfig::default());
    rig.answer = Duration::from_secs(60);
    let a = rig.send("a", "normal").await;
    tokio::time::sleep(Duration::from_secs(101)).await;
    let (status, body, at) = rig.ask("b", "normal").await;
    assert_eq!((status, at), (StatusCode::SERVICE_UNAVAILABLE, 131));
    assert!(body.contains("queue_timeout"), "{body}");
    assert_eq!(a.await.unwrap().0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_failed_after_a_long_load_waits_for_another_instance() {
    let mut model = model("a", 1.0);
    model.instances = 2;
    let rig = rig(SwapConfig::memory(2.0).model(model), QueueConfig::default());
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let inner = tower::service_fn(move |_: Request<_>| {
        let status = match counted.fetch_add(1, SeqCst) {
            0 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::OK,
        };
        let mut response = Response::new(Full::new(Bytes::new()));
        *response.status_mut() = status;
        async move { Ok::<_, Infallible>(response) }
    });
    let mut service = rig.in_front_of(inner);
    let body = Full::new(Bytes::from(r#"{"model": "a"}"#));
    let request = Request::post("/v1/chat/completions").body(body).unwrap();
    let response = service.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!((response.status(), calls.load(SeqCst)), (StatusCode::OK, 2));
    assert_eq!(rig.begin.elapsed().as_secs(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_reload_in_a_long_load_refuses_no_request() {
    for (concurrency, cmd) in [(1, "not run"), (2, "not run"), (1, "not run either")] {
        let rig = rig(one(), QueueConfig::default());
        let waits = rig.send("a", "normal").await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        let again = SwapModel::new("a", cmd)
            .memory(1.0)
            .concurrency(concurrency);
        rig.swap
            .reconfigure(SwapConfig::memory(1.0).model(again))
            .unwrap();
        let (status, body, at) = waits.await.unwrap();
        assert_eq!(status, StatusCode::OK, "{cmd} {at}: {body}");
    }
}

/// A service that is not ready until then.
#[derive(Clone)]
struct ReadyAt(Instant);

impl<B> Service<Request<B>> for ReadyAt {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if Instant::now() >= self.0 {
            return Poll::Ready(Ok(()));
        }
        let (until, waker) = (self.0, cx.waker().clone());
        tokio::spawn(async move {
            sleep_until(until).await;
            waker.wake();
        });
        Poll::Pending
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        ready(Ok(Response::new(Full::new(Bytes::new()))))
    }
}

#[tokio::test(start_paused = true)]
async fn max_wait_for_the_service_counts_from_the_end_of_a_load() {
    for (load, ready_at, answered) in [
        (25, 50, (StatusCode::OK, 50)),
        (25, 60, (StatusCode::SERVICE_UNAVAILABLE, 55)),
        (100, 125, (StatusCode::OK, 125)),
    ] {
        let rig = loading_for(load, one(), QueueConfig::default());
        let service = rig.in_front_of(ReadyAt(rig.begin + Duration::from_secs(ready_at)));
        let body = Full::new(Bytes::from(r#"{"model": "a"}"#));
        let request = Request::post("/v1/chat/completions").body(body).unwrap();
        let response = service.oneshot(request).await.unwrap();
        let at = rig.begin.elapsed().as_secs();
        assert_eq!((response.status(), at), answered, "{load}");
    }
}
