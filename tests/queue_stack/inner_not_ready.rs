use super::*;

#[tokio::test(start_paused = true)]
async fn max_wait_applies_while_the_inner_service_is_busy() {
    let flaky = Flaky::new([]);
    let config = QueueConfig::new(1).max_wait(secs(1.0));
    let (queue, handle) = queue(config, flaky.clone());
    let stuck = send(&queue, normal("stuck")).await;
    assert_eq!(handle.status().running, 1);
    advance(secs(0.5)).await;
    let behind = send(&queue, normal("behind")).await;
    assert_eq!(handle.status().depth, 1);
    advance(secs(0.6)).await;
    assert_eq!(
        stuck.await.unwrap(),
        Err(QueueError::Rejected(RejectReason::TimedOut))
    );
    settle().await;
    flaky.says(Answer::Ready);
    assert_eq!(behind.await.unwrap(), Ok("behind"));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_the_slot_counts() {
    let both = (Flaky::new([Answer::Ready]), TestService::new());
    let config = QueueConfig::new(1).max_wait(secs(1.0));
    let (queue, _) = queue(config, Both(both.0.clone(), both.1.clone()));
    let first = send(&queue, normal("first")).await;
    let second = send(&queue, normal("second")).await;
    advance(secs(0.7)).await;
    both.1.finish(1);
    assert!(is_done(&first).await);
    advance(secs(0.35)).await;
    assert_eq!(
        second.await.unwrap(),
        Err(QueueError::Rejected(RejectReason::TimedOut))
    );
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_requeued_request_counts_from_its_arrival() {
    let requeued = |_: &Job, context: &ClassifyContext<'_>| {
        Ticket::new(Priority(1), context.arrival() - secs(0.4)).requeued()
    };
    let layer = QueueLayer::plain(QueueConfig::new(1).max_wait(secs(1.0)));
    let queue = layer.classify(requeued).layer(Flaky::new([]));
    let stuck = send(&queue, normal("stuck")).await;
    advance(secs(0.5)).await;
    assert!(!is_done(&stuck).await);
    advance(secs(0.15)).await;
    assert!(is_done(&stuck).await);
    assert_eq!(
        stuck.await.unwrap(),
        Err(QueueError::Rejected(RejectReason::TimedOut))
    );
}

#[tokio::test(start_paused = true)]
async fn http_clients_get_503_and_server_timing() {
    let never = Never;
    let config = QueueConfig::new(1).max_wait(secs(0.3));
    let layer = QueueLayer::new(config);
    let started = tokio::time::Instant::now();
    let response = layer.layer(never).oneshot(request(&[])).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(started.elapsed().as_millis(), 300);
    let waited = response.headers()["server-timing"].to_str().unwrap();
    assert!(waited.starts_with("queue;dur=30"), "{waited}");
    assert!(text(response).await.contains("queue_timeout"));
    nothing_is_left(&layer.handle());
}

#[test]
fn outside_a_runtime_the_wait_has_no_end() {
    let flaky = Flaky::new([]);
    let (queue, handle) = queue(QueueConfig::new(1), flaky.clone());
    let mut sent = ByHand::new(queue.oneshot(normal("n")));
    assert!(sent.poll().is_pending());
    flaky.says(Answer::Ready);
    assert_eq!(sent.run(), Poll::Ready(Ok("n")));
    nothing_is_left(&handle);
}

/// Never ready.
#[derive(Clone)]
struct Never;

impl Service<Request<Full<Bytes>>> for Never {
    type Response = Response<Full<Bytes>>;
    type Error = std::convert::Infallible;
    type Future = std::future::Pending<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Pending
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        unreachable!("never ready")
    }
}

#[tokio::test(start_paused = true)]
async fn max_wait_holds_for_tickets_without_arrival() {
    let undated = |_: &Job, _: &ClassifyContext<'_>| Ticket::from(Priority(1));
    for has_slot in [false, true] {
        let layer = QueueLayer::plain(QueueConfig::new(1).max_wait(None));
        let layer = layer.classify(undated);
        let (flaky, service) = (Flaky::new([Answer::Ready]), TestService::new());
        let queue = layer.layer(Both(flaky, service.clone()));
        let first = send(&queue, normal("first")).await;
        let second = send(&queue, normal("second")).await;
        advance(secs(5.0)).await;
        let bounded = QueueConfig::new(1).max_wait(secs(10.0));
        layer.handle().reconfigure(bounded).unwrap();
        advance(secs(4.0)).await;
        service.finish(usize::from(has_slot));
        assert_eq!(is_done(&first).await, has_slot);
        assert!(!is_done(&second).await);
        advance(secs(1.5)).await;
        assert!(is_done(&second).await, "{has_slot}");
    }
}
