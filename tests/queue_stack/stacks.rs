use super::*;

/// On fresh clones that were polled ready, on ones that were not, and on one that is kept.
async fn serve_many<S>(queue: Queue<S, Triage>, handle: QueueHandle)
where
    S: Service<Job> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send + std::fmt::Debug,
{
    serve_readied(queue.clone(), handle.clone()).await;
    let sent = (0..100).map(|_| tokio::spawn(queue.clone().call(normal("n"))));
    for answer in join_all(sent).await {
        answer.expect("no panic").expect("served");
    }
    let mut kept = queue;
    for _ in 0..10 {
        kept.call(normal("n")).await.unwrap();
        kept.ready().await.unwrap().call(normal("n")).await.unwrap();
    }
    settle().await;
    nothing_is_left(&handle);
}

async fn serve_readied<S>(queue: S, handle: QueueHandle)
where
    S: Service<Job> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send + std::fmt::Debug,
{
    let sent = (0..100).map(|_| tokio::spawn(queue.clone().oneshot(normal("n"))));
    for answer in join_all(sent).await {
        answer.expect("no panic").expect("served");
    }
    settle().await;
    nothing_is_left(&handle);
}

fn echo() -> TestService {
    let service = TestService::new();
    service.finish(1_000);
    service
}

fn configs() -> [QueueConfig; 3] {
    let large = |config: QueueConfig| config.max_size(1_000).max_wait(None);
    [
        large(QueueConfig::new(2)),
        large(QueueConfig::new(64)),
        large(QueueConfig::inner()),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit() {
    for config in configs() {
        let (queue, handle) = queue(config, limited(&echo(), 4));
        serve_many(queue, handle).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_buffer() {
    for config in configs() {
        let (queue, handle) = queue(config, Buffer::new(limited(&echo(), 4), 4));
        serve_many(queue, handle).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_shed_that_never_sheds() {
    let (queue, handle) = queue(
        QueueConfig::new(2).max_size(1_000),
        LoadShed::new(limited(&echo(), 2)),
    );
    serve_many(queue, handle).await;
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_that_is_shared() {
    let queue = ServiceBuilder::new()
        .layer(
            layer(QueueConfig::inner().max_size(1_000).max_wait(None))
                .share_inner()
                .unwrap(),
        )
        .rate_limit(7, secs(1.0))
        .service(echo());
    let handle = queue.handle();
    serve_many(queue, handle).await;
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_shared() {
    use tower::balance::p2c::Balance;
    use tower::discover::ServiceList;
    use tower::load::{CompleteOnResponse, PendingRequests};

    let backends =
        (0..3).map(|_| PendingRequests::new(limited(&echo(), 1), CompleteOnResponse::default()));
    let balance = Balance::new(ServiceList::new::<Job>(backends));
    let queue = layer(QueueConfig::inner().max_size(1_000).max_wait(None))
        .share_inner()
        .unwrap()
        .layer(balance);
    let handle = queue.handle();
    serve_many(queue, handle).await;
}

#[tokio::test(start_paused = true)]
async fn below_a_buffer_and_a_timeout() {
    let layer = layer(QueueConfig::new(2).max_size(1_000));
    let handle = layer.handle();
    let stack = ServiceBuilder::new()
        .buffer(64)
        .timeout(secs(60.0))
        .layer(layer)
        .map_err(|error: &'static str| BoxedError(error.into()))
        .concurrency_limit(2)
        .service(echo());
    serve_readied(stack, handle).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_ready_at_times() {
    for config in configs() {
        let flaky = Flaky::new([]);
        let (queue, handle) = queue(config, flaky.clone());
        let sent: Vec<_> = (0..50)
            .map(|_| tokio::spawn(queue.clone().oneshot(normal("n"))))
            .collect();
        settle().await;
        for _ in 0..50 {
            flaky.says(Answer::Ready);
            settle().await;
        }
        // With several slots, several tasks poll the inner service at once, and it wakes only the last of them. The
        // others are woken one after the other: each call is followed by the next poll.
        let served = sent.iter().filter(|sent| sent.is_finished()).count();
        assert!(served >= 1);
        if handle.config().concurrency == tower_triage::queue::Concurrency::Inner {
            assert_eq!(served, 50);
            nothing_is_left(&handle);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn idle_ready_clones_hold_nothing() {
    for config in [QueueConfig::new(1), QueueConfig::inner()] {
        let service = echo();
        let (queue, handle) = queue(config, limited(&service, 1));
        let mut idle: Vec<_> = (0..5).map(|_| queue.clone()).collect();
        for clone in &mut idle {
            clone.ready().await.unwrap();
        }
        nothing_is_left(&handle);
        assert_eq!(queue.clone().oneshot(normal("n")).await, Ok("n"));
        drop(idle);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_below_holds_up_no_other() {
    let service = TestService::new();
    let (queue, handle) = queue(QueueConfig::new(8), limited(&service, 1));
    let mut kept = queue.clone();
    let first = tokio::spawn(kept.call(normal("first")));
    settle().await;
    // Holds a slot of the queue and waits for the limit below.
    let gone = tokio::spawn(kept.call(normal("gone")));
    settle().await;
    gone.abort();
    let next = send(&queue, normal("next")).await;
    service.finish(2);
    assert!(is_done(&first).await && is_done(&next).await);
    assert_eq!(service.calls(), ["first", "next"]);
    nothing_is_left(&handle);
    drop(kept);
}

#[tokio::test(start_paused = true)]
async fn a_shared_inner_service_that_failed_is_not_polled_again() {
    let flaky = Flaky::new([]);
    let shared = layer(QueueConfig::inner()).share_inner().unwrap();
    let queue = shared.layer(flaky.clone());
    let first = send(&queue, normal("first")).await;
    let second = send(&queue, normal("second")).await;
    flaky.says(Answer::Error("broken"));
    let closed = Err(QueueError::Rejected(RejectReason::ShuttingDown));
    assert_eq!(first.await.unwrap(), Err(QueueError::Inner("broken")));
    assert_eq!(second.await.unwrap(), closed);
    let asked = flaky.polls();
    assert_eq!(queue.clone().oneshot(normal("third")).await, closed);
    assert_eq!(flaky.polls(), asked);
    nothing_is_left(&queue.handle());
}

#[test]
fn only_an_inner_limit_can_be_shared() {
    assert!(layer(QueueConfig::new(1)).share_inner().is_err());
    assert!(layer(QueueConfig::inner()).share_inner().is_ok());
}

#[test]
fn a_shared_inner_service_is_the_only_one() {
    let refused = |made: std::thread::Result<_>| {
        let panic: Box<dyn std::any::Any + Send> = made.map(|_: Queue<_, _>| ()).unwrap_err();
        panic.downcast::<String>().unwrap().contains("of its own")
    };
    let cloned = layer(QueueConfig::inner());
    let shared = cloned.clone().share_inner().unwrap();
    assert!(cloned.clone().share_inner().is_err());
    let queue = shared.layer(TestService::new());
    assert!(queue.handle().status().depth == 0);
    let again = catch_unwind(AssertUnwindSafe(|| shared.layer(TestService::new())));
    assert!(refused(again));
    let beside = catch_unwind(AssertUnwindSafe(|| cloned.layer(TestService::new())));
    assert!(beside.is_err());

    let cloned = layer(QueueConfig::inner());
    let _two = [
        cloned.layer(TestService::new()),
        cloned.layer(TestService::new()),
    ];
    assert!(cloned.share_inner().is_err());
}

/// Both are in one queue, and neither keeps what the other waits for.
#[tokio::test(start_paused = true)]
async fn two_services_of_one_layer_may_share_a_limit() {
    let semaphore = Arc::new(tokio::sync::Semaphore::new(1));
    let service = TestService::new();
    let limited = || ConcurrencyLimit::with_semaphore(service.clone(), Arc::clone(&semaphore));
    let layer = layer(QueueConfig::inner().max_wait(None));
    let (a, b) = (layer.layer(limited()), layer.layer(limited()));
    let running = send(&a, normal("running")).await;
    let one = send(&a, normal("a")).await;
    let two = send(&b, urgent("b")).await;
    service.finish(3);
    for sent in [running, two, one] {
        let answered = tokio::time::timeout(secs(10.0), sent).await;
        assert!(answered.expect("no deadlock").unwrap().is_ok());
    }
}
