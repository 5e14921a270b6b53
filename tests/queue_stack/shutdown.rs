//! A token that is cancelled closes the room inside `cancel`.

use super::*;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

fn shutting_down<T>() -> Result<T, QueueError<&'static str>> {
    Err(QueueError::Rejected(RejectReason::ShuttingDown))
}

fn runtime() -> Runtime {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

#[test]
fn the_room_closes_though_the_first_runtime_is_gone() {
    for is_gone in [true, false] {
        let service = TestService::new();
        service.finish(1);
        let token = CancellationToken::new();
        let layer = layer(QueueConfig::new(1)).shutdown(token.clone());
        let queue = layer.layer(service.clone());
        let first = runtime();
        let served = first.block_on(queue.clone().oneshot(normal("first")));
        assert_eq!(served, Ok("first"));
        let _not_driven = (!is_gone).then_some(first);

        runtime().block_on(async {
            let running = send(&queue, normal("running")).await;
            let waiting = send(&queue, normal("waiting")).await;
            token.cancel();
            assert!(layer.handle().status().closed);
            assert!(is_done(&waiting).await);
            assert_eq!(waiting.await.unwrap(), shutting_down());
            service.finish(1);
            assert_eq!(running.await.unwrap(), Ok("running"));
        });
    }
}

#[test]
fn the_room_closes_without_any_runtime() {
    let service = TestService::new();
    let token = CancellationToken::new();
    let queue = layer(QueueConfig::new(1))
        .shutdown(token.clone())
        .layer(service.clone());
    let mut running = ByHand::new(queue.clone().oneshot(normal("running")));
    assert!(running.poll().is_pending());
    let mut waiting = ByHand::new(queue.clone().oneshot(normal("waiting")));
    assert!(waiting.poll().is_pending());
    token.cancel();
    assert!(waiting.is_woken());
    assert_eq!(waiting.poll(), Poll::Ready(shutting_down()));
    let mut later = ByHand::new(queue.oneshot(normal("later")));
    assert_eq!(later.poll(), Poll::Ready(shutting_down()));
    service.finish(1);
    assert_eq!(running.run(), Poll::Ready(Ok("running")));
}

#[tokio::test(start_paused = true)]
async fn a_token_cancelled_before_rejects_all_requests() {
    let token = CancellationToken::new();
    token.cancel();
    let service = TestService::new();
    service.finish(9);
    let layer = layer(QueueConfig::new(1)).shutdown(token);
    let queue = layer.layer(service.clone());
    assert_eq!(queue.oneshot(normal("first")).await, shutting_down());
    assert!(service.calls().is_empty());
    layer.handle().closed().await;
}

#[tokio::test(start_paused = true)]
async fn another_token_replaces_the_one_before() {
    let (old, new) = (CancellationToken::new(), CancellationToken::new());
    let service = TestService::new();
    service.finish(9);
    let layer = layer(QueueConfig::new(1))
        .shutdown(old.clone())
        .shutdown(new.clone());
    let queue = layer.layer(service);
    old.cancel();
    assert_eq!(queue.clone().oneshot(normal("a")).await, Ok("a"));
    layer.handle().reconfigure(QueueConfig::new(2)).unwrap();
    new.cancel();
    assert_eq!(queue.oneshot(normal("b")).await, shutting_down());
}

#[tokio::test(start_paused = true)]
async fn services_close_without_their_layer_or_a_handle() {
    let token = CancellationToken::new();
    let service = TestService::new();
    service.finish(9);
    let queue = layer(QueueConfig::new(1))
        .shutdown(token.clone())
        .layer(service);
    token.cancel();
    assert_eq!(queue.oneshot(normal("a")).await, shutting_down());
}

#[test]
fn token_and_layer_do_not_keep_each_other() {
    let token = CancellationToken::new();
    let witness = Arc::new(());
    let come_and_go = |times| {
        for _ in 0..times {
            let kept = Arc::clone(&witness);
            let layer = QueueLayer::plain(QueueConfig::new(1))
                .shutdown(token.clone())
                .classify(move |job: &Job, context| {
                    let _ = &kept;
                    triage(job, context.arrival())
                });
            let queue = layer.layer(TestService::new());
            drop(layer);
            let mut sent = ByHand::new(queue.clone().oneshot(normal("n")));
            assert!(sent.poll().is_pending());
        }
    };
    come_and_go(10);
    let kept = allocation_counter::measure(|| come_and_go(100));
    assert_eq!((kept.count_current, kept.bytes_current), (0, 0));
    assert_eq!(Arc::strong_count(&witness), 1);
    token.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_panicking_waker_does_not_stop_the_other_wakers() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker panics");
        }
    }
    let token = CancellationToken::new();
    let queue = layer(QueueConfig::new(1))
        .shutdown(token.clone())
        .layer(TestService::new());
    let _running = send(&queue, normal("running")).await;
    let waker = Waker::from(Arc::new(Panics));
    let mut waiting = Box::pin(queue.clone().oneshot(normal("waiting")));
    let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let notified = tokio::spawn({
        let token = token.clone();
        async move { token.cancelled().await }
    });
    settle().await;
    token.cancel();
    assert!(is_done(&notified).await);
}
