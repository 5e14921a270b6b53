//! Tests of `remove`, `clear` and request guards.

use std::sync::Arc;

use tower_triage::batch::RequestQueue;
use tower_triage::{Discipline, WaitingRoomConfig};

use super::support::{config, dequeue_all, max_size, queue, ticket, ticket_of};

#[test]
fn remove_works_at_every_position() {
    for removed in 0..5 {
        let queue = queue();
        let ids: Vec<_> = (0..5)
            .map(|item| queue.enqueue(item, ticket(item % 2)).unwrap())
            .collect();
        assert_eq!(queue.remove(ids[usize::from(removed)]), Some(removed));
        assert_eq!(queue.remove(ids[usize::from(removed)]), None);
        assert!(!queue.contains(ids[usize::from(removed)]));
        let order: Vec<_> = [0, 2, 4, 1, 3]
            .into_iter()
            .filter(|&item| item != removed)
            .collect();
        assert_eq!(dequeue_all(&queue), order);
        assert_eq!(queue.stats().cancelled, 1);
    }
}

#[test]
fn a_removed_item_frees_its_place() {
    let queue = max_size(1);
    for item in 0..3 {
        let id = queue.enqueue(item, ticket(1)).unwrap();
        assert_eq!(queue.remove(id), Some(item));
    }
    assert!(queue.is_empty());
}

#[test]
fn a_taken_item_cannot_be_removed() {
    let queue = queue();
    let [one, two] = ["a", "b"].map(|item| queue.enqueue(item, ticket(1)).unwrap());
    queue.try_dequeue().unwrap();
    assert_eq!(queue.remove(one), None);
    let _ = queue.take_batch(1, 1);
    assert_eq!(queue.remove(two), None);
    assert_eq!(queue.stats().cancelled, 0);
}

#[test]
fn clear_returns_all_items_in_service_order() {
    let cases: [fn(&mut WaitingRoomConfig); 3] = [
        |_| (),
        |config| config.discipline = Discipline::Fair,
        |config| config.discipline = Discipline::Deadline,
    ];
    for change in cases {
        let fill = || {
            let queue = RequestQueue::new(config(change));
            for item in 0..30u8 {
                let tenant = ["a", "b", "c"][usize::from(item % 3)];
                let mut ticket = ticket(item % 2).tenant(tenant.into());
                ticket.cost = u32::from(item % 4);
                let timeout = std::time::Duration::from_secs(1000 + u64::from(item * 7 % 11));
                queue.enqueue(item, ticket.timeout(timeout)).unwrap();
            }
            queue
        };
        let (one_by_one, at_once) = (fill(), fill());
        assert_eq!(at_once.clear(), dequeue_all(&one_by_one));
        assert!(at_once.is_empty());
        assert!(at_once.clear().is_empty());
        assert_eq!(at_once.stats().cancelled, 30);
        at_once.enqueue(1, ticket(1)).unwrap();
        assert_eq!(at_once.try_dequeue(), Ok(1));
    }
}

#[test]
fn a_dropped_guard_removes_its_item() {
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
fn a_guard_of_a_taken_item_removes_nothing() {
    let queue = max_size(1);
    let guard = queue.guard(queue.enqueue("a", ticket(1)).unwrap());
    assert_eq!(queue.try_dequeue(), Ok("a"));
    queue.enqueue("b", ticket(1)).unwrap();
    assert!(!guard.is_waiting());
    assert_eq!(guard.position(), None);
    drop(guard);
    assert_eq!(dequeue_all(&queue), ["b"]);
}

#[test]
fn a_guard_can_return_or_release_its_item() {
    let queue = queue();
    let guard = |item| queue.guard(queue.enqueue(item, ticket(1)).unwrap());
    let (removed, disarmed) = (guard("a"), guard("b"));
    assert_eq!(removed.remove(), Some("a"));
    disarmed.disarm();
    assert_eq!(dequeue_all(&queue), ["b"]);
    assert_eq!(guard("c").remove(), Some("c"));
}

#[test]
fn an_unwinding_caller_removes_its_item() {
    let queue = queue();
    let caller = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = queue.guard(queue.enqueue("a", ticket(1)).unwrap());
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(caller.is_err());
    assert!(queue.is_empty());
}

#[tokio::test]
async fn an_aborted_caller_removes_its_item() {
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
fn removing_half_of_100_000_keeps_the_order() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let queue = RequestQueue::new(config(|config| config.discipline = discipline));
        let ids: Vec<_> = (0..100_000u32)
            .map(|item| queue.enqueue(item, ticket_of("a")).unwrap())
            .collect();
        for id in ids.iter().skip(1).step_by(2) {
            queue.remove(*id).unwrap();
        }
        let order: Vec<_> = (0..100_000).step_by(2).collect();
        assert_eq!(queue.take_batch(usize::MAX, u64::MAX), order);
    }
}
