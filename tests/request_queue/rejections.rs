//! Tests of items that are rejected while they wait: expired, displaced, closed or reconfigured.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{advance, sleep};
use tower_triage::batch::DequeueError;
use tower_triage::{Priority, PriorityLevels, RejectReason, Ticket, WaitingRoomConfig};

use super::support::{
    Rejections, WakeCounter, block_on, config, dequeue_all, now, poll, queue, ticket,
    with_rejections,
};

const SECOND: Duration = Duration::from_secs(1);

fn take<T>(rejections: &Rejections<T>) -> Vec<(T, RejectReason<tower_triage::batch::TooLarge>)> {
    std::mem::take(&mut rejections.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_timer_rejects_expired_items_with_their_reason() {
    let (queue, rejections) = with_rejections(config(|config| config.max_wait = Some(10 * SECOND)));
    queue
        .enqueue("own deadline", ticket(1).timeout(5 * SECOND))
        .unwrap();
    queue.enqueue("max_wait", ticket(1)).unwrap();
    sleep(4 * SECOND).await;
    assert_eq!((take(&rejections), queue.len()), (vec![], 2));
    sleep(SECOND * 3 / 2).await;
    assert_eq!(
        take(&rejections),
        [("own deadline", RejectReason::DeadlinePassed)]
    );
    sleep(5 * SECOND).await;
    assert_eq!(take(&rejections), [("max_wait", RejectReason::TimedOut)]);
    assert!(queue.is_empty());
    let counts = queue.stats();
    assert_eq!((counts.deadline_passed, counts.timed_out), (1, 1));
}

#[test]
fn expired_items_are_never_handed_out_without_a_timer() {
    type Dequeue = fn(&tower_triage::RequestQueue<&'static str>) -> Option<&'static str>;
    let cases: [Dequeue; 5] = [
        |queue| queue.try_dequeue().ok(),
        |queue| queue.clear().into_iter().next(),
        |queue| queue.take_batch(1, 9).pop(),
        |queue| block_on(queue.dequeue()),
        |queue| {
            assert!(block_on(queue.wait_nonempty()));
            queue.try_dequeue().ok()
        },
    ];
    for dequeue in cases {
        let (queue, rejections) = with_rejections(config(|_| ()));
        let soon = Duration::from_millis(2);
        let id = queue.enqueue("expired", ticket(0).timeout(soon)).unwrap();
        queue.enqueue("alive", ticket(1)).unwrap();
        std::thread::sleep(2 * soon);
        assert_eq!(dequeue(&queue), Some("alive"));
        assert_eq!(
            take(&rejections),
            [("expired", RejectReason::DeadlinePassed)]
        );
        assert!(!queue.contains(id));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_on_time_before_its_timer_runs() {
    type Call = fn(&tower_triage::RequestQueue<&'static str>);
    let cases: [Call; 2] = [
        |queue| assert!(queue.enqueue("b", ticket(1)).is_ok()),
        |queue| assert_eq!(queue.try_dequeue(), Err(DequeueError::Empty)),
    ];
    for call in cases {
        let (queue, rejections) = with_rejections(config(|config| config.max_wait = Some(SECOND)));
        queue.enqueue("a", ticket(1)).unwrap();
        assert_eq!(advance(SECOND).now_or_never(), None);
        call(&queue);
        assert_eq!(take(&rejections), [("a", RejectReason::TimedOut)]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_item_frees_its_place() {
    let (queue, rejections) = with_rejections(config(|config| {
        (config.max_size, config.max_wait) = (1, Some(SECOND));
    }));
    queue.enqueue("a", ticket(1)).unwrap();
    advance(SECOND).await;
    queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!(take(&rejections), [("a", RejectReason::TimedOut)]);
    assert_eq!(dequeue_all(&queue), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn max_wait_counts_from_the_tickets_arrival() {
    let (queue, rejections) = with_rejections(config(|config| {
        (config.max_size, config.max_wait) = (1, Some(2 * SECOND));
    }));
    let [first, second] = [ticket(1), ticket(1)];
    advance(SECOND).await;
    queue.enqueue("a", first).unwrap();
    advance(SECOND).await;
    let rejected = queue.enqueue("b", second).unwrap_err();
    assert_eq!(rejected.reason, RejectReason::TimedOut);
    assert_eq!(take(&rejections), [("a", RejectReason::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_is_not_given_an_expired_item() {
    let (queue, rejections) = with_rejections(config(|_| ()));
    let consumer = tokio::spawn({
        let queue = queue.clone();
        async move { queue.dequeue().await }
    });
    tokio::task::yield_now().await;
    queue.enqueue("expired", ticket(1).timeout(SECOND)).unwrap();
    // Before the consumer is polled.
    advance(2 * SECOND).await;
    let first = tokio::time::timeout(SECOND, consumer).await;
    match first {
        Ok(taken) => assert_eq!(taken.unwrap(), Some("expired")),
        Err(_) => assert_eq!(
            take(&rejections),
            [("expired", RejectReason::DeadlinePassed)]
        ),
    }
}

#[tokio::test(start_paused = true)]
async fn expiry_of_the_last_item_ends_a_drained_queue() {
    let (queue, _) = with_rejections::<&str>(config(|_| ()));
    let (counter, waker) = WakeCounter::new();
    queue.enqueue("a", ticket(1).timeout(SECOND)).unwrap();
    let id = queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!(queue.try_dequeue(), Ok("a"));
    let mut consumer = queue.dequeue();
    queue.remove(id).unwrap();
    assert!(poll(&mut consumer, &waker).is_pending());
    queue.enqueue("c", ticket(1).timeout(SECOND)).unwrap();
    queue.drain();
    sleep(2 * SECOND).await;
    assert!(counter.wakes() > 0);
    assert_eq!(poll(&mut consumer, &waker), std::task::Poll::Ready(None));
}

#[test]
fn a_displaced_item_is_passed_to_on_rejected() {
    let (queue, rejections) = with_rejections(config(|config| {
        (config.max_size, config.displace) = (2, true);
        config.levels = PriorityLevels::new(["high", "normal", "low"], "low").unwrap();
    }));
    queue.enqueue("low", ticket(2)).unwrap();
    queue.enqueue("low, later", ticket(2)).unwrap();
    assert_eq!(
        queue.enqueue("low again", ticket(2)).unwrap_err().reason,
        RejectReason::Full
    );
    queue.enqueue("normal", ticket(1)).unwrap();
    assert_eq!(take(&rejections), [("low, later", RejectReason::Displaced)]);
    queue.enqueue("high", ticket(0)).unwrap();
    assert_eq!(take(&rejections), [("low", RejectReason::Displaced)]);
    assert_eq!(dequeue_all(&queue), ["high", "normal"]);
}

#[test]
fn close_rejects_all_waiting_and_later_items() {
    let (queue, rejections) = with_rejections(config(|_| ()));
    for item in ["a", "b"] {
        queue.enqueue(item, ticket(1)).unwrap();
    }
    queue.close();
    queue.close();
    let mut items = take(&rejections);
    items.sort_unstable_by_key(|&(item, _)| item);
    let why = RejectReason::ShuttingDown;
    assert_eq!(items, [("a", why), ("b", why)]);
    let rejected = queue.enqueue("c", ticket(0)).unwrap_err();
    assert_eq!((rejected.item, rejected.reason), ("c", why));
    assert_eq!(rejected.to_string(), "the queue is closed");
    assert_eq!(queue.try_dequeue(), Err(DequeueError::Closed));
    assert_eq!(block_on(queue.dequeue()), None);
    assert!(!block_on(queue.wait_nonempty()));
    assert!(queue.is_closed() && queue.is_empty());
    assert_eq!(queue.stats().shutting_down, 3);
}

#[test]
fn close_and_drain_wake_every_consumer() {
    for drain in [true, false] {
        let queue = queue::<()>();
        let counters: Vec<_> = (0..3).map(|_| WakeCounter::new()).collect();
        let mut consumers: Vec<_> = (0..3).map(|_| queue.dequeue()).collect();
        for (consumer, (_, waker)) in consumers.iter_mut().zip(&counters) {
            assert!(poll(consumer, waker).is_pending());
        }
        if drain {
            queue.drain()
        } else {
            queue.close()
        }
        for (consumer, (counter, waker)) in consumers.iter_mut().zip(&counters) {
            assert_eq!(counter.wakes(), 1);
            assert_eq!(poll(consumer, waker), std::task::Poll::Ready(None));
        }
    }
}

#[test]
fn a_drained_queue_hands_out_its_items() {
    let (queue, rejections) = with_rejections(config(|_| ()));
    for item in ["a", "b"] {
        queue.enqueue(item, ticket(1)).unwrap();
    }
    queue.drain();
    assert!(queue.is_closed());
    assert_eq!(
        queue.enqueue("c", ticket(0)).unwrap_err().reason,
        RejectReason::ShuttingDown
    );
    assert_eq!(block_on(queue.dequeue()), Some("a"));
    assert_eq!(queue.take_batch(9, 9), ["b"]);
    assert_eq!(block_on(queue.dequeue()), None);
    assert_eq!(queue.try_dequeue(), Err(DequeueError::Closed));
    assert_eq!(take(&rejections), []);
}

#[test]
fn the_last_item_of_a_drained_queue_wakes_all_consumers() {
    type Leave = fn(&tower_triage::RequestQueue<()>, tower_triage::batch::RequestId);
    let cases: [Leave; 5] = [
        |queue, _| queue.try_dequeue().unwrap(),
        |queue, _| drop(queue.take_batch(1, 1)),
        |queue, id| queue.remove(id).unwrap(),
        |queue, _| drop(queue.clear()),
        |queue, _| queue.close(),
    ];
    for leave in cases {
        let queue = queue();
        let ((_, waker), (counter, other)) = (WakeCounter::new(), WakeCounter::new());
        let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
        assert!(poll(&mut one, &waker).is_pending());
        assert!(poll(&mut two, &other).is_pending());
        let id = queue.enqueue((), ticket(1)).unwrap();
        queue.drain();
        assert_eq!(counter.wakes(), 0);
        leave(&queue, id);
        assert_eq!(counter.wakes(), 1);
        assert_eq!(poll(&mut two, &other), std::task::Poll::Ready(None));
        assert_eq!(poll(&mut one, &waker), std::task::Poll::Ready(None));
    }
}

#[test]
fn a_smaller_max_size_rejects_the_latest_of_the_lowest() {
    let (queue, rejections) = with_rejections(config(|_| ()));
    for (item, level) in [("a", 1), ("b", 0), ("c", 1), ("d", 0)] {
        queue.enqueue(item, ticket(level)).unwrap();
    }
    queue.reconfigure(config(|config| config.max_size = 3));
    assert_eq!(take(&rejections), [("c", RejectReason::Full)]);
    queue.reconfigure(config(|config| config.max_size = 1));
    assert_eq!(
        take(&rejections),
        [("a", RejectReason::Full), ("d", RejectReason::Full)]
    );
    queue.reconfigure(config(|config| config.max_size = 0));
    assert_eq!(take(&rejections), [("b", RejectReason::Disabled)]);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shorter_max_wait_applies_to_waiting_items() {
    let (queue, rejections) = with_rejections(config(|_| ()));
    queue.enqueue("a", ticket(1)).unwrap();
    advance(5 * SECOND).await;
    queue.enqueue("b", ticket(1)).unwrap();
    queue.reconfigure(config(|config| config.max_wait = Some(3 * SECOND)));
    assert_eq!(take(&rejections), [("a", RejectReason::TimedOut)]);
    sleep(4 * SECOND).await;
    assert_eq!(take(&rejections), [("b", RejectReason::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn a_new_max_wait_applies_beside_an_own_timeout() {
    let (queue, rejections) = with_rejections(config(|_| ()));
    let ticket = Ticket::from(Priority(1)).timeout(10 * SECOND);
    queue.enqueue("a", ticket).unwrap();
    sleep(4 * SECOND).await;
    queue.reconfigure(config(|config| config.max_wait = Some(5 * SECOND)));
    sleep(2 * SECOND).await;
    assert_eq!(take(&rejections), [("a", RejectReason::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn a_longer_max_wait_applies_to_waiting_items() {
    let (queue, rejections) = with_rejections(config(|config| config.max_wait = Some(SECOND)));
    queue.enqueue("a", ticket(1)).unwrap();
    queue.reconfigure(config(|config| config.max_wait = Some(10 * SECOND)));
    sleep(5 * SECOND).await;
    assert_eq!((take(&rejections), queue.len()), (vec![], 1));
    sleep(6 * SECOND).await;
    assert_eq!(take(&rejections), [("a", RejectReason::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn a_later_item_with_an_earlier_deadline_ends_on_time() {
    let (queue, rejections) = with_rejections(WaitingRoomConfig::default());
    for (item, seconds) in [("c", 20), ("b", 10), ("a", 5)] {
        let ticket = ticket(1).timeout(seconds * SECOND);
        queue.enqueue(item, ticket).unwrap();
        tokio::task::yield_now().await;
    }
    for item in ["a", "b", "c"] {
        sleep(if item == "c" { 11 * SECOND } else { 6 * SECOND }).await;
        assert_eq!(take(&rejections), [(item, RejectReason::DeadlinePassed)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_arrival_waits_no_longer_than_others() {
    let (queue, rejections) = with_rejections(config(|config| config.max_wait = Some(10 * SECOND)));
    let mut future = ticket(1);
    future.arrival = Some(now() + 60 * SECOND);
    queue.enqueue("future", future).unwrap();
    tokio::task::yield_now().await;
    queue.enqueue("present", ticket(1)).unwrap();
    sleep(11 * SECOND).await;
    let late = |item| (item, RejectReason::TimedOut);
    assert_eq!(take(&rejections), [late("future"), late("present")]);
}

#[test]
fn the_timer_moves_when_its_runtime_is_dropped() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let (queue, rejections) = with_rejections(config(|_| ()));
    let first = runtime();
    first.block_on(async {
        queue.enqueue("a", ticket(1).timeout(50 * SECOND)).unwrap();
        sleep(SECOND).await;
    });
    drop(first);
    runtime().block_on(async {
        queue.enqueue("b", ticket(1).timeout(60 * SECOND)).unwrap();
        sleep(200 * SECOND).await;
    });
    let expired = take(&rejections).into_iter().map(|(item, _)| item);
    assert_eq!(expired.collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn enqueue_in_a_runtime_starts_a_timer_there() {
    let (queue, rejections) = with_rejections(config(|config| config.max_wait = Some(60 * SECOND)));
    queue.enqueue("a", ticket(1)).unwrap();
    for item in ["b", "c"] {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            queue.enqueue(item, ticket(1)).unwrap();
            let long_enough = if item == "b" { 1 } else { 100 };
            sleep(long_enough * SECOND).await;
        });
    }
    let expired = take(&rejections).into_iter().map(|(item, _)| item);
    assert_eq!(expired.collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn a_dropped_queue_drops_its_items_without_rejections() {
    let (queue, rejections) = with_rejections(config(|_| ()));
    let item = std::sync::Arc::new(());
    queue.enqueue(item.clone(), ticket(1)).unwrap();
    drop(queue);
    assert_eq!(std::sync::Arc::strong_count(&item), 1);
    assert!(take(&rejections).is_empty());
}
