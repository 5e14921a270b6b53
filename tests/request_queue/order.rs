//! Who goes next: shares, deadlines, aging, and changing all of that while requests wait.

use std::time::Duration;

use tokio::time::advance;
use tower_triage::batch::RequestQueue;
use tower_triage::{Discipline, PriorityLevels};

use super::support::{all_come, drained, of, queue, room, ticket};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn tenants_take_turns() {
    let queue = RequestQueue::new(room(|room| room.discipline = Discipline::Fair));
    for item in ["a1", "a2", "a3"] {
        queue.enqueue(item, of("a")).unwrap();
    }
    for item in ["b1", "b2"] {
        queue.enqueue(item, of("b")).unwrap();
    }
    assert_eq!(drained(&queue), ["a1", "b1", "a2", "b2", "a3"]);
}

#[test]
fn who_is_removed_does_not_pay() {
    let queue = RequestQueue::new(room(|room| room.discipline = Discipline::Fair));
    let first = queue.enqueue("a1", of("a")).unwrap();
    for (item, tenant) in [("a2", "a"), ("a3", "a"), ("b1", "b"), ("b2", "b")] {
        queue.enqueue(item, of(tenant)).unwrap();
    }
    queue.remove(first);
    assert_eq!(drained(&queue), ["a2", "b1", "a3", "b2"]);
}

#[test]
fn the_earliest_deadline_goes_first() {
    let queue = RequestQueue::new(room(|room| room.discipline = Discipline::Deadline));
    for (item, seconds) in [("c", 300), ("a", 100), ("b", 200), ("b2", 200)] {
        let ticket = ticket(0).timeout(SECOND * seconds);
        queue.enqueue(item, ticket).unwrap();
    }
    queue.enqueue("whenever", ticket(0)).unwrap();
    assert_eq!(drained(&queue), ["a", "b", "b2", "c", "whenever"]);
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_long_enough_rises() {
    let queue = RequestQueue::new(room(|room| room.promote_after = Some(10 * SECOND)));
    queue.enqueue("low, early", ticket(1)).unwrap();
    advance(5 * SECOND).await;
    queue.enqueue("low, late", ticket(1)).unwrap();
    queue.enqueue("high, early", ticket(0)).unwrap();
    advance(5 * SECOND).await;
    queue.enqueue("high, late", ticket(0)).unwrap();
    let order = ["low, early", "high, early", "high, late", "low, late"];
    assert_eq!(queue.take_batch(9, 9), order);
}

#[tokio::test(start_paused = true)]
async fn a_position_counts_promotions_that_are_due() {
    let queue = RequestQueue::new(room(|room| room.promote_after = Some(10 * SECOND)));
    let low = queue.enqueue("low", ticket(1)).unwrap();
    advance(9 * SECOND).await;
    let high = queue.enqueue("high", ticket(0)).unwrap();
    assert_eq!([high, low].map(|id| queue.position(id)), [Some(1), Some(2)]);
    advance(SECOND).await;
    assert_eq!([high, low].map(|id| queue.position(id)), [Some(2), Some(1)]);
    assert_eq!(drained(&queue), ["low", "high"]);
}

#[tokio::test(start_paused = true)]
async fn consumers_meet_those_who_rose() {
    for by_batch in [false, true] {
        let queue = RequestQueue::new(room(|room| room.promote_after = Some(10 * SECOND)));
        queue.enqueue("low", ticket(1)).unwrap();
        advance(9 * SECOND).await;
        queue.enqueue("high", ticket(0)).unwrap();
        advance(SECOND).await;
        let first = match by_batch {
            true => queue.take_batch(1, 9).pop(),
            false => queue.dequeue().await,
        };
        assert_eq!(first, Some("low"));
    }
}

#[test]
fn a_new_discipline_orders_those_who_wait() {
    let queue = queue();
    for (item, tenant, seconds) in [("a1", "a", 400), ("a2", "a", 300), ("b1", "b", 200)] {
        let ticket = of(tenant).timeout(SECOND * seconds);
        queue.enqueue(item, ticket).unwrap();
    }
    let furnish = |discipline| {
        queue.reconfigure(room(|room| room.discipline = discipline));
        let batch = queue.take_batch(9, 9);
        for item in ["a1", "a2", "b1"] {
            let (tenant, seconds) = match item {
                "a1" => ("a", 400),
                "a2" => ("a", 300),
                _ => ("b", 200),
            };
            let ticket = of(tenant).timeout(SECOND * seconds);
            queue.enqueue(item, ticket).unwrap();
        }
        batch
    };
    assert_eq!(furnish(Discipline::Fair), ["a1", "b1", "a2"]);
    assert_eq!(furnish(Discipline::Deadline), ["b1", "a2", "a1"]);
    assert_eq!(furnish(Discipline::Fifo), ["a1", "a2", "b1"]);
}

#[test]
fn levels_keep_their_waiters_by_name() {
    let queue = queue();
    queue.enqueue("normal", ticket(1)).unwrap();
    queue.enqueue("high", ticket(0)).unwrap();
    queue.reconfigure(room(|room| {
        room.levels = PriorityLevels::new(["normal", "low", "high"], "low").unwrap();
    }));
    assert_eq!(drained(&queue), ["normal", "high"]);
}

#[test]
fn an_unknown_level_is_the_lowest() {
    let queue = queue();
    queue.enqueue("far below", ticket(200)).unwrap();
    queue.enqueue("normal", ticket(1)).unwrap();
    queue.enqueue("high", ticket(0)).unwrap();
    assert_eq!(drained(&queue), ["high", "far below", "normal"]);
}

#[test]
fn who_was_enqueued_before_a_change_keeps_its_id() {
    let queue = queue();
    let ids = all_come(&queue, 0..4);
    queue.reconfigure(room(|room| room.discipline = Discipline::Fair));
    assert_eq!(queue.position(ids[2]), Some(3));
    assert_eq!(queue.remove(ids[1]), Some(1));
    assert_eq!(drained(&queue), [0, 2, 3]);
}
