use super::*;

#[tokio::test(start_paused = true)]
async fn are_rejected_only_while_the_inner_service_is_busy() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let finish = Arc::clone(&gate);
    let slow = service_fn(move |_: Request<Full<Bytes>>| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    for config in [QueueConfig::new(1), QueueConfig::inner()] {
        let layer = QueueLayer::new(config.streaming(Streaming::Reject));
        let queue = layer.layer(ConcurrencyLimit::new(slow.clone(), 1));
        let stream = || request(&[("accept", "text/event-stream")]);
        let first = tokio::spawn(queue.clone().oneshot(stream()));
        settle().await;
        let refused = queue.clone().oneshot(stream()).await.unwrap();
        assert_eq!(refused.status(), 503);
        assert!(text(refused).await.contains("streaming_not_queued"));
        assert_eq!(layer.handle().status().stats.rejected(), 1);
        let waiting = tokio::spawn(queue.clone().oneshot(request(&[])));
        settle().await;
        finish.add_permits(2);
        assert_eq!(first.await.unwrap().unwrap().status(), 200);
        assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
        nothing_is_left(&layer.handle());
    }
}
