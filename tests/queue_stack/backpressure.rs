use super::*;

fn full_room() -> (Queue<Ward, Triage>, QueueHandle, Ward) {
    let ward = Ward::new();
    let config = QueueConfig::new(1)
        .max_size(1)
        .overflow(Overflow::Backpressure);
    let (queue, handle) = queue(config, ward.clone());
    (queue, handle, ward)
}

async fn becomes_ready(queue: &mut Queue<Ward, Triage>) -> bool {
    tokio::time::timeout(secs(0.001), queue.ready())
        .await
        .is_ok()
}

#[tokio::test(start_paused = true)]
async fn is_pending_while_the_room_is_full() {
    let (queue, handle, ward) = full_room();
    let running = send(&queue, normal("running")).await;
    let waiting = send(&queue, normal("waiting")).await;
    let third = send(&queue, normal("third")).await;
    assert_eq!(handle.status().depth, 1);
    assert!(!becomes_ready(&mut queue.clone()).await);
    ward.finish(3);
    for sent in [running, waiting, third] {
        assert!(sent.await.unwrap().is_ok());
    }
    assert_eq!(ward.came(), ["running", "waiting", "third"]);
    assert!(becomes_ready(&mut queue.clone()).await);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn ready_reserves_a_chair_that_a_clone_does_not_get() {
    let (queue, handle, ward) = full_room();
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
    ward.finish(2);
    assert!(running.await.unwrap().is_ok() && waiting.await.unwrap().is_ok());
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_readied_clone_gives_its_chair_back() {
    let (queue, _, _ward) = full_room();
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
async fn a_reserved_chair_is_not_for_one_who_did_not_ask() {
    let (queue, handle, ward) = full_room();
    let _running = send(&queue, normal("running")).await;
    let mut readied = queue.clone();
    assert!(becomes_ready(&mut readied).await);
    let uninvited = queue.clone().call(urgent("uninvited")).await;
    assert_eq!(uninvited, Err(QueueError::Rejected(RejectReason::Full)));
    let waiting = tokio::spawn(readied.call(normal("waiting")));
    settle().await;
    assert_eq!(handle.status().depth, 1);
    ward.finish(2);
    assert_eq!(waiting.await.unwrap(), Ok("waiting"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_ready_holds_nobody_up() {
    let (queue, _, _ward) = full_room();
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
async fn a_readied_and_idle_clone_holds_up_nobody_beyond_its_chair() {
    let ward = Ward::new();
    let config = QueueConfig::new(1)
        .max_size(2)
        .overflow(Overflow::Backpressure);
    let (queue, _) = queue(config, ward.clone());
    let mut idle = queue.clone();
    assert!(becomes_ready(&mut idle).await);
    let sent = [
        send(&queue, normal("a")).await,
        send(&queue, normal("b")).await,
        send(&queue, normal("c")).await,
    ];
    ward.finish(3);
    for sent in sent {
        assert!(sent.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_chair_learns_that_the_queue_is_closed() {
    let (queue, handle, _ward) = full_room();
    let _running = send(&queue, normal("running")).await;
    let _waiting = send(&queue, normal("waiting")).await;
    let standing = send(&queue, normal("standing")).await;
    handle.close();
    assert_eq!(
        standing.await.unwrap(),
        Err(QueueError::Rejected(RejectReason::ShuttingDown))
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_chair_learns_of_a_new_configuration() {
    let base = || QueueConfig::new(1).max_size(1);
    let news = [
        (base(), RejectReason::Full),
        (
            base().overflow(Overflow::Backpressure).max_size(0),
            RejectReason::Disabled,
        ),
    ];
    for (config, why) in news {
        let (queue, handle, _ward) = full_room();
        let _running = send(&queue, normal("running")).await;
        let _waiting = send(&queue, normal("waiting")).await;
        let standing = send(&queue, normal("standing")).await;
        handle.reconfigure(config).unwrap();
        let answer = tokio::time::timeout(secs(1.0), standing).await;
        let answer = answer.expect("it need not stand any longer").unwrap();
        assert_eq!(answer, Err(QueueError::Rejected(why)));
    }
}

#[tokio::test(start_paused = true)]
async fn works_where_the_inner_service_is_the_limit() {
    let ward = Ward::new();
    let config = QueueConfig::inner()
        .max_size(1)
        .overflow(Overflow::Backpressure);
    let (queue, handle) = queue(config, limited(&ward, 1));
    let mut sent = Vec::new();
    for patient in [normal("a"), normal("b"), normal("c"), urgent("d")] {
        sent.push(send(&queue, patient).await);
    }
    assert_eq!((ward.running(), handle.status().depth), (1, 1));
    ward.finish(4);
    for sent in sent {
        assert!(sent.await.unwrap().is_ok());
    }
    nothing_is_left(&handle);
}
