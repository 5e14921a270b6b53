//! Tests of enqueue, dequeue, rejections, ids, positions and costs.

use std::time::Duration;

use tower_triage::batch::{DequeueError, RequestQueue, TooLarge};
use tower_triage::{RejectReason, WaitingRoomConfig};

use super::support::{config, dequeue_all, enqueue_all, max_size, now, queue, ticket};

/// Neither `Clone` nor `Debug` nor `Sync`.
struct Plain(std::cell::Cell<u8>);

#[test]
fn an_enqueued_item_is_dequeued() {
    let queue = queue();
    assert!(queue.is_empty());
    assert!(queue.enqueue(Plain(1.into()), ticket(1)).is_ok());
    assert_eq!((queue.len(), queue.is_empty()), (1, false));
    assert!(queue.try_dequeue().is_ok_and(|item| item.0.get() == 1));
    assert_eq!((queue.len(), queue.is_empty()), (0, true));
    assert!(queue.try_dequeue().is_err_and(|e| e == DequeueError::Empty));
}

#[test]
fn items_are_taken_by_priority_then_arrival() {
    let queue = queue();
    for (item, level) in [("a", 1), ("b", 0), ("c", 1), ("d", 0)] {
        queue.enqueue(item, ticket(level)).unwrap();
    }
    assert_eq!(dequeue_all(&queue), ["b", "d", "a", "c"]);
    assert_eq!(queue.try_dequeue(), Err(DequeueError::Empty));
}

#[test]
fn clones_are_handles_of_one_queue() {
    let queue = queue();
    let other = queue.clone();
    let id = queue.enqueue("a", ticket(1)).unwrap();
    assert!(other.contains(id));
    assert_eq!(other.remove(id), Some("a"));
    assert!(queue.is_empty());
}

#[test]
fn a_full_queue_returns_the_item() {
    let queue = max_size(1);
    queue.enqueue(1, ticket(1)).unwrap();
    let rejected = queue.enqueue(2, ticket(1)).unwrap_err();
    assert_eq!((rejected.item, rejected.reason), (2, RejectReason::Full));
    assert_eq!(rejected.to_string(), "the queue is full");
    assert_eq!(queue.stats().full, 1);
    queue.try_dequeue().unwrap();
    assert!(queue.enqueue(rejected.item, ticket(0)).is_ok());
}

#[test]
fn every_rejection_returns_the_item() {
    let rejected = |change: &dyn Fn(&mut WaitingRoomConfig), change_ticket: fn(_) -> _| {
        let queue = RequestQueue::builder(config(change))
            .cost(10, |&cost: &u64| cost)
            .build();
        queue.enqueue(1, ticket(1)).ok();
        let rejected = queue.enqueue(2, change_ticket(ticket(0))).unwrap_err();
        assert_eq!(rejected.item, 2);
        rejected.reason
    };
    let unchanged = |ticket| ticket;
    let one_place = |config: &mut WaitingRoomConfig| {
        (config.max_size, config.displace) = (1, false);
    };
    let two_places = |config: &mut WaitingRoomConfig| config.max_size = 2;
    let cases = [
        (
            rejected(&|config| config.max_size = 0, unchanged),
            RejectReason::Disabled,
        ),
        (rejected(&one_place, unchanged), RejectReason::Full),
        (
            rejected(&|config| config.max_size_per_tenant = Some(1), unchanged),
            RejectReason::TenantFull,
        ),
        (
            rejected(&|config| config.max_wait = Some(Duration::ZERO), unchanged),
            RejectReason::TimedOut,
        ),
        (
            rejected(&two_places, |ticket| ticket.timeout(Duration::ZERO)),
            RejectReason::DeadlinePassed,
        ),
        (
            rejected(&two_places, |ticket| ticket.no_wait()),
            RejectReason::NotQueued,
        ),
    ];
    for (why, expected) in cases {
        assert_eq!(why, expected);
    }
}

