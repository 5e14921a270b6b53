//! Tests of the service order: fair shares, deadlines, promotion, and their change while items wait.

use std::time::Duration;

use tokio::time::advance;
use tower_triage::batch::RequestQueue;
use tower_triage::{Discipline, PriorityLevels};

use super::support::{config, dequeue_all, enqueue_all, queue, ticket, ticket_of};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn fair_alternates_between_tenants() {
    let queue = RequestQueue::new(config(|config| config.discipline = Discipline::Fair));
    for item in ["a1", "a2", "a3"] {
        queue.enqueue(item, ticket_of("a")).unwrap();
    }
    for item in ["b1", "b2"] {
        queue.enqueue(item, ticket_of("b")).unwrap();
    }
    assert_eq!(dequeue_all(&queue), ["a1", "b1", "a2", "b2", "a3"]);
}

#[test]
fn a_removed_item_is_not_charged_to_its_tenant() {
    let queue = RequestQueue::new(config(|config| config.discipline = Discipline::Fair));
    let first = queue.enqueue("a1", ticket_of("a")).unwrap();
    for (item, tenant) in [("a2", "a"), ("a3", "a"), ("b1", "b"), ("b2", "b")] {
        queue.enqueue(item, ticket_of(tenant)).unwrap();
    }
    queue.remove(first);
    assert_eq!(dequeue_all(&queue), ["a2", "b1", "a3", "b2"]);
}

#[test]
fn the_earliest_deadline_is_taken_first() {
    let queue = RequestQueue::new(config(|config| config.discipline = Discipline::Deadline));
    for (item, seconds) in [("c", 300), ("a", 100), ("b", 200), ("b2", 200)] {
        let ticket = ticket(0).timeout(SECOND * seconds);
        queue.enqueue(item, ticket).unwrap();
    }
    queue.enqueue("no deadline", ticket(0)).unwrap();
    assert_eq!(dequeue_all(&queue), ["a", "b", "b2", "c", "no deadline"]);
}

#[tokio::test(start_paused = true)]
async fn an_item_is_promoted_after_promote_after() {
    let queue = RequestQueue::new(config(|config| config.promote_after = Some(10 * SECOND)));
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
    let queue = RequestQueue::new(config(|config| config.promote_after = Some(10 * SECOND)));
    let low = queue.enqueue("low", ticket(1)).unwrap();
    advance(9 * SECOND).await;
    let high = queue.enqueue("high", ticket(0)).unwrap();
    assert_eq!([high, low].map(|id| queue.position(id)), [Some(1), Some(2)]);
    advance(SECOND).await;
    assert_eq!([high, low].map(|id| queue.position(id)), [Some(2), Some(1)]);
    assert_eq!(dequeue_all(&queue), ["low", "high"]);
}

#[tokio::test(start_paused = true)]
async fn clear_applies_due_promotions() {
    let queue = RequestQueue::new(config(|config| config.promote_after = Some(10 * SECOND)));
    queue.enqueue("low", ticket(1)).unwrap();
    advance(9 * SECOND).await;
    queue.enqueue("high", ticket(0)).unwrap();
    advance(SECOND).await;
    assert_eq!(queue.clear(), ["low", "high"]);
}

#[tokio::test(start_paused = true)]
async fn every_dequeue_applies_due_promotions() {
    for by_batch in [false, true] {
        let queue = RequestQueue::new(config(|config| config.promote_after = Some(10 * SECOND)));
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
fn a_new_discipline_reorders_waiting_items() {
    let queue = queue();
    for (item, tenant, seconds) in [("a1", "a", 400), ("a2", "a", 300), ("b1", "b", 200)] {
        let ticket = ticket_of(tenant).timeout(SECOND * seconds);
        queue.enqueue(item, ticket).unwrap();
    }
    let batch_under = |discipline| {
        queue.reconfigure(config(|config| config.discipline = discipline));
        let batch = queue.take_batch(9, 9);
        for item in ["a1", "a2", "b1"] {
            let (tenant, seconds) = match item {
                "a1" => ("a", 400),
                "a2" => ("a", 300),
                _ => ("b", 200),
            };
            let ticket = ticket_of(tenant).timeout(SECOND * seconds);
            queue.enqueue(item, ticket).unwrap();
        }
        batch
    };
    assert_eq!(batch_under(Discipline::Fair), ["a1", "b1", "a2"]);
    assert_eq!(batch_under(Discipline::Deadline), ["b1", "a2", "a1"]);
    assert_eq!(batch_under(Discipline::Fifo), ["a1", "a2", "b1"]);
}

#[test]
fn reconfigure_keeps_levels_by_name() {
    let queue = queue();
    queue.enqueue("normal", ticket(1)).unwrap();
    queue.enqueue("high", ticket(0)).unwrap();
    queue.reconfigure(config(|config| {
        config.levels = PriorityLevels::new(["normal", "low", "high"], "low").unwrap();
    }));
    assert_eq!(dequeue_all(&queue), ["normal", "high"]);
}

#[test]
fn an_unknown_level_counts_as_the_lowest() {
    let queue = queue();
    queue.enqueue("far below", ticket(200)).unwrap();
    queue.enqueue("normal", ticket(1)).unwrap();
    queue.enqueue("high", ticket(0)).unwrap();
    assert_eq!(dequeue_all(&queue), ["high", "far below", "normal"]);
}

#[test]
fn ids_survive_a_reconfiguration() {
    let queue = queue();
    let ids = enqueue_all(&queue, 0..4);
    queue.reconfigure(config(|config| config.discipline = Discipline::Fair));
    assert_eq!(queue.position(ids[2]), Some(3));
    assert_eq!(queue.remove(ids[1]), Some(1));
    assert_eq!(dequeue_all(&queue), [0, 2, 3]);
}

#[test]
fn a_requeued_item_is_first_after_others_left() {
    let queue = queue();
    let earlier = ticket(0);
    let first = queue.enqueue("first", ticket(0)).unwrap();
    queue.enqueue("requeued", earlier.requeued()).unwrap();
    queue.enqueue("low", ticket(1)).unwrap();
    assert_eq!(queue.remove(first), Some("first"));
    assert_eq!(dequeue_all(&queue), ["requeued", "low"]);
}
