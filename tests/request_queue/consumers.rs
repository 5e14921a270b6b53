//! Tests of consumers that wait: wake-ups, timeouts, cancellation.

use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::yield_now;
use tokio::time::{advance, timeout};
use tokio_util::sync::CancellationToken;
use tower_triage::batch::{DequeueError, RequestQueue};

use super::support::{WakeCounter, block_on, config, enqueue_all, poll, queue, ticket};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_waiting_consumer_gets_a_new_item() {
    let queue = queue();
    let consumer = tokio::spawn({
        let queue = queue.clone();
        async move { queue.dequeue().await }
    });
    yield_now().await;
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(consumer.await.unwrap(), Some("a"));
}

#[test]
fn each_item_wakes_one_consumer_in_order() {
    check_one_wake_up_per_item(queue());
}

#[test]
fn each_item_wakes_one_consumer_with_displacement() {
    check_one_wake_up_per_item(RequestQueue::new(config(|config| config.displace = true)));
}

fn check_one_wake_up_per_item(queue: RequestQueue<&'static str>) {
    let counters: Vec<_> = (0..4).map(|_| WakeCounter::new()).collect();
    let mut consumers: Vec<_> = (0..4).map(|_| queue.dequeue()).collect();
    for (consumer, (_, waker)) in consumers.iter_mut().zip(&counters) {
        assert!(poll(consumer, waker).is_pending());
    }
    let wakes = || {
        counters
            .iter()
            .map(|(counter, _)| counter.wakes())
            .collect::<Vec<_>>()
    };
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(wakes(), [1, 0, 0, 0]);
    queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!(wakes(), [1, 1, 0, 0]);
    assert_eq!(
        poll(&mut consumers[1], &counters[1].1),
        Poll::Ready(Some("a"))
    );
    assert_eq!(
        poll(&mut consumers[0], &counters[0].1),
        Poll::Ready(Some("b"))
    );
    queue.enqueue("c", ticket(1)).unwrap();
    assert_eq!(wakes(), [1, 1, 1, 0]);
}

#[test]
fn a_spurious_poll_keeps_the_consumers_place() {
    let queue = queue();
    let (first, second) = (WakeCounter::new(), WakeCounter::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &first.1).is_pending());
    assert!(poll(&mut two, &second.1).is_pending());
    let (replaced, waker) = WakeCounter::new();
    assert!(poll(&mut one, &first.1).is_pending());
    assert!(poll(&mut one, &waker).is_pending());
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(
        (first.0.wakes(), replaced.wakes(), second.0.wakes()),
        (0, 1, 0)
    );
}

#[test]
fn a_dropped_woken_consumer_wakes_the_next() {
    let queue = queue();
    let ((_, first), (counter, second)) = (WakeCounter::new(), WakeCounter::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &first).is_pending());
    assert!(poll(&mut two, &second).is_pending());
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(counter.wakes(), 0);
    drop(one);
    assert_eq!(counter.wakes(), 1);
    assert_eq!(poll(&mut two, &second), Poll::Ready(Some("a")));
}

#[test]
fn a_dropped_consumer_is_not_woken() {
    let queue = queue();
    let ((dropped, first), (counter, second)) = (WakeCounter::new(), WakeCounter::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &first).is_pending());
    assert!(poll(&mut two, &second).is_pending());
    drop(one);
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!((dropped.wakes(), counter.wakes()), (0, 1));
}

#[test]
fn a_consumer_polled_too_late_keeps_its_place() {
    let queue = queue();
    let ((first, waker), (second, other)) = (WakeCounter::new(), WakeCounter::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &waker).is_pending());
    assert!(poll(&mut two, &other).is_pending());
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(queue.try_dequeue(), Ok("a"));
    assert!(poll(&mut one, &waker).is_pending());
    queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!((first.wakes(), second.wakes()), (2, 0));
    assert_eq!(poll(&mut one, &waker), Poll::Ready(Some("b")));
}

#[test]
fn a_consumer_woken_for_a_removed_item_wakes_none() {
    let queue = queue();
    let ((_, waker), (second, other)) = (WakeCounter::new(), WakeCounter::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &waker).is_pending());
    assert!(poll(&mut two, &other).is_pending());
    let id = queue.enqueue("a", ticket(1)).unwrap();
    queue.remove(id).unwrap();
    drop(one);
    assert_eq!(second.wakes(), 0);
    queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!(second.wakes(), 1);
    assert_eq!(poll(&mut two, &other), Poll::Ready(Some("b")));
}

#[test]
fn a_woken_consumer_takes_the_most_urgent_item() {
    let queue = queue();
    let (_, waker) = WakeCounter::new();
    let mut consumer = queue.dequeue();
    assert!(poll(&mut consumer, &waker).is_pending());
    queue.enqueue("normal", ticket(1)).unwrap();
    queue.enqueue("high", ticket(0)).unwrap();
    assert_eq!(poll(&mut consumer, &waker), Poll::Ready(Some("high")));
}

#[test]
fn wait_nonempty_takes_nothing_and_wakes_the_next() {
    let queue = queue();
    let ((_, first), (counter, waker)) = (WakeCounter::new(), WakeCounter::new());
    let (mut nonempty, mut consumer) = (queue.wait_nonempty(), queue.dequeue());
    assert!(poll(&mut nonempty, &first).is_pending());
    assert!(poll(&mut consumer, &waker).is_pending());
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(counter.wakes(), 0);
    assert_eq!(poll(&mut nonempty, &first), Poll::Ready(true));
    assert_eq!(counter.wakes(), 1);
    assert_eq!(poll(&mut consumer, &waker), Poll::Ready(Some("a")));
    assert_eq!(queue.wait_nonempty().now_or_never(), None);
    queue.drain();
    assert_eq!(queue.wait_nonempty().now_or_never(), Some(false));
}

