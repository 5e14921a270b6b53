//! Consumers wait for what comes, and lose nothing when they go away.

use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::yield_now;
use tokio::time::{advance, timeout};
use tokio_util::sync::CancellationToken;
use tower_triage::batch::{DequeueError, RequestQueue};

use super::support::{Bell, all_come, block_on, poll, queue, room, ticket};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_consumer_that_waits_gets_what_comes() {
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
fn each_request_wakes_one_consumer_in_the_order_in_which_they_came() {
    each_request_wakes_one_consumer(queue());
}

/// Whoever takes what it came for has gone, even if its future is kept.
#[test]
fn it_does_so_where_more_is_asked_of_the_room() {
    each_request_wakes_one_consumer(RequestQueue::new(room(|room| room.displace = true)));
}

fn each_request_wakes_one_consumer(queue: RequestQueue<&'static str>) {
    let bells: Vec<_> = (0..4).map(|_| Bell::new()).collect();
    let mut consumers: Vec<_> = (0..4).map(|_| queue.dequeue()).collect();
    for (consumer, (_, waker)) in consumers.iter_mut().zip(&bells) {
        assert!(poll(consumer, waker).is_pending());
    }
    let rung = || {
        bells
            .iter()
            .map(|(bell, _)| bell.rung())
            .collect::<Vec<_>>()
    };
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(rung(), [1, 0, 0, 0]);
    queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!(rung(), [1, 1, 0, 0]);
    assert_eq!(poll(&mut consumers[1], &bells[1].1), Poll::Ready(Some("a")));
    assert_eq!(poll(&mut consumers[0], &bells[0].1), Poll::Ready(Some("b")));
    queue.enqueue("c", ticket(1)).unwrap();
    assert_eq!(rung(), [1, 1, 1, 0]);
}

#[test]
fn a_consumer_that_is_polled_for_no_reason_keeps_its_place() {
    let queue = queue();
    let (first, second) = (Bell::new(), Bell::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &first.1).is_pending());
    assert!(poll(&mut two, &second.1).is_pending());
    let (moved, waker) = Bell::new();
    assert!(poll(&mut one, &first.1).is_pending());
    assert!(poll(&mut one, &waker).is_pending());
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!((first.0.rung(), moved.rung(), second.0.rung()), (0, 1, 0));
}

#[test]
fn a_consumer_that_was_woken_and_goes_wakes_the_next() {
    let queue = queue();
    let ((_, first), (bell, second)) = (Bell::new(), Bell::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &first).is_pending());
    assert!(poll(&mut two, &second).is_pending());
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(bell.rung(), 0);
    drop(one);
    assert_eq!(bell.rung(), 1);
    assert_eq!(poll(&mut two, &second), Poll::Ready(Some("a")));
}

#[test]
fn a_consumer_that_goes_before_it_is_woken_is_not_woken_for() {
    let queue = queue();
    let ((gone, first), (bell, second)) = (Bell::new(), Bell::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &first).is_pending());
    assert!(poll(&mut two, &second).is_pending());
    drop(one);
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!((gone.rung(), bell.rung()), (0, 1));
}

#[test]
fn a_consumer_that_looked_too_late_waits_in_its_old_place() {
    let queue = queue();
    let ((first, waker), (second, other)) = (Bell::new(), Bell::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &waker).is_pending());
    assert!(poll(&mut two, &other).is_pending());
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(queue.try_dequeue(), Ok("a"));
    assert!(poll(&mut one, &waker).is_pending());
    queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!((first.rung(), second.rung()), (2, 0));
    assert_eq!(poll(&mut one, &waker), Poll::Ready(Some("b")));
}

#[test]
fn who_was_woken_for_what_is_gone_and_leaves_owes_nobody_anything() {
    let queue = queue();
    let ((_, waker), (second, other)) = (Bell::new(), Bell::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &waker).is_pending());
    assert!(poll(&mut two, &other).is_pending());
    let id = queue.enqueue("a", ticket(1)).unwrap();
    queue.remove(id).unwrap();
    drop(one);
    assert_eq!(second.rung(), 0);
    queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!(second.rung(), 1);
    assert_eq!(poll(&mut two, &other), Poll::Ready(Some("b")));
}

