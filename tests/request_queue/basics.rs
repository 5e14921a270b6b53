//! What goes in comes out, in order; what may not come in comes back.

use std::time::Duration;

use tower_triage::batch::{DequeueError, RequestQueue, TooLarge};
use tower_triage::{RejectReason, WaitingRoomConfig};

use super::support::{all_come, drained, max_size, now, queue, room, ticket};

/// Neither `Clone` nor `Debug` nor `Sync`.
struct Plain(std::cell::Cell<u8>);

#[test]
fn what_goes_in_comes_out() {
    let queue = queue();
    assert!(queue.is_empty());
    assert!(queue.enqueue(Plain(1.into()), ticket(1)).is_ok());
    assert_eq!((queue.len(), queue.is_empty()), (1, false));
    assert!(queue.try_dequeue().is_ok_and(|item| item.0.get() == 1));
    assert_eq!((queue.len(), queue.is_empty()), (0, true));
    assert!(queue.try_dequeue().is_err_and(|e| e == DequeueError::Empty));
}

#[test]
fn the_most_urgent_are_taken_first_and_equals_in_the_order_in_which_they_came() {
    let queue = queue();
    for (item, level) in [("a", 1), ("b", 0), ("c", 1), ("d", 0)] {
        queue.enqueue(item, ticket(level)).unwrap();
    }
    assert_eq!(drained(&queue), ["b", "d", "a", "c"]);
    assert_eq!(queue.try_dequeue(), Err(DequeueError::Empty));
}

#[test]
fn all_handles_are_of_one_queue() {
    let queue = queue();
    let other = queue.clone();
    let id = queue.enqueue("a", ticket(1)).unwrap();
    assert!(other.contains(id));
    assert_eq!(other.remove(id), Some("a"));
    assert!(queue.is_empty());
}

#[test]
fn a_full_queue_gives_the_item_back() {
    let queue = max_size(1);
    queue.enqueue(1, ticket(1)).unwrap();
    let refused = queue.enqueue(2, ticket(0)).unwrap_err();
    assert_eq!((refused.item, refused.why), (2, RejectReason::Full));
    assert_eq!(refused.to_string(), "the queue is full");
    assert_eq!(queue.stats().full, 1);
    queue.try_dequeue().unwrap();
    assert!(queue.enqueue(refused.item, ticket(0)).is_ok());
}

#[test]
fn whatever_the_reason_the_item_comes_back() {
    let refused = |change: &dyn Fn(&mut WaitingRoomConfig), change_ticket: fn(_) -> _| {
        let queue = RequestQueue::builder(room(change))
            .cost(10, |&cost: &u64| cost)
            .build();
        queue.enqueue(1, ticket(1)).ok();
        let refused = queue.enqueue(2, change_ticket(ticket(0))).unwrap_err();
        assert_eq!(refused.item, 2);
        refused.why
    };
    let as_it_is = |ticket| ticket;
    let two_chairs = |room: &mut WaitingRoomConfig| room.max_size = 2;
    let cases = [
        (
            refused(&|room| room.max_size = 0, as_it_is),
            RejectReason::Disabled,
        ),
        (
            refused(&|room| room.max_size = 1, as_it_is),
            RejectReason::Full,
        ),
        (
            refused(&|room| room.max_size_per_tenant = Some(1), as_it_is),
            RejectReason::TenantFull,
        ),
        (
            refused(&|room| room.max_wait = Some(Duration::ZERO), as_it_is),
            RejectReason::TimedOut,
        ),
        (
            refused(&two_chairs, |ticket| ticket.timeout(Duration::ZERO)),
            RejectReason::DeadlinePassed,
        ),
        (
            refused(&two_chairs, |ticket| ticket.no_wait()),
            RejectReason::NotQueued,
        ),
    ];
    for (why, expected) in cases {
        assert_eq!(why, expected);
    }
}

#[test]
fn what_is_larger_than_the_whole_budget_never_waits_whoever_else_does() {
    for others in [0, 1, 2] {
        let queue = RequestQueue::builder(room(|room| room.max_size = 2))
            .cost(10, |&cost: &u64| cost)
            .build();
        all_come(&queue, vec![10; others]);
        let refused = queue.enqueue(11, ticket(0)).unwrap_err();
        let why = TooLarge {
            cost: 11,
            budget: 10,
        };
        assert_eq!(
            (refused.item, refused.why),
            (11, RejectReason::Unservable(why))
        );
        let said = "the request costs 11, which is more than the whole budget of 10";
        assert_eq!(refused.to_string(), said);
        assert_eq!(queue.stats().unservable, 1);
        assert_eq!(drained(&queue), vec![10; others]);
    }
}

#[test]
fn a_cost_is_asked_once() {
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let queue = RequestQueue::builder(room(|_| ()))
        .cost(10, {
            let asked = asked.clone();
            move |_: &u64| 4 + asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) as u64
        })
        .build();
    queue.enqueue(0, ticket(1)).unwrap();
    assert!(queue.take_batch(9, 3).is_empty());
    assert_eq!(queue.take_batch(9, 4), [0]);
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn an_id_names_one_request_of_one_queue() {
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
fn a_position_is_the_place_in_the_order_of_service() {
    let queue = queue();
    let [normal, high, later] = [1, 0, 1].map(|level| queue.enqueue((), ticket(level)).unwrap());
    let positions = || [high, normal, later].map(|id| queue.position(id));
    assert_eq!(positions(), [Some(1), Some(2), Some(3)]);
    queue.try_dequeue().unwrap();
    assert_eq!(positions(), [None, Some(1), Some(2)]);
}

#[test]
fn an_item_that_comes_back_stands_where_it_stood() {
    let queue = queue();
    let begin = now();
    let at = |ms| {
        tower_triage::Ticket::new(tower_triage::Priority(1), begin + Duration::from_millis(ms))
    };
    while now() < begin + Duration::from_millis(3) {
        std::thread::yield_now();
    }
    for (item, came) in [("a", 0), ("b", 1), ("c", 2)] {
        queue.enqueue(item, at(came)).unwrap();
    }
    assert_eq!(queue.take_batch(2, 9), ["a", "b"]);
    queue.enqueue("b", at(1).requeued()).unwrap();
    queue.enqueue("d", at(3)).unwrap();
    assert_eq!(drained(&queue), ["b", "c", "d"]);
}

#[test]
fn the_simple_estimate_bounds_a_batch() {
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
    let queue = RequestQueue::builder(room(|_| ()))
        .cost(1 << 20, KvCache::SIMPLE)
        .build();
    for prompt in [Prompt(100, 10_000), Prompt(10, 5), Prompt(10, 5)] {
        queue.enqueue(prompt, ticket(1)).unwrap();
    }
    let batch = queue.take_batch(9, 4 * (100 + 256) + 4 * 15);
    assert_eq!(batch, [Prompt(100, 10_000), Prompt(10, 5)]);
    assert_eq!(queue.len(), 1);
}
