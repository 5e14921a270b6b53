//! Panics of an inner service, a classifier and a callback: what they held is released.

use super::*;

/// Sends "boom" and then a request that has to be served.
async fn the_next_is_served<S>(queue: S, handle: QueueHandle)
where
    S: Service<Job, Response = &'static str, Error = QueueError<&'static str>>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    for _ in 0..3 {
        let unlucky = tokio::spawn(queue.clone().oneshot(normal("boom")));
        assert!(unlucky.await.unwrap_err().is_panic());
        nothing_is_left(&handle);
    }
    assert_eq!(queue.oneshot(normal("next")).await, Ok("next"));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_call_frees_the_slot() {
    for config in [QueueConfig::new(1), QueueConfig::inner()] {
        let (queue, handle) = queue(config, explosive());
        the_next_is_served(queue, handle).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_response_future_frees_the_slot() {
    let explosive = service_fn(|job: Job| async move {
        tokio::task::yield_now().await;
        assert!(job.name != "boom", "the inner service panics");
        Ok::<_, &'static str>(job.name)
    });
    for config in [QueueConfig::new(1), QueueConfig::inner()] {
        let (queue, handle) = queue(config, explosive);
        the_next_is_served(queue, handle).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_poll_ready_frees_the_slot() {
    for config in [QueueConfig::new(1), QueueConfig::inner()] {
        let script = [Answer::Panic, Answer::Panic, Answer::Panic, Answer::Ready];
        let (queue, handle) = queue(config, Flaky::new(script));
        the_next_is_served(queue, handle).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_poll_ready_wakes_the_next() {
    for config in [QueueConfig::new(1), QueueConfig::inner()] {
        let flaky = Flaky::new([]);
        let (queue, handle) = queue(config, flaky.clone());
        let unlucky = send(&queue, normal("unlucky")).await;
        let next = send(&queue, normal("next")).await;
        flaky.says(Answer::Panic);
        assert!(unlucky.await.unwrap_err().is_panic());
        settle().await;
        flaky.says(Answer::Ready);
        assert_eq!(next.await.unwrap(), Ok("next"));
        nothing_is_left(&handle);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_classifier_holds_nothing() {
    let careless = |job: &Job, context: &ClassifyContext<'_>| {
        assert!(job.name != "boom", "the classifier panics");
        Ticket::new(Priority::HIGHEST, context.arrival())
    };
    let service = TestService::new();
    for config in [
        QueueConfig::new(1),
        QueueConfig::new(1).overflow(Overflow::Backpressure),
    ] {
        let layer = QueueLayer::plain(config).classify(careless);
        let (queue, handle) = (layer.layer(service.clone()), layer.handle());
        let running = send(&queue, normal("running")).await;
        let unlucky = send(&queue, normal("boom")).await;
        assert!(unlucky.await.unwrap_err().is_panic());
        let waiting = send(&queue, normal("waiting")).await;
        assert_eq!(handle.status().depth, 1);
        service.finish(2);
        assert!(running.await.unwrap().is_ok() && waiting.await.unwrap().is_ok());
        nothing_is_left(&handle);
    }
}

#[tokio::test(start_paused = true)]
async fn a_classifier_panic_frees_the_slot_behind_an_unready_service() {
    let layer = QueueLayer::plain(QueueConfig::new(1))
        .classify(|_: &Job, _| -> Ticket { panic!("the classifier panics") });
    let mut queue = layer.layer(Flaky::new([]));
    let called = catch_unwind(AssertUnwindSafe(|| queue.call(normal("n"))));
    assert!(called.is_err());
    nothing_is_left(&layer.handle());
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_on_reject_holds_nothing() {
    let echo = service_fn(|_: Request<Full<Bytes>>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let config = QueueConfig::new(1).max_size(1).max_wait(secs(1.0));
    let layer = QueueLayer::new(config)
        .on_reject(|_, _| -> Response<String> { panic!("the rendering panics") });
    let (queue, handle) = (layer.layer(echo), layer.handle());
    let holding = queue.clone().oneshot(request(&[])).await.unwrap();
    assert_eq!(handle.status().running, 0, "an empty body holds nothing");
    drop(holding);

    let service = service_fn(|_: Request<Full<Bytes>>| {
        std::future::pending::<Result<Response<Full<Bytes>>, std::convert::Infallible>>()
    });
    let queue = layer.layer(service);
    let running = tokio::spawn(queue.clone().oneshot(request(&[])));
    settle().await;
    let waiting = tokio::spawn(queue.clone().oneshot(request(&[])));
    settle().await;
    let refused = tokio::spawn(queue.clone().oneshot(request(&[])));
    assert!(refused.await.unwrap_err().is_panic());
    assert_eq!(handle.status().depth, 1);
    advance(secs(1.1)).await;
    assert!(waiting.await.unwrap_err().is_panic());
    running.abort();
    settle().await;
    nothing_is_left(&handle);
}