#[test]
fn a_consumer_takes_what_is_best_when_it_looks() {
    let queue = queue();
    let (_, waker) = Bell::new();
    let mut consumer = queue.dequeue();
    assert!(poll(&mut consumer, &waker).is_pending());
    queue.enqueue("normal", ticket(1)).unwrap();
    queue.enqueue("high", ticket(0)).unwrap();
    assert_eq!(poll(&mut consumer, &waker), Poll::Ready(Some("high")));
}

#[test]
fn who_only_looks_takes_nothing_and_wakes_the_next() {
    let queue = queue();
    let ((_, looker), (bell, waker)) = (Bell::new(), Bell::new());
    let (mut occupied, mut consumer) = (queue.wait_nonempty(), queue.dequeue());
    assert!(poll(&mut occupied, &looker).is_pending());
    assert!(poll(&mut consumer, &waker).is_pending());
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(bell.rung(), 0);
    assert_eq!(poll(&mut occupied, &looker), Poll::Ready(true));
    assert_eq!(bell.rung(), 1);
    assert_eq!(poll(&mut consumer, &waker), Poll::Ready(Some("a")));
    assert_eq!(queue.wait_nonempty().now_or_never(), None);
    queue.drain();
    assert_eq!(queue.wait_nonempty().now_or_never(), Some(false));
}

#[test]
fn a_batch_taken_from_under_a_woken_consumer_leaves_it_waiting() {
    let queue = queue();
    let (bell, waker) = Bell::new();
    let mut consumer = queue.dequeue();
    assert!(poll(&mut consumer, &waker).is_pending());
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(queue.take_batch(1, 1), ["a"]);
    assert!(poll(&mut consumer, &waker).is_pending());
    queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!(bell.rung(), 2);
    assert_eq!(poll(&mut consumer, &waker), Poll::Ready(Some("b")));
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_in_time() {
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
async fn what_is_there_is_had_in_no_time() {
    let queue = queue();
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(queue.dequeue_timeout(Duration::ZERO).await, Ok("a"));
}

#[tokio::test(start_paused = true)]
async fn what_comes_in_time_is_had_and_what_comes_too_late_is_kept() {
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
async fn who_times_out_just_as_something_comes_gets_it_or_leaves_it() {
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
async fn who_is_told_to_stop_takes_nothing_along() {
    let queue = queue();
    let told = CancellationToken::new();
    told.cancel();
    let found = tokio::select! {
        biased;
        () = told.cancelled() => None,
        found = queue.dequeue() => found,
    };
    assert_eq!(found, None);
    assert_eq!(told.run_until_cancelled(queue.dequeue()).await, None);
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(queue.dequeue().await, Some("a"));
}

#[tokio::test(start_paused = true)]
async fn consumers_that_come_and_go_at_any_moment_lose_nothing() {
    let queue = queue();
    let consume = |seed: u64| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut got = Vec::new();
            loop {
                let patience = Duration::from_millis(rng.u64(0..4));
                let found = match rng.u8(0..3) {
                    0 => queue.dequeue_timeout(patience).await,
                    1 => match timeout(patience, queue.wait_nonempty()).await {
                        Ok(true) => queue.try_dequeue(),
                        Ok(false) => Err(DequeueError::Closed),
                        Err(_) => Err(DequeueError::Empty),
                    },
                    _ => timeout(patience, queue.dequeue())
                        .await
                        .map_or(Err(DequeueError::Empty), |found| {
                            found.ok_or(DequeueError::Closed)
                        }),
                };
                match found {
                    Ok(item) => got.push(item),
                    Err(DequeueError::Empty) => yield_now().await,
                    Err(DequeueError::Closed) => return got,
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
async fn a_consumer_that_always_finds_something_lets_others_run() {
    let queue = queue();
    all_come(&queue, 0..10_000);
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
fn no_runtime_is_needed() {
    let queue = queue();
    let consumer = std::thread::spawn({
        let queue = queue.clone();
        move || {
            let all = std::iter::from_fn(|| block_on(queue.dequeue()));
            all.collect::<Vec<_>>()
        }
    });
    all_come(&queue, 0..100);
    queue.drain();
    assert_eq!(consumer.join().unwrap(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_consumer_that_has_been_served_can_ask_again() {
    let queue = queue();
    let (_, waker) = Bell::new();
    let mut consumer = queue.dequeue();
    for item in 0..3 {
        assert!(poll(&mut consumer, &waker).is_pending());
        queue.enqueue(item, ticket(1)).unwrap();
        assert_eq!(poll(&mut consumer, &waker), Poll::Ready(Some(item)));
    }
}
