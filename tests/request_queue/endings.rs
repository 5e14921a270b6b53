//! Waits that end in the queue: whoever must go is told why, and nobody else gets what has expired.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{advance, sleep};
use tower_triage::batch::DequeueError;
use tower_triage::{Priority, PriorityLevels, RejectReason, Ticket, WaitingRoomConfig};

use super::support::{Bell, Told, block_on, drained, now, poll, queue, room, telling, ticket};

const SECOND: Duration = Duration::from_secs(1);

fn told<T>(told: &Told<T>) -> Vec<(T, RejectReason<tower_triage::batch::TooLarge>)> {
    std::mem::take(&mut told.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_too_long_is_told_why_by_the_clock_alone() {
    let (queue, rejected) = telling(room(|room| room.max_wait = Some(10 * SECOND)));
    queue
        .enqueue("own deadline", ticket(1).timeout(5 * SECOND))
        .unwrap();
    queue.enqueue("the room's", ticket(1)).unwrap();
    sleep(4 * SECOND).await;
    assert_eq!((told(&rejected), queue.len()), (vec![], 2));
    sleep(SECOND * 3 / 2).await;
    assert_eq!(
        told(&rejected),
        [("own deadline", RejectReason::DeadlinePassed)]
    );
    sleep(5 * SECOND).await;
    assert_eq!(told(&rejected), [("the room's", RejectReason::TimedOut)]);
    assert!(queue.is_empty());
    let counts = queue.stats();
    assert_eq!((counts.deadline_passed, counts.timed_out), (1, 1));
}

#[test]
fn nobody_is_given_what_has_expired_even_without_a_clock_that_ticks() {
    type Fetch = fn(&tower_triage::RequestQueue<&'static str>) -> Option<&'static str>;
    let fetches: [Fetch; 4] = [
        |queue| queue.try_dequeue().ok(),
        |queue| queue.take_batch(1, 9).pop(),
        |queue| block_on(queue.dequeue()),
        |queue| {
            assert!(block_on(queue.wait_nonempty()));
            queue.try_dequeue().ok()
        },
    ];
    for fetch in fetches {
        let (queue, rejected) = telling(room(|_| ()));
        let soon = Duration::from_millis(2);
        let id = queue.enqueue("expired", ticket(0).timeout(soon)).unwrap();
        queue.enqueue("alive", ticket(1)).unwrap();
        std::thread::sleep(2 * soon);
        assert_eq!(fetch(&queue), Some("alive"));
        assert_eq!(told(&rejected), [("expired", RejectReason::DeadlinePassed)]);
        assert!(!queue.contains(id));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_now_is_over_for_whoever_comes_though_the_timer_has_not_run() {
    type Come = fn(&tower_triage::RequestQueue<&'static str>);
    let comes: [Come; 2] = [
        |queue| assert!(queue.enqueue("b", ticket(1)).is_ok()),
        |queue| assert_eq!(queue.try_dequeue(), Err(DequeueError::Empty)),
    ];
    for come in comes {
        let (queue, rejected) = telling(room(|room| room.max_wait = Some(SECOND)));
        queue.enqueue("a", ticket(1)).unwrap();
        assert_eq!(advance(SECOND).now_or_never(), None);
        come(&queue);
        assert_eq!(told(&rejected), [("a", RejectReason::TimedOut)]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_one_frees_its_chair_for_who_comes() {
    let (queue, rejected) = telling(room(|room| {
        (room.max_size, room.max_wait) = (1, Some(SECOND));
    }));
    queue.enqueue("a", ticket(1)).unwrap();
    advance(SECOND).await;
    queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!(told(&rejected), [("a", RejectReason::TimedOut)]);
    assert_eq!(drained(&queue), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_counted_from_the_arrival_on_the_ticket() {
    let (queue, rejected) = telling(room(|room| {
        (room.max_size, room.max_wait) = (1, Some(2 * SECOND));
    }));
    let [first, second] = [ticket(1), ticket(1)];
    advance(SECOND).await;
    queue.enqueue("a", first).unwrap();
    advance(SECOND).await;
    let refused = queue.enqueue("b", second).unwrap_err();
    assert_eq!(refused.why, RejectReason::TimedOut);
    assert_eq!(told(&rejected), [("a", RejectReason::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_waits_past_what_expires() {
    let (queue, rejected) = telling(room(|_| ()));
    let consumer = tokio::spawn({
        let queue = queue.clone();
        async move { queue.dequeue().await }
    });
    tokio::task::yield_now().await;
    queue.enqueue("expired", ticket(1).timeout(SECOND)).unwrap();
    // Before the consumer looks.
    advance(2 * SECOND).await;
    let first = tokio::time::timeout(SECOND, consumer).await;
    match first {
        Ok(taken) => assert_eq!(taken.unwrap(), Some("expired")),
        Err(_) => assert_eq!(told(&rejected), [("expired", RejectReason::DeadlinePassed)]),
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_drained_queue_may_be_an_expiry() {
    let (queue, _) = telling::<&str>(room(|_| ()));
    let (bell, waker) = Bell::new();
    queue.enqueue("a", ticket(1).timeout(SECOND)).unwrap();
    let id = queue.enqueue("b", ticket(1)).unwrap();
    assert_eq!(queue.try_dequeue(), Ok("a"));
    let mut consumer = queue.dequeue();
    queue.remove(id).unwrap();
    assert!(poll(&mut consumer, &waker).is_pending());
    queue.enqueue("c", ticket(1).timeout(SECOND)).unwrap();
    queue.drain();
    sleep(2 * SECOND).await;
    assert!(bell.rung() > 0);
    assert_eq!(poll(&mut consumer, &waker), std::task::Poll::Ready(None));
}

#[test]
fn who_is_more_urgent_takes_the_chair_of_the_latest_of_the_lowest() {
    let (queue, rejected) = telling(room(|room| {
        (room.max_size, room.displace) = (2, true);
        room.levels = PriorityLevels::new(["high", "normal", "low"], "low").unwrap();
    }));
    queue.enqueue("low", ticket(2)).unwrap();
    queue.enqueue("low, later", ticket(2)).unwrap();
    assert_eq!(
        queue.enqueue("low again", ticket(2)).unwrap_err().why,
        RejectReason::Full
    );
    queue.enqueue("normal", ticket(1)).unwrap();
    assert_eq!(told(&rejected), [("low, later", RejectReason::Displaced)]);
    queue.enqueue("high", ticket(0)).unwrap();
    assert_eq!(told(&rejected), [("low", RejectReason::Displaced)]);
    assert_eq!(drained(&queue), ["high", "normal"]);
}

#[test]
fn a_closed_queue_answers_everyone() {
    let (queue, rejected) = telling(room(|_| ()));
    for item in ["a", "b"] {
        queue.enqueue(item, ticket(1)).unwrap();
    }
    queue.close();
    queue.close();
    let mut rejected = told(&rejected);
    rejected.sort_unstable_by_key(|&(item, _)| item);
    let why = RejectReason::ShuttingDown;
    assert_eq!(rejected, [("a", why), ("b", why)]);
    let refused = queue.enqueue("c", ticket(0)).unwrap_err();
    assert_eq!((refused.item, refused.why), ("c", why));
    assert_eq!(refused.to_string(), "the queue is closed");
    assert_eq!(queue.try_dequeue(), Err(DequeueError::Closed));
    assert_eq!(block_on(queue.dequeue()), None);
    assert!(!block_on(queue.wait_nonempty()));
    assert!(queue.is_closed() && queue.is_empty());
    assert_eq!(queue.stats().shutting_down, 3);
}

#[test]
fn a_closing_queue_wakes_every_consumer() {
    for drain in [true, false] {
        let queue = queue::<()>();
        let bells: Vec<_> = (0..3).map(|_| Bell::new()).collect();
        let mut consumers: Vec<_> = (0..3).map(|_| queue.dequeue()).collect();
        for (consumer, (_, waker)) in consumers.iter_mut().zip(&bells) {
            assert!(poll(consumer, waker).is_pending());
        }
        if drain {
            queue.drain()
        } else {
            queue.close()
        }
        for (consumer, (bell, waker)) in consumers.iter_mut().zip(&bells) {
            assert_eq!(bell.rung(), 1);
            assert_eq!(poll(consumer, waker), std::task::Poll::Ready(None));
        }
    }
}

#[test]
fn a_draining_queue_gives_out_what_it_has() {
    let (queue, rejected) = telling(room(|_| ()));
    for item in ["a", "b"] {
        queue.enqueue(item, ticket(1)).unwrap();
    }
    queue.drain();
    assert!(queue.is_closed());
    assert_eq!(
        queue.enqueue("c", ticket(0)).unwrap_err().why,
        RejectReason::ShuttingDown
    );
    assert_eq!(block_on(queue.dequeue()), Some("a"));
    assert_eq!(queue.take_batch(9, 9), ["b"]);
    assert_eq!(block_on(queue.dequeue()), None);
    assert_eq!(queue.try_dequeue(), Err(DequeueError::Closed));
    assert_eq!(told(&rejected), []);
}

#[test]
fn the_last_one_out_of_a_draining_queue_wakes_all_who_wait() {
    type Leave = fn(&tower_triage::RequestQueue<()>, tower_triage::batch::RequestId);
    let leave: [Leave; 5] = [
        |queue, _| queue.try_dequeue().unwrap(),
        |queue, _| drop(queue.take_batch(1, 1)),
        |queue, id| queue.remove(id).unwrap(),
        |queue, _| drop(queue.clear()),
        |queue, _| queue.close(),
    ];
    for leave in leave {
        let queue = queue();
        let ((_, waker), (bell, other)) = (Bell::new(), Bell::new());
        let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
        assert!(poll(&mut one, &waker).is_pending());
        assert!(poll(&mut two, &other).is_pending());
        let id = queue.enqueue((), ticket(1)).unwrap();
        queue.drain();
        assert_eq!(bell.rung(), 0);
        leave(&queue, id);
        assert_eq!(bell.rung(), 1);
        assert_eq!(poll(&mut two, &other), std::task::Poll::Ready(None));
        assert_eq!(poll(&mut one, &waker), std::task::Poll::Ready(None));
    }
}

#[test]
fn fewer_chairs_send_the_latest_of_the_lowest_away() {
    let (queue, rejected) = telling(room(|_| ()));
    for (item, level) in [("a", 1), ("b", 0), ("c", 1), ("d", 0)] {
        queue.enqueue(item, ticket(level)).unwrap();
    }
    queue.reconfigure(room(|room| room.max_size = 3));
    assert_eq!(told(&rejected), [("c", RejectReason::Full)]);
    queue.reconfigure(room(|room| room.max_size = 1));
    assert_eq!(
        told(&rejected),
        [("a", RejectReason::Full), ("d", RejectReason::Full)]
    );
    queue.reconfigure(room(|room| room.max_size = 0));
    assert_eq!(told(&rejected), [("b", RejectReason::Disabled)]);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn less_patience_holds_for_those_who_wait() {
    let (queue, rejected) = telling(room(|_| ()));
    queue.enqueue("a", ticket(1)).unwrap();
    advance(5 * SECOND).await;
    queue.enqueue("b", ticket(1)).unwrap();
    queue.reconfigure(room(|room| room.max_wait = Some(3 * SECOND)));
    assert_eq!(told(&rejected), [("a", RejectReason::TimedOut)]);
    sleep(4 * SECOND).await;
    assert_eq!(told(&rejected), [("b", RejectReason::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn who_has_a_timeout_waits_since_it_was_set_though_its_arrival_matters_only_later() {
    let (queue, rejected) = telling(room(|_| ()));
    let ticket = Ticket::from(Priority(1)).timeout(10 * SECOND);
    queue.enqueue("a", ticket).unwrap();
    sleep(4 * SECOND).await;
    queue.reconfigure(room(|room| room.max_wait = Some(5 * SECOND)));
    sleep(2 * SECOND).await;
    assert_eq!(told(&rejected), [("a", RejectReason::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn more_patience_holds_for_those_who_wait() {
    let (queue, rejected) = telling(room(|room| room.max_wait = Some(SECOND)));
    queue.enqueue("a", ticket(1)).unwrap();
    queue.reconfigure(room(|room| room.max_wait = Some(10 * SECOND)));
    sleep(5 * SECOND).await;
    assert_eq!((told(&rejected), queue.len()), (vec![], 1));
    sleep(6 * SECOND).await;
    assert_eq!(told(&rejected), [("a", RejectReason::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_end_that_comes_later_is_kept() {
    let (queue, rejected) = telling(WaitingRoomConfig::default());
    for (item, seconds) in [("c", 20), ("b", 10), ("a", 5)] {
        let ticket = ticket(1).timeout(seconds * SECOND);
        queue.enqueue(item, ticket).unwrap();
        tokio::task::yield_now().await;
    }
    for item in ["a", "b", "c"] {
        sleep(if item == "c" { 11 * SECOND } else { 6 * SECOND }).await;
        assert_eq!(told(&rejected), [(item, RejectReason::DeadlinePassed)]);
    }
}

#[tokio::test(start_paused = true)]
async fn one_from_the_future_waits_no_longer_than_others() {
    let (queue, rejected) = telling(room(|room| room.max_wait = Some(10 * SECOND)));
    let mut future = ticket(1);
    future.arrival = Some(now() + 60 * SECOND);
    queue.enqueue("future", future).unwrap();
    tokio::task::yield_now().await;
    queue.enqueue("present", ticket(1)).unwrap();
    sleep(11 * SECOND).await;
    let late = |item| (item, RejectReason::TimedOut);
    assert_eq!(told(&rejected), [late("future"), late("present")]);
}

#[test]
fn the_clock_moves_to_another_runtime_when_its_own_is_gone() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let (queue, rejected) = telling(room(|_| ()));
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
    let expired = told(&rejected).into_iter().map(|(item, _)| item);
    assert_eq!(expired.collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn who_asks_for_nothing_special_starts_the_clock_where_none_runs() {
    let (queue, rejected) = telling(room(|room| room.max_wait = Some(60 * SECOND)));
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
    let expired = told(&rejected).into_iter().map(|(item, _)| item);
    assert_eq!(expired.collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn what_waits_in_a_queue_that_is_dropped_is_dropped_and_nothing_is_told() {
    let (queue, rejected) = telling(room(|_| ()));
    let item = std::sync::Arc::new(());
    queue.enqueue(item.clone(), ticket(1)).unwrap();
    drop(queue);
    assert_eq!(std::sync::Arc::strong_count(&item), 1);
    assert!(told(&rejected).is_empty());
}
