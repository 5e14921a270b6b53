use tower_triage::Discipline;

use super::*;

#[tokio::test(start_paused = true)]
async fn streams_are_rejected_only_while_the_inner_service_is_busy() {
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

#[tokio::test(start_paused = true)]
async fn only_a_rejected_stream_has_the_code_of_streams() {
    let no_wait = |_: &Request<Full<Bytes>>, context: &ClassifyContext<'_>| {
        Ticket::new(Priority::HIGHEST, context.arrival()).no_wait()
    };
    for (streaming, accept, code) in [
        (Streaming::Queue, "*/*", "not_queued"),
        (Streaming::Queue, "text/event-stream", "not_queued"),
        (Streaming::Reject, "*/*", "not_queued"),
        (
            Streaming::Reject,
            "text/event-stream",
            "streaming_not_queued",
        ),
    ] {
        let layer = QueueLayer::new(QueueConfig::new(1).streaming(streaming)).classify(no_wait);
        let queue = layer.layer(service_fn(|_: Request<Full<Bytes>>| {
            std::future::pending::<Result<Response<Full<Bytes>>, std::convert::Infallible>>()
        }));
        let _running = tokio::spawn(queue.clone().oneshot(request(&[])));
        settle().await;
        let refused = queue.oneshot(request(&[("accept", accept)])).await.unwrap();
        assert_eq!(refused.status(), 503);
        let body = text(refused).await;
        assert!(body.contains(&format!(r#""code":"{code}""#)), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_inner_service_serves_a_stream_in_any_room() {
    for config in [
        QueueConfig::inner(),
        QueueConfig::inner().discipline(Discipline::Fair),
        QueueConfig::inner().promote_after(secs(1.0)),
    ] {
        let layer = QueueLayer::new(config.streaming(Streaming::Reject));
        let idle = service_fn(|_: Request<Full<Bytes>>| async {
            Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
        });
        let queue = layer.layer(ConcurrencyLimit::new(idle, 1));
        let stream = request(&[("accept", "text/event-stream")]);
        assert_eq!(queue.oneshot(stream).await.unwrap().status(), 200);
        nothing_is_left(&layer.handle());
    }
}

#[tokio::test(start_paused = true)]
async fn expired_stream_is_rejected_by_an_idle_inner_service() {
    let expired = |_: &Job, context: &ClassifyContext<'_>| {
        let now = context.arrival();
        let mut ticket = Ticket::new(Priority::HIGHEST, now).no_wait();
        ticket.deadline = Some(now);
        ticket
    };
    for config in [
        QueueConfig::inner(),
        QueueConfig::inner().discipline(Discipline::Fair),
    ] {
        let layer = QueueLayer::plain(config).classify(expired);
        let answer = layer.layer(explosive()).oneshot(normal("late")).await;
        let why = QueueError::Rejected(RejectReason::DeadlinePassed);
        assert_eq!(answer, Err(why));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_wait_displaces_no_waiter() {
    for config in [
        QueueConfig::new(1),
        QueueConfig::inner(),
        QueueConfig::inner().max_size_per_tenant(2),
    ] {
        let service = TestService::new();
        let no_wait: fn(&Job, &ClassifyContext<'_>) -> Ticket = |job, context| match job.urgent {
            true => triage(job, context.arrival()).no_wait(),
            false => triage(job, context.arrival()),
        };
        let layer = QueueLayer::plain(config.max_size(1)).classify(no_wait);
        let queue = layer.layer(ConcurrencyLimit::new(service.clone(), 1));
        let running = send(&queue, normal("running")).await;
        let waiting = send(&queue, normal("waiting")).await;
        let refused = queue.clone().oneshot(urgent("refused")).await;
        assert_eq!(refused, Err(QueueError::Rejected(RejectReason::NotQueued)));
        service.finish(2);
        assert!(running.await.unwrap().is_ok());
        assert!(waiting.await.unwrap().is_ok());
        nothing_is_left(&layer.handle());
    }
}
