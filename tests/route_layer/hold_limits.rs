//! Limits on the time for which a routed request may hold its slot.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::endpoints::Registry;
use tower_triage::queue::HoldError;
use tower_triage::route::RoutingConfig;
use tower_triage::{QueueConfig, RouteLayer};

use super::support::{TestRouter, code, endpoint, settle};

const LIMIT: Duration = Duration::from_secs(10);

fn router() -> TestRouter {
    let queue = QueueConfig::default().max_hold(LIMIT).max_wait(None);
    TestRouter::with_queue([endpoint("a", 1, &["m"])], RoutingConfig::default(), queue)
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_never_read_gives_its_slot_back_in_time() {
    let mut router = router();
    let first = router.ask("m");
    router.call().await.ok();
    let first = first.await.unwrap();
    let second = router.ask("m");
    assert!(router.settled().await.is_none());
    let call = router.call().await; // the paused clock jumps
    let body = first.into_body().collect().await;
    let error = body.unwrap_err().downcast::<HoldError>().unwrap();
    assert_eq!(*error, HoldError::TooLong(LIMIT));
    assert_eq!(router.in_flight()["a"], 1);
    call.ok();
    let second = second.await.unwrap().into_body().collect().await;
    assert_eq!(second.unwrap().to_bytes(), "ok");
    settle().await;
    assert_eq!(router.in_flight()["a"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_answer_is_gone_before_its_slot_is_free() {
    let (send, mut senders) = mpsc::unbounded_channel();
    let service = service_fn(move |_| {
        let (sender, body) = Channel::<Bytes, Infallible>::new(8);
        send.send(sender).unwrap();
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let queue = QueueConfig::default().idle_timeout(LIMIT);
    let registry = Registry::new(vec![endpoint("a", 1, &["m"])]).unwrap();
    let layer = RouteLayer::builder(registry).queue(queue).build();
    let handle = layer.handle();
    let request = Request::new(Full::from(r#"{"model":"m"}"#));
    let answer = layer.layer(service).oneshot(request).await.unwrap();
    let mut sender = senders.recv().await.unwrap();
    let mut body = answer.into_body();
    let error = body.frame().await.unwrap().unwrap_err(); // the paused clock jumps
    let error = error.downcast::<HoldError>().unwrap();
    assert_eq!(*error, HoldError::Silent(LIMIT));
    assert_eq!(handle.status().running, 0);
    assert!(sender.send_data("late".into()).await.is_err());
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_is_dropped_and_answered_504() {
    let mut router = router();
    let asked = router.ask("m");
    let call = router.call().await;
    let answer = asked.await.unwrap();
    assert_eq!(answer.status(), 504);
    assert_eq!(code(answer).await, "slot_timeout");
    assert!(call.is_over());
    assert_eq!(router.in_flight()["a"], 0);
    assert_eq!(router.handle.rejected()["slot_timeout"], 1);
}
