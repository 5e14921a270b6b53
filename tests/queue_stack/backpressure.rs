use super::*;

fn full_room() -> (Queue<TestService, Triage>, QueueHandle, TestService) {
    let service = TestService::new();
    let config = QueueConfig::new(1)
        .max_size(1)
        .overflow(Overflow::Backpressure);
    let (queue, handle) = queue(config, service.clone());
    (queue, handle, service)
}

async fn becomes_ready(queue: &mut Queue<TestService, Triage>) -> bool {
    tokio::time::timeout(secs(0.001), queue.ready())
        .await
        .is_ok()
}

#[tokio::test(start_paused = true)]
async fn is_pending_while_the_room_is_full() {
    let (queue, handle, service) = full_room();
    let running = send(&queue, normal("running")).await;
    let waiting = send(&queue, normal("waiting")).await;
    let third = send(&queue, normal("third")).await;
    assert_eq!(handle.status().depth, 1);
    assert!(!becomes_ready(&mut queue.clone()).await);
    service.finish(3);
    for sent in [running, waiting, third] {
        assert!(sent.await.unwrap().is_ok());
    }
    assert_eq!(service.calls(), ["running", "waiting", "third"]);
    assert!(becomes_ready(&mut queue.clone()).await);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_reserved_place_does_not_go_to_clones() {
    let (queue, handle, service) = full_room();
    let running = send(&queue, normal("running")).await;
    let mut readied = queue.clone();
    assert!(becomes_ready(&mut readied).await);
    assert!(!becomes_ready(&mut readied.clone()).await);
    assert!(!becomes_ready(&mut queue.clone()).await);
    assert!(becomes_ready(&mut readied).await, "and it keeps it");
    let waiting = tokio::spawn(readied.call(normal("waiting")));
    settle().await;
    assert_eq!(handle.status().depth, 1);
    assert!(!becomes_ready(&mut readied).await, "used up by the call");
    service.finish(2);
    assert!(running.await.unwrap().is_ok() && waiting.await.unwrap().is_ok());
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_ready_clone_frees_its_place() {
    let (queue, _, _service) = full_room();
    let _running = send(&queue, normal("running")).await;
    let mut readied = queue.clone();
    assert!(becomes_ready(&mut readied).await);
    let mut other = ByHand::new(queue.clone().ready_oneshot());
    assert!(other.poll().is_pending());
    drop(readied);
    assert!(other.is_woken());
    assert!(matches!(other.run(), Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn a_reserved_place_is_not_for_other_requests() {
    let (queue, handle, service) = full_room();
    let _running = send(&queue, normal("running")).await;
    let mut readied = queue.clone();
    assert!(becomes_ready(&mut readied).await);
    let uninvited = queue.clone().call(urgent("uninvited")).await;
    assert_eq!(uninvited, Err(QueueError::Rejected(RejectReason::Full)));
    let waiting = tokio::spawn(readied.call(normal("waiting")));
    settle().await;
    assert_eq!(handle.status().depth, 1);
    service.finish(2);
    assert_eq!(waiting.await.unwrap(), Ok("waiting"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_ready_holds_up_no_other() {
    let (queue, _, _service) = full_room();
    let _running = send(&queue, normal("running")).await;
    let waiting = send(&queue, normal("waiting")).await;
    let mut given_up = queue.clone();
    assert!(!becomes_ready(&mut given_up).await);
    let mut next = ByHand::new(queue.clone().ready_oneshot());
    assert!(next.poll().is_pending());
    waiting.abort();
    settle().await;
    assert!(matches!(next.run(), Poll::Ready(Ok(_))));
    drop(given_up);
}

#[tokio::test(start_paused = true)]
async fn an_idle_ready_clone_holds_only_its_place() {
    let service = TestService::new();
    let config = QueueConfig::new(1)
        .max_size(2)
        .overflow(Overflow::Backpressure);
    let (queue, _) = queue(config, service.clone());
    let mut idle = queue.clone();
    assert!(becomes_ready(&mut idle).await);
    let sent = [
        send(&queue, normal("a")).await,
        send(&queue, normal("b")).await,
        send(&queue, normal("c")).await,
    ];
    service.finish(3);
    for sent in sent {
        assert!(sent.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn closing_the_queue_ends_a_pending_poll_ready() {
    let (queue, handle, _service) = full_room();
    let _running = send(&queue, normal("running")).await;
    let _waiting = send(&queue, normal("waiting")).await;
    let reserving = send(&queue, normal("reserving")).await;
    handle.close();
    assert_eq!(
        reserving.await.unwrap(),
        Err(QueueError::Rejected(RejectReason::ShuttingDown))
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_ends_a_pending_poll_ready() {
    let base = || QueueConfig::new(1).max_size(1);
    let news = [
        (base(), RejectReason::Full),
        (
            base().overflow(Overflow::Backpressure).max_size(0),
            RejectReason::Disabled,
        ),
    ];
    for (config, why) in news {
        let (queue, handle, _service) = full_room();
        let _running = send(&queue, normal("running")).await;
        let _waiting = send(&queue, normal("waiting")).await;
        let reserving = send(&queue, normal("reserving")).await;
        handle.reconfigure(config).unwrap();
        let answer = tokio::time::timeout(secs(1.0), reserving).await;
        let answer = answer.expect("it need not stand any longer").unwrap();
        assert_eq!(answer, Err(QueueError::Rejected(why)));
    }
}

#[tokio::test(start_paused = true)]
async fn works_where_the_inner_service_is_the_limit() {
    let service = TestService::new();
    let config = QueueConfig::inner()
        .max_size(1)
        .overflow(Overflow::Backpressure);
    let (queue, handle) = queue(config, limited(&service, 1));
    let mut sent = Vec::new();
    for job in [normal("a"), normal("b"), normal("c"), urgent("d")] {
        sent.push(send(&queue, job).await);
    }
    assert_eq!((service.running(), handle.status().depth), (1, 1));
    service.finish(4);
    for sent in sent {
        assert!(sent.await.unwrap().is_ok());
    }
    nothing_is_left(&handle);
}
