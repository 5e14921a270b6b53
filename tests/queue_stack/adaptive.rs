use http::StatusCode;
use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm, TargetWait};
use tower_triage::queue::Concurrency;

use super::*;

pub(crate) fn aimd(initial: usize) -> QueueConfig {
    let limit = AdaptiveLimit::default()
        .algorithm(LimitAlgorithm::Aimd)
        .initial(initial);
    QueueConfig::adaptive(limit)
}

/// Serves `slots` calls at a time, 100 ms each, and queues the others inside.
fn hidden_limit(
    slots: usize,
) -> impl Service<Job, Response = &'static str, Error = &'static str, Future: Send> + Clone + Send {
    let slots = Arc::new(tokio::sync::Semaphore::new(slots));
    service_fn(move |job: Job| {
        let slots = Arc::clone(&slots);
        async move {
            let _slot = slots.acquire().await.map_err(|_| "closed")?;
            tokio::time::sleep(secs(0.1)).await;
            Ok(job.name)
        }
    })
}

/// The limit that is found in front of this service while 40 requests are there at any time.
async fn found<S>(inner: S) -> usize
where
    S: Service<Job, Response = &'static str, Error = &'static str, Future: Send> + Clone + Send,
{
    let config = QueueConfig::adaptive(AdaptiveLimit::default().initial(1))
        .max_wait(None)
        .target_wait(TargetWait::Off);
    let (queue, handle) = queue(config, inner);
    let end = tokio::time::Instant::now() + secs(60.0);
    join_all((0..40).map(|_| async {
        while tokio::time::Instant::now() < end {
            assert_eq!(queue.clone().oneshot(normal("n")).await, Ok("n"));
        }
    }))
    .await;
    nothing_is_left(&handle);
    handle.status().limit
}

#[tokio::test(start_paused = true)]
async fn the_limit_becomes_what_the_service_can_serve() {
    let limit = found(hidden_limit(6)).await;
    assert!((6..=8).contains(&limit), "{limit}");
}

#[tokio::test(start_paused = true)]
async fn the_limit_becomes_what_the_service_is_ready_for() {
    let limit = found(ConcurrencyLimit::new(hidden_limit(40), 6)).await;
    assert!((6..=8).contains(&limit), "{limit}");
}

#[tokio::test(start_paused = true)]
async fn an_error_lowers_the_limit_and_a_success_does_not() {
    let fails = service_fn(|job: Job| async move { Err::<(), _>(job.name) });
    let (failing, handle) = queue(aimd(20), fails);
    assert!(failing.oneshot(normal("failed")).await.is_err());
    assert_eq!(handle.status().limit, 18);

    let (well, handle) = queue(aimd(20), hidden_limit(1));
    assert_eq!(well.oneshot(normal("well")).await, Ok("well"));
    assert_eq!(handle.status().limit, 20);
}

#[tokio::test(start_paused = true)]
async fn of_http_statuses_429_and_503_lower_the_limit() {
    for (status, limit) in [(200, 20), (404, 20), (500, 20), (429, 18), (503, 18)] {
        let layer = QueueLayer::new(aimd(20));
        let service = layer.layer(service_fn(move |_: Request<Full<Bytes>>| async move {
            let mut response = Response::new(Full::<Bytes>::default());
            *response.status_mut() = StatusCode::from_u16(status).expect("a status");
            Ok::<_, std::convert::Infallible>(response)
        }));
        let response = service.oneshot(request(&[])).await.expect("infallible");
        assert_eq!(response.status(), status);
        assert_eq!(layer.handle().status().limit, limit, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_before_its_response_counts_for_nothing() {
    let service = TestService::new();
    let (queue, handle) = queue(aimd(1), service.clone());
    let running = send(&queue, normal("dropped")).await;
    running.abort();
    settle().await;
    nothing_is_left(&handle);
    assert_eq!(handle.status().limit, 1);
    // The next one is answered, and with a limit of 1 one success adds one.
    service.finish(1);
    assert_eq!(queue.oneshot(normal("served")).await, Ok("served"));
    assert_eq!(handle.status().limit, 2);
}

#[tokio::test(start_paused = true)]
async fn slots_of_a_limit_that_grows_go_to_the_waiters() {
    let service = TestService::new();
    let (queue, handle) = queue(aimd(1), service.clone());
    let mut sent = Vec::new();
    for name in ["first", "second", "third"] {
        sent.push(send(&queue, normal(name)).await);
    }
    assert_eq!(service.running(), 1);
    service.finish(1);
    settle().await;
    assert_eq!((handle.status().limit, service.running()), (2, 2));
    service.finish(2);
    for (sent, name) in sent.into_iter().zip(["first", "second", "third"]) {
        assert_eq!(sent.await.expect("no panic"), Ok(name));
    }
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_falls_retires_slots_as_they_come_back() {
    let service = TestService::new();
    let (queue, handle) = queue(aimd(20), service.clone());
    let mut sent = Vec::new();
    for _ in 0..20 {
        sent.push(send(&queue, normal("n")).await);
    }
    handle
        .reconfigure(aimd(20).concurrency(Concurrency::Limit(2)))
        .expect("valid");
    let late = send(&queue, normal("late")).await;
    service.finish(18);
    settle().await;
    assert_eq!((handle.status().limit, service.running()), (2, 2));
    service.finish(3);
    assert_eq!(late.await.expect("no panic"), Ok("late"));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_limit_within_the_new_bounds() {
    let fails = service_fn(|job: Job| async move { Err::<(), _>(job.name) });
    let (queue, handle) = queue(QueueConfig::new(8), fails);
    let limit = || handle.status().limit;
    // From a number: it goes on from there, whatever `initial` says.
    handle.reconfigure(aimd(20)).expect("valid");
    assert_eq!(limit(), 8);
    assert!(queue.clone().oneshot(normal("failed")).await.is_err());
    assert_eq!(limit(), 7);
    handle.reconfigure(aimd(20).max_size(5)).expect("valid");
    assert_eq!(limit(), 7);
    let bounded = |config: AdaptiveLimit| QueueConfig::adaptive(config.max(5));
    handle
        .reconfigure(bounded(AdaptiveLimit::default()))
        .expect("valid");
    assert_eq!(limit(), 5);
    // What was in flight meanwhile changes a fixed limit no more.
    handle.reconfigure(QueueConfig::new(3)).expect("valid");
    assert!(queue.oneshot(normal("failed")).await.is_err());
    assert_eq!(limit(), 3);

    let refused = handle.reconfigure(QueueConfig::adaptive(AdaptiveLimit::default().min(0)));
    assert!(refused.is_err());
    assert_eq!(limit(), 3);
}

#[tokio::test(start_paused = true)]
async fn backpressure_and_a_limit_that_adapts_go_together() {
    let service = TestService::new();
    let config = aimd(1).max_size(1).overflow(Overflow::Backpressure);
    let (queue, handle) = queue(config, service.clone());
    let running = send(&queue, normal("running")).await;
    let waiting = send(&queue, normal("waiting")).await;
    let mut full = queue.clone();
    let ready = tokio::spawn(async move { full.ready().await.map(|_| ()) });
    assert!(!is_done(&ready).await);
    service.finish(2);
    assert_eq!(running.await.expect("no panic"), Ok("running"));
    assert_eq!(waiting.await.expect("no panic"), Ok("waiting"));
    assert_eq!(ready.await.expect("no panic"), Ok(()));
    assert_eq!(handle.status().limit, 2);
    nothing_is_left(&handle);
}
