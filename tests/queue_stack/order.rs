use super::*;

#[tokio::test(start_paused = true)]
async fn is_exact_in_front_of_a_concurrency_limit() {
    let service = TestService::new();
    let (queue, handle) = queue(QueueConfig::inner(), limited(&service, 1));
    let mut all = vec![send(&queue, normal("first")).await];
    for job in [normal("n1"), normal("n2"), urgent("h")] {
        all.push(send(&queue, job).await);
    }
    assert_eq!(handle.status().depth, 3);
    for _ in 0..4 {
        service.finish(1);
        settle().await;
    }
    assert_eq!(service.calls(), ["first", "h", "n1", "n2"]);
    assert_eq!(service.peak(), 1);
    for sent in all {
        assert!(sent.await.unwrap().is_ok());
    }
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn is_exact_in_front_of_a_rate_limit() {
    let service = TestService::new();
    service.finish(100);
    let queue = ServiceBuilder::new()
        .layer(layer(QueueConfig::inner()).share_inner().unwrap())
        .rate_limit(1, secs(1.0))
        .service(service.clone());
    let mut all = vec![send(&queue, normal("first")).await];
    for job in [normal("n1"), normal("n2"), urgent("h")] {
        all.push(send(&queue, job).await);
    }
    assert_eq!(service.calls(), ["first"]);
    for came in 2..=4 {
        advance(secs(1.01)).await;
        settle().await;
        assert_eq!(service.calls().len(), came, "{:?}", service.calls());
    }
    assert_eq!(service.calls(), ["first", "h", "n1", "n2"]);
    nothing_is_left(&queue.handle());
}

#[tokio::test(start_paused = true)]
async fn is_exact_with_a_limit_of_its_own() {
    let service = TestService::new();
    let (queue, handle) = queue(QueueConfig::new(1), service.clone());
    let mut all = vec![send(&queue, normal("first")).await];
    for job in [normal("n1"), urgent("h"), normal("n2")] {
        all.push(send(&queue, job).await);
    }
    service.finish(4);
    join_all(all).await;
    assert_eq!(service.calls(), ["first", "h", "n1", "n2"]);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn survives_promotion_between_asking_and_being_ready() {
    let flaky = Flaky::new([]);
    let config = QueueConfig::inner().promote_after(secs(1.0)).max_wait(None);
    let (queue, handle) = queue(config, flaky.clone());
    let old = send(&queue, normal("old")).await;
    advance(secs(0.5)).await;
    let high = send(&queue, urgent("high")).await;
    advance(secs(0.6)).await;
    for _ in 0..2 {
        flaky.says(Answer::Ready);
        settle().await;
    }
    assert_eq!(flaky.calls(), ["old", "high"]);
    assert!(is_done(&old).await && is_done(&high).await);
    nothing_is_left(&handle);
}
