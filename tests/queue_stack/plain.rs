use super::*;

#[tokio::test(start_paused = true)]
async fn rejections_are_errors_that_say_why() {
    let service = TestService::new();
    let config = QueueConfig::new(1).max_size(1).max_wait(secs(1.0));
    let (queue, handle) = queue(config, service.clone());
    let running = send(&queue, normal("running")).await;
    let waiting = send(&queue, normal("waiting")).await;
    assert_eq!(
        queue.clone().oneshot(normal("refused")).await,
        Err(QueueError::Rejected(RejectReason::Full))
    );
    advance(secs(1.1)).await;
    let late = waiting.await.unwrap().unwrap_err();
    assert_eq!(late.to_string(), <RejectReason>::TimedOut.to_string());
    handle.close();
    assert_eq!(
        queue.clone().oneshot(normal("after")).await,
        Err(QueueError::Rejected(RejectReason::ShuttingDown))
    );
    service.finish(1);
    assert_eq!(running.await.unwrap(), Ok("running"));
    handle.closed().await;
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_inner_service_frees_the_slot() {
    let failing = service_fn(|_: Job| async { Err::<(), _>("failed") });
    let (queue, handle) = queue(QueueConfig::new(1), failing);
    for _ in 0..3 {
        let failed = queue.clone().oneshot(normal("n")).await;
        assert_eq!(failed, Err(QueueError::Inner("failed")));
    }
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_poll_ready_error_reaches_its_caller_and_frees_the_slot() {
    let flaky = Flaky::new([Answer::Error("broken"), Answer::Ready]);
    let (queue, handle) = queue(QueueConfig::new(1), flaky.clone());
    assert_eq!(
        queue.clone().oneshot(normal("unlucky")).await,
        Err(QueueError::Inner("broken"))
    );
    assert_eq!(queue.clone().oneshot(normal("next")).await, Ok("next"));

    let unlucky = send(&queue, normal("unlucky")).await;
    let next = send(&queue, normal("next")).await;
    flaky.says(Answer::Error("broken again"));
    flaky.says(Answer::Ready);
    assert_eq!(
        unlucky.await.unwrap(),
        Err(QueueError::Inner("broken again"))
    );
    assert_eq!(next.await.unwrap(), Ok("next"));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_retires_returned_slots() {
    let service = TestService::new();
    let config = |limit| QueueConfig::new(limit);
    let (queue, handle) = queue(config(20), service.clone());
    let sent: Vec<_> = (0..64)
        .map(|_| tokio::spawn(queue.clone().oneshot(normal("n"))))
        .collect();
    settle().await;
    assert_eq!((service.running(), handle.status().depth), (20, 44));
    handle.reconfigure(config(5)).unwrap();
    service.finish(15);
    settle().await;
    assert_eq!((service.running(), handle.status().depth), (5, 44));
    service.finish(1);
    settle().await;
    assert_eq!((service.running(), handle.status().depth), (5, 43));
    service.finish(64);
    join_all(sent).await;
    assert_eq!(service.peak(), 20);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_with_a_wrong_arrival_harms_no_other() {
    let service = TestService::new();
    let config = QueueConfig::new(1).max_wait(secs(10.0));
    let layer = QueueLayer::plain(config).classify(|job: &Job, context| {
        let now = context.arrival();
        let arrival = match job.name {
            "of tomorrow" => now + secs(86_400.0),
            "of yesterday" => now.checked_sub(secs(60.0)).unwrap_or(now),
            _ => now,
        };
        Ticket::new(Priority::HIGHEST, arrival)
    });
    let queue = layer.layer(service.clone());
    let running = send(&queue, normal("running")).await;
    let waiting = send(&queue, normal("waiting")).await;
    let tomorrow = send(&queue, normal("of tomorrow")).await;
    let yesterday = send(&queue, normal("of yesterday")).await;
    assert_eq!(
        yesterday.await.unwrap(),
        Err(QueueError::Rejected(RejectReason::TimedOut))
    );
    service.finish(3);
    for sent in [running, waiting, tomorrow] {
        assert!(sent.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn max_wait_bounds_a_ticket_from_the_future() {
    let never_ready = Both(Flaky::new([]), TestService::new());
    for waits_for_inner in [false, true] {
        let layer = QueueLayer::plain(QueueConfig::new(1).max_wait(secs(10.0))).classify(
            |_: &Job, context| Ticket::new(Priority::HIGHEST, context.arrival() + secs(86_400.0)),
        );
        let (queue, handle) = (layer.layer(never_ready.clone()), layer.handle());
        let mut sent = vec![send(&queue, normal("holds the slot")).await];
        if !waits_for_inner {
            sent.push(send(&queue, normal("waits for a slot")).await);
        }
        advance(secs(10.1)).await;
        settle().await;
        for sent in sent {
            assert!(sent.is_finished());
            let answer = sent.await.unwrap();
            assert_eq!(answer, Err(QueueError::Rejected(RejectReason::TimedOut)));
        }
        nothing_is_left(&handle);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_reconfigured_changes_nothing() {
    let (_, handle) = queue(QueueConfig::new(3), TestService::new());
    assert!(handle.reconfigure(QueueConfig::inner()).is_err());
    assert!(
        handle
            .reconfigure(QueueConfig::new(3).priority_header(""))
            .is_err()
    );
    assert_eq!(handle.config(), QueueConfig::new(3));
    assert_eq!(handle.status().limit, 3);
}

#[tokio::test]
async fn a_waker_may_read_the_configuration_that_woke_it() {
    struct Looks(QueueHandle, Mutex<Option<usize>>);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            *self.1.lock().unwrap() = Some(self.0.config().room.max_size);
        }
    }
    let (queue, handle) = queue(QueueConfig::new(1).max_size(9), TestService::new());
    let _running = send(&queue, normal("running")).await;
    let looks = Arc::new(Looks(handle.clone(), Mutex::default()));
    let waker = Waker::from(Arc::clone(&looks));
    let mut waiting = Box::pin(queue.oneshot(normal("waiting")));
    let mut poll = || waiting.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    handle.reconfigure(QueueConfig::new(1).max_size(0)).unwrap();
    assert_eq!(*looks.1.lock().unwrap(), Some(0));
    assert_eq!(
        poll(),
        Poll::Ready(Err(QueueError::Rejected(RejectReason::Disabled)))
    );
}
