use std::time::Instant;

use tower_triage::batch::{DequeueError, Misfit, RequestQueue};
use tower_triage::{Priority, Rejected, RoomConfig, Ticket};

fn ticket(level: u8) -> Ticket {
    Ticket::new(Priority(level), Instant::now())
}

#[test]
fn the_most_urgent_are_taken_first_and_equals_in_the_order_in_which_they_came() {
    let queue = RequestQueue::new(RoomConfig::default());
    for (item, level) in [("a", 1), ("b", 0), ("c", 1), ("d", 0)] {
        queue.enqueue(item, ticket(level)).unwrap();
    }
    let taken: Vec<_> = std::iter::from_fn(|| queue.try_dequeue().ok()).collect();
    assert_eq!(taken, ["b", "d", "a", "c"]);
    assert_eq!(queue.try_dequeue(), Err(DequeueError::Empty));
}

#[test]
fn a_full_queue_gives_the_item_back() {
    let mut room = RoomConfig::default();
    room.chairs = 1;
    let queue = RequestQueue::new(room);
    queue.enqueue(1, ticket(1)).unwrap();
    let refused = queue.enqueue(2, ticket(0)).unwrap_err();
    assert_eq!((refused.item, refused.why), (2, Rejected::Full));
}

#[test]
fn small_ones_pass_a_large_one_only_so_often() {
    let queue = RequestQueue::builder(RoomConfig::default())
        .cost(10, |cost: &u64| *cost)
        .misfit(Misfit::Skip { times: 2 })
        .build();
    for cost in [8, 1, 1, 1] {
        queue.enqueue(cost, ticket(1)).unwrap();
    }
    assert_eq!(queue.take_batch(8, 4), [1u64, 1]);
    assert!(queue.take_batch(8, 4).is_empty());
    assert_eq!(queue.take_batch(8, 10), [8u64, 1]);
}

#[tokio::test]
async fn a_token_takes_its_request_out_when_it_is_cancelled() {
    let queue = RequestQueue::new(RoomConfig::default());
    let token = tokio_util::sync::CancellationToken::new();
    let id = queue
        .enqueue_with_token("a", ticket(1), token.clone())
        .unwrap();
    assert!(queue.contains(id));
    token.cancel();
    assert!(queue.is_empty());
    assert_eq!(queue.counts().cancelled, 1);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_waits_gets_what_comes() {
    let queue = RequestQueue::new(RoomConfig::default());
    let consumer = tokio::spawn({
        let queue = queue.clone();
        async move { queue.dequeue().await }
    });
    tokio::task::yield_now().await;
    queue.enqueue("a", ticket(1)).unwrap();
    assert_eq!(consumer.await.unwrap(), Some("a"));
    let none = queue
        .dequeue_timeout(std::time::Duration::from_secs(1))
        .await;
    assert_eq!(none, Err(DequeueError::Empty));
}