#[test]
fn a_consumer_whose_item_joined_a_batch_waits_on() {
    let queue = queue();
    let (counter, waker) = WakeCounter::new();
    let mut consumer = queue.dequeue();
    assert!(poll(&mut consumer, &waker).is_pending());
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(queue.take_batch(1, 1), ["a"]);
    assert!(poll(&mut consumer, &waker).is_pending());
    queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!(counter.wakes(), 2);
    assert_eq!(poll(&mut consumer, &waker), Poll::Ready(Some("b")));
}

#[tokio::test(start_paused = true)]
async fn dequeue_timeout_ends_without_an_item() {
    let queue = queue::<&str>();
    let begin = tokio::time::Instant::now();
    assert_eq!(
        queue.dequeue_timeout(SECOND).await,
        Err(DequeueError::Empty)
    );
    assert_eq!(begin.elapsed(), SECOND);
    assert_eq!(
        queue.dequeue_timeout(Duration::ZERO).await,
        Err(DequeueError::Empty)
    );
    queue.close();
    assert_eq!(
        queue.dequeue_timeout(SECOND).await,
        Err(DequeueError::Closed)
    );
    assert_eq!(begin.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_zero_timeout_takes_a_waiting_item() {
    let queue = queue();
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(queue.dequeue_timeout(Duration::ZERO).await, Ok("a"));
}

#[tokio::test(start_paused = true)]
async fn dequeue_timeout_keeps_items_that_arrive_later() {
    let queue = queue();
    let produce = async {
        advance(SECOND / 2).await;
        queue.enqueue("in time", ticket(1)).unwrap();
    };
    let (found, ()) = tokio::join!(queue.dequeue_timeout(SECOND), produce);
    assert_eq!(found, Ok("in time"));
    assert_eq!(
        queue.dequeue_timeout(SECOND).await,
        Err(DequeueError::Empty)
    );
    queue.enqueue("too late", ticket(1)).unwrap();
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.try_dequeue(), Ok("too late"));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_beside_an_arrival_loses_no_item() {
    let queue = queue();
    let consumer = tokio::spawn({
        let queue = queue.clone();
        async move { queue.dequeue_timeout(SECOND).await }
    });
    yield_now().await;
    tokio::time::sleep(SECOND).await;
    queue.enqueue("a", ticket(1)).unwrap();
    match consumer.await.unwrap() {
        Ok(item) => assert_eq!((item, queue.len()), ("a", 0)),
        Err(_) => assert_eq!(queue.try_dequeue(), Ok("a")),
    }
}

#[tokio::test]
async fn a_cancelled_dequeue_takes_no_item() {
    let queue = queue();
    let token = CancellationToken::new();
    token.cancel();
    let found = tokio::select! {
        biased;
        () = token.cancelled() => None,
        found = queue.dequeue() => found,
    };
    assert_eq!(found, None);
    assert_eq!(token.run_until_cancelled(queue.dequeue()).await, None);
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(queue.dequeue().await, Some("a"));
}

#[tokio::test(start_paused = true)]
async fn dropped_and_timed_out_consumers_lose_no_item() {
    let queue = queue();
    let consume = |seed: u64| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut got = Vec::new();
            loop {
                let limit = Duration::from_millis(rng.u64(0..4));
                let found = match rng.u8(0..3) {
                    0 => queue.dequeue_timeout(limit).await,
                    1 => match timeout(limit, queue.wait_nonempty()).await {
                        Ok(true) => queue.try_dequeue(),
                        Ok(false) => Err(DequeueError::Closed),
                        Err(_) => Err(DequeueError::Empty),
                    },
                    _ => timeout(limit, queue.dequeue())
                        .await
                        .map_or(Err(DequeueError::Empty), |found| {
                            found.ok_or(DequeueError::Closed)
                        }),
                };
                match found {
                    Ok(item) => got.push(item),
                    Err(DequeueError::Empty) => yield_now().await,
                    Err(DequeueError::Closed) => return got,
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    let consumers: Vec<_> = (0..5).map(consume).collect();
    let mut rng = fastrand::Rng::with_seed(7);
    for item in 0..2_000 {
        queue.enqueue(item, ticket(rng.u8(0..2))).unwrap();
        if rng.bool() {
            tokio::time::sleep(Duration::from_millis(rng.u64(0..4))).await;
        }
    }
    queue.drain();
    let mut all = Vec::new();
    for consumer in consumers {
        all.extend(consumer.await.unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (0..2_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_busy_consumer_yields_to_other_tasks() {
    let queue = queue();
    enqueue_all(&queue, 0..10_000);
    let consumer = tokio::spawn({
        let queue = queue.clone();
        async move { while queue.dequeue().await.is_some() {} }
    });
    yield_now().await;
    assert!(!queue.is_empty());
    queue.drain();
    consumer.await.unwrap();
}

#[test]
fn a_queue_works_without_a_runtime() {
    let queue = queue();
    let consumer = std::thread::spawn({
        let queue = queue.clone();
        move || {
            let all = std::iter::from_fn(|| block_on(queue.dequeue()));
            all.collect::<Vec<_>>()
        }
    });
    enqueue_all(&queue, 0..100);
    queue.drain();
    assert_eq!(consumer.join().unwrap(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_dequeue_future_can_be_polled_again() {
    let queue = queue();
    let (_, waker) = WakeCounter::new();
    let mut consumer = queue.dequeue();
    for item in 0..3 {
        assert!(poll(&mut consumer, &waker).is_pending());
        queue.enqueue(item, ticket(1)).unwrap();
        assert_eq!(poll(&mut consumer, &waker), Poll::Ready(Some(item)));
    }
}
