//! Limits on the time for which a routed request may hold its slot.

use std::time::Duration;

use http_body_util::BodyExt;
use tower_triage::QueueConfig;
use tower_triage::queue::HoldError;
use tower_triage::route::RoutingConfig;

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
