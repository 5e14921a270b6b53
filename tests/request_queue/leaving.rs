//! Whoever changes their mind leaves at once, from wherever they wait.

use std::sync::Arc;

use tower_triage::batch::RequestQueue;
use tower_triage::{Discipline, WaitingRoomConfig};

use super::support::{drained, max_size, of, queue, room, ticket};

#[test]
fn anyone_is_removed_from_wherever_it_waits() {
    for gone in 0..5 {
        let queue = queue();
        let ids: Vec<_> = (0..5)
            .map(|item| queue.enqueue(item, ticket(item % 2)).unwrap())
            .collect();
        assert_eq!(queue.remove(ids[usize::from(gone)]), Some(gone));
        assert_eq!(queue.remove(ids[usize::from(gone)]), None);
        assert!(!queue.contains(ids[usize::from(gone)]));
        let order: Vec<_> = [0, 2, 4, 1, 3]
            .into_iter()
            .filter(|&item| item != gone)
            .collect();
        assert_eq!(drained(&queue), order);
        assert_eq!(queue.stats().cancelled, 1);
    }
}

#[test]
fn who_is_removed_leaves_a_chair() {
    let queue = max_size(1);
    for item in 0..3 {
        let id = queue.enqueue(item, ticket(1)).unwrap();
        assert_eq!(queue.remove(id), Some(item));
    }
    assert!(queue.is_empty());
}

#[test]
fn who_was_taken_is_not_there_to_be_removed() {
    let queue = queue();
    let [one, two] = ["a", "b"].map(|item| queue.enqueue(item, ticket(1)).unwrap());
    queue.try_dequeue().unwrap();
    assert_eq!(queue.remove(one), None);
    let _ = queue.take_batch(1, 1);
    assert_eq!(queue.remove(two), None);
    assert_eq!(queue.stats().cancelled, 0);
}

#[test]
fn clearing_gives_everything_back_in_the_order_of_service() {
    let furniture: [fn(&mut WaitingRoomConfig); 3] = [
        |_| (),
        |room| room.discipline = Discipline::Fair,
        |room| room.discipline = Discipline::Deadline,
    ];
    for change in furniture {
        let fill = || {
            let queue = RequestQueue::new(room(change));
            for item in 0..30u8 {
                let tenant = ["a", "b", "c"][usize::from(item % 3)];
                let mut ticket = ticket(item % 2).tenant(tenant.into());
                ticket.cost = u32::from(item % 4);
                let patience = std::time::Duration::from_secs(1000 + u64::from(item * 7 % 11));
                queue.enqueue(item, ticket.timeout(patience)).unwrap();
            }
            queue
        };
        let (one_by_one, at_once) = (fill(), fill());
        assert_eq!(at_once.clear(), drained(&one_by_one));
        assert!(at_once.is_empty());
        assert!(at_once.clear().is_empty());
        assert_eq!(at_once.stats().cancelled, 30);
        at_once.enqueue(1, ticket(1)).unwrap();
        assert_eq!(at_once.try_dequeue(), Ok(1));
    }
}

#[test]
fn who_drops_the_guard_leaves() {
    let queue = max_size(1);
    let item = Arc::new(());
    let guard = queue.guard(queue.enqueue(item.clone(), ticket(1)).unwrap());
    assert!(guard.is_waiting());
    assert_eq!(guard.position(), Some(1));
    drop(guard);
    assert_eq!(Arc::strong_count(&item), 1);
    assert!(queue.is_empty());
    assert!(queue.enqueue(item, ticket(1)).is_ok());
}

#[test]
fn a_guard_does_not_touch_who_was_taken_nor_who_has_the_chair_now() {
    let queue = max_size(1);
    let guard = queue.guard(queue.enqueue("a", ticket(1)).unwrap());
    assert_eq!(queue.try_dequeue(), Ok("a"));
    queue.enqueue("b", ticket(1)).unwrap();
    assert!(!guard.is_waiting());
    assert_eq!(guard.position(), None);
    drop(guard);
    assert_eq!(drained(&queue), ["b"]);
}

#[test]
fn a_guard_gives_its_request_back_or_lets_it_go() {
    let queue = queue();
    let guard = |item| queue.guard(queue.enqueue(item, ticket(1)).unwrap());
    let (back, disarmed) = (guard("a"), guard("b"));
    assert_eq!(back.remove(), Some("a"));
    disarmed.disarm();
    assert_eq!(drained(&queue), ["b"]);
    assert_eq!(guard("c").remove(), Some("c"));
}

#[test]
fn an_unwinding_caller_leaves() {
    let queue = queue();
    let caller = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = queue.guard(queue.enqueue("a", ticket(1)).unwrap());
        std::panic::resume_unwind(Box::new("the caller's"));
    }));
    assert!(caller.is_err());
    assert!(queue.is_empty());
}

#[tokio::test]
async fn a_caller_that_is_aborted_leaves() {
    let queue = queue();
    let caller = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _guard = queue.guard(queue.enqueue("a", ticket(1)).unwrap());
            std::future::pending::<()>().await;
        }
    });
    while queue.is_empty() {
        tokio::task::yield_now().await;
    }
    caller.abort();
    assert!(caller.await.is_err());
    assert!(queue.is_empty());
}

#[test]
fn removing_half_of_a_hundred_thousand_leaves_the_others_in_order() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let queue = RequestQueue::new(room(|room| room.discipline = discipline));
        let ids: Vec<_> = (0..100_000u32)
            .map(|item| queue.enqueue(item, of("a")).unwrap())
            .collect();
        for id in ids.iter().skip(1).step_by(2) {
            queue.remove(*id).unwrap();
        }
        let order: Vec<_> = (0..100_000).step_by(2).collect();
        assert_eq!(queue.take_batch(usize::MAX, u64::MAX), order);
    }
}
