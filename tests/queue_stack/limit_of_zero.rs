//! A limit of 0: no request runs, until the limit is raised.

use tower_triage::admit::AdaptiveLimit;
use tower_triage::queue::Concurrency;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_serves_nothing_and_times_out() {
    let inner = TestService::new();
    let (queue, handle) = queue(QueueConfig::new(0).max_size(1), inner.clone());
    let waits = send(&queue, normal("waits")).await;
    let full = send(&queue, normal("one too many")).await;
    let refused = full.await.unwrap();
    assert_eq!(refused, Err(QueueError::Rejected(RejectReason::Full)));
    assert_eq!(handle.status().limit, 0);

    advance(secs(30.1)).await;
    let refused = waits.await.unwrap();
    assert_eq!(refused, Err(QueueError::Rejected(RejectReason::TimedOut)));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_without_waiting_refuses_at_once() {
    for config in [
        QueueConfig::new(0).enabled(false),
        QueueConfig::new(0).max_size(0),
        QueueConfig::new(0).max_wait(Duration::ZERO),
    ] {
        let (queue, handle) = queue(config, TestService::new());
        let refused = send(&queue, normal("refused")).await.await.unwrap();
        assert_eq!(refused, Err(QueueError::Rejected(RejectReason::Disabled)));
        nothing_is_left(&handle);
    }
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_lets_the_waiters_go() {
    let adaptive = QueueConfig::default().concurrency(Concurrency::Adaptive(Default::default()));
    // A limit that adapts begins as configured, not with the 0 slots that there were.
    let initial = AdaptiveLimit::default().initial;
    for (raised, limit) in [(QueueConfig::new(2), 2), (adaptive, initial)] {
        let (queue, handle) = queue(QueueConfig::new(0), explosive());
        let sent = send(&queue, normal("waits")).await;
        assert!(!is_done(&sent).await);
        handle.reconfigure(raised).unwrap();
        assert_eq!(handle.status().limit, limit);
        assert_eq!(sent.await.unwrap(), Ok("waits"));

        handle.reconfigure(QueueConfig::new(0)).unwrap();
        let sent = send(&queue, normal("waits again")).await;
        assert!(!is_done(&sent).await);
        handle.gate().unwrap().set_limit(1);
        assert_eq!(sent.await.unwrap(), Ok("waits again"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_limit_of_zero_waits_for_its_handle() {
    let layer = QueueLayer::limit(0);
    let service = layer.layer(service_fn(|_: Request<Full<Bytes>>| {
        std::future::ready(Ok::<_, BoxError>(Response::new(Full::from("served"))))
    }));
    let sent = tokio::spawn(service.oneshot(request(&[])));
    advance(secs(86_400.0)).await;
    assert!(!is_done(&sent).await);
    let handle = layer.handle();
    let config = handle.config().concurrency(Concurrency::Limit(1));
    handle.reconfigure(config).unwrap();
    assert_eq!(text(sent.await.unwrap().unwrap()).await, "served");
}