#[test]
fn an_item_over_the_whole_budget_is_rejected() {
    for waiting in [0, 1, 2] {
        let queue = RequestQueue::builder(config(|config| config.max_size = 2))
            .cost(10, |&cost: &u64| cost)
            .build();
        enqueue_all(&queue, vec![10; waiting]);
        let rejected = queue.enqueue(11, ticket(0)).unwrap_err();
        let why = TooLarge {
            cost: 11,
            budget: 10,
        };
        assert_eq!(
            (rejected.item, rejected.reason),
            (11, RejectReason::Unservable(why))
        );
        let message = "the request costs 11, which is more than the whole budget of 10";
        assert_eq!(rejected.to_string(), message);
        assert_eq!(queue.stats().unservable, 1);
        assert_eq!(dequeue_all(&queue), vec![10; waiting]);
    }
}

#[test]
fn the_cost_is_computed_once() {
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let queue = RequestQueue::builder(config(|_| ()))
        .cost(10, {
            let calls = calls.clone();
            move |_: &u64| 4 + calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) as u64
        })
        .build();
    queue.enqueue(0, ticket(1)).unwrap();
    assert!(queue.take_batch(9, 3).is_empty());
    assert_eq!(queue.take_batch(9, 4), [0]);
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn an_id_is_valid_for_one_request_of_one_queue() {
    let (one, other) = (queue(), queue());
    let first = one.enqueue("a", ticket(1)).unwrap();
    let elsewhere = other.enqueue("b", ticket(1)).unwrap();
    assert_ne!(first, elsewhere);
    assert!(!one.contains(elsewhere));
    assert_eq!(one.position(elsewhere), None);
    assert_eq!(one.remove(elsewhere), None);
    drop(one.guard(elsewhere));
    assert_eq!((one.len(), other.len()), (1, 1));

    assert_eq!(one.try_dequeue(), Ok("a"));
    let second = one.enqueue("c", ticket(1)).unwrap();
    assert_ne!(first, second);
    assert_eq!(one.remove(first), None);
    assert_eq!((one.contains(first), one.position(first)), (false, None));
    assert_eq!(
        (one.contains(second), one.position(second)),
        (true, Some(1))
    );
}

#[test]
fn a_position_is_the_index_in_service_order() {
    let queue = queue();
    let [normal, high, later] = [1, 0, 1].map(|level| queue.enqueue((), ticket(level)).unwrap());
    let positions = || [high, normal, later].map(|id| queue.position(id));
    assert_eq!(positions(), [Some(1), Some(2), Some(3)]);
    queue.try_dequeue().unwrap();
    assert_eq!(positions(), [None, Some(1), Some(2)]);
}

#[test]
fn a_requeued_item_regains_its_position() {
    let queue = queue();
    let begin = now();
    let at = |ms| {
        tower_triage::Ticket::new(tower_triage::Priority(1), begin + Duration::from_millis(ms))
    };
    while now() < begin + Duration::from_millis(3) {
        std::thread::yield_now();
    }
    for (item, arrival) in [("a", 0), ("b", 1), ("c", 2)] {
        queue.enqueue(item, at(arrival)).unwrap();
    }
    assert_eq!(queue.take_batch(2, 9), ["a", "b"]);
    queue.enqueue("b", at(1).requeued()).unwrap();
    queue.enqueue("d", at(3)).unwrap();
    assert_eq!(dequeue_all(&queue), ["b", "c", "d"]);
}

#[test]
fn kv_cache_estimates_bound_a_batch() {
    use tower_triage::batch::{KvCache, Tokens};
    #[derive(Debug, PartialEq)]
    struct Prompt(u32, u32);
    impl Tokens for Prompt {
        fn prompt_tokens(&self) -> u32 {
            self.0
        }
        fn max_tokens(&self) -> u32 {
            self.1
        }
    }
    let queue = RequestQueue::builder(config(|_| ()))
        .cost(1 << 20, KvCache::SIMPLE)
        .build();
    for prompt in [Prompt(100, 10_000), Prompt(10, 5), Prompt(10, 5)] {
        queue.enqueue(prompt, ticket(1)).unwrap();
    }
    let batch = queue.take_batch(9, 4 * (100 + 256) + 4 * 15);
    assert_eq!(batch, [Prompt(100, 10_000), Prompt(10, 5)]);
    assert_eq!(queue.len(), 1);
}
