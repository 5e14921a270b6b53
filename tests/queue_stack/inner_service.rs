//! Access to the inner service of a queue, and the load of a queue.

use super::*;

#[tokio::test]
async fn get_ref_get_mut_and_into_inner_reach_it() {
    let (mut queue, _) = queue(QueueConfig::new(1), limited(&TestService::new(), 7));
    let _: &ConcurrencyLimit<TestService> = queue.get_ref();
    let inner = TestService::new();
    *queue.get_mut() = limited(&inner, 1);
    inner.finish(1);
    assert_eq!(queue.clone().oneshot(normal("served")).await, Ok("served"));
    assert_eq!(inner.calls(), ["served"]);

    inner.finish(1);
    let inner: ConcurrencyLimit<TestService> = queue.into_inner();
    assert_eq!(inner.oneshot(normal("direct")).await, Ok("direct"));
}

#[cfg(feature = "load")]
#[tokio::test(start_paused = true)]
async fn load_counts_running_and_waiting_requests() {
    use tower::load::Load;

    let inner = TestService::new();
    let (queue, _) = queue(QueueConfig::new(1), inner.clone());
    let first = send(&queue, normal("first")).await;
    let second = send(&queue, normal("second")).await;
    assert_eq!(queue.load(), 2, "one runs, one waits");
    inner.finish(2);
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(queue.load(), 0);
}
