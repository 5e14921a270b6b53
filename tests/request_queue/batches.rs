//! Tests of `take_batch`: which items join a batch, and which are skipped.

use std::time::Duration;

use tower_triage::batch::{OnOversize, RequestId, RequestQueue};
use tower_triage::{Discipline, WaitingRoomConfig};

use super::support::{config, dequeue_all, enqueue_all, queue, ticket, ticket_of};

/// A queue of items whose names end with their cost.
fn costly(config: WaitingRoomConfig, on_oversize: OnOversize) -> RequestQueue<&'static str> {
    let cost = |item: &&str| {
        item.trim_start_matches(char::is_alphabetic)
            .parse()
            .unwrap()
    };
    RequestQueue::builder(config)
        .cost(100, cost)
        .on_oversize(on_oversize)
        .build()
}

fn backfilling(max_overtakes: u32) -> RequestQueue<&'static str> {
    costly(config(|_| ()), OnOversize::Backfill { max_overtakes })
}

fn positions(queue: &RequestQueue<&'static str>, ids: &[RequestId]) -> Vec<Option<usize>> {
    ids.iter().map(|&id| queue.position(id)).collect()
}

#[test]
fn max_count_bounds_a_batch() {
    let queue = queue();
    enqueue_all(&queue, 0..5);
    assert!(queue.take_batch(0, u64::MAX).is_empty());
    assert_eq!(queue.take_batch(3, u64::MAX), [0, 1, 2]);
    assert_eq!(queue.take_batch(usize::MAX, u64::MAX), [3, 4]);
    assert!(queue.take_batch(3, u64::MAX).is_empty());
}

#[test]
fn the_budget_bounds_a_batch() {
    let queue = costly(config(|_| ()), OnOversize::Stop);
    enqueue_all(&queue, ["a4", "b4", "c3", "d0", "e1"]);
    assert_eq!(queue.take_batch(9, 10), ["a4", "b4"]);
    assert_eq!(queue.take_batch(9, 3), ["c3", "d0"]);
    assert!(queue.take_batch(9, 0).is_empty());
    assert_eq!(queue.take_batch(9, 1), ["e1"]);
}

#[test]
fn items_without_cost_fit_an_empty_budget() {
    let queue = costly(config(|_| ()), OnOversize::Stop);
    enqueue_all(&queue, ["a0", "b0", "c1"]);
    assert_eq!(queue.take_batch(9, 0), ["a0", "b0"]);
}

#[test]
fn a_batch_is_ordered_by_priority_then_arrival() {
    let queue = queue();
    for (item, level) in [("a", 1), ("b", 0), ("c", 1), ("d", 0)] {
        queue.enqueue(item, ticket(level)).unwrap();
    }
    assert_eq!(queue.take_batch(3, 9), ["b", "d", "a"]);
    assert_eq!(dequeue_all(&queue), ["c"]);
}

#[test]
fn stop_keeps_the_order_strict() {
    let queue = costly(config(|_| ()), OnOversize::Stop);
    let ids = enqueue_all(&queue, ["a8", "b1", "c1"]);
    assert!(queue.take_batch(9, 7).is_empty());
    assert_eq!(positions(&queue, &ids), [Some(1), Some(2), Some(3)]);
    assert_eq!(queue.take_batch(9, 9), ["a8", "b1"]);
}

#[test]
fn backfill_overtakes_at_most_max_overtakes_times() {
    let queue = backfilling(2);
    enqueue_all(&queue, ["a8", "b1", "c1", "d1"]);
    assert_eq!(queue.take_batch(8, 4), ["b1", "c1"]);
    assert!(queue.take_batch(8, 4).is_empty());
    assert_eq!(queue.take_batch(8, 10), ["a8", "d1"]);
}

#[test]
fn overtakes_are_counted_over_all_batches() {
    let queue = backfilling(3);
    enqueue_all(&queue, ["a8", "b1", "c1", "d1", "e1"]);
    for item in ["b1", "c1", "d1"] {
        assert_eq!(queue.take_batch(1, 4), [item]);
    }
    assert!(queue.take_batch(1, 4).is_empty());
    assert_eq!(queue.take_batch(9, 9), ["a8", "e1"]);
}

#[test]
fn only_items_taken_behind_it_count_as_overtakes() {
    let queue = backfilling(1);
    enqueue_all(&queue, ["a1", "b8", "c9"]);
    assert_eq!(queue.take_batch(9, 4), ["a1"]);
    for _ in 0..5 {
        assert!(queue.take_batch(9, 4).is_empty());
    }
    enqueue_all(&queue, ["d1", "e1"]);
    assert_eq!(queue.take_batch(9, 4), ["d1"]);
    assert!(queue.take_batch(9, 4).is_empty());
}

#[test]
fn each_skipped_item_counts_its_own_overtakes() {
    let queue = backfilling(2);
    enqueue_all(&queue, ["a9", "b1"]);
    assert_eq!(queue.take_batch(9, 4), ["b1"]);
    enqueue_all(&queue, ["c5", "d1", "e1"]);
    // One more may overtake the first of them, two the second.
    assert_eq!(queue.take_batch(9, 4), ["d1"]);
    assert_eq!(queue.take_batch(9, 9), ["a9"]);
    assert_eq!(queue.take_batch(9, 4), ["e1"]);
    enqueue_all(&queue, ["f1"]);
    assert!(queue.take_batch(9, 4).is_empty());
    assert_eq!(queue.take_batch(9, 6), ["c5", "f1"]);
}

#[test]
fn a_skipped_item_keeps_its_position() {
    let disciplines = [Discipline::Fifo, Discipline::Deadline, Discipline::Fair];
    for discipline in disciplines {
        let config = config(|config| config.discipline = discipline);
        let queue = costly(config, OnOversize::Backfill { max_overtakes: 9 });
        let tenants = ["x", "y", "z"].into_iter().cycle();
        let items = ["a8", "b1", "c9", "d9", "e1", "f7", "g8", "h1"];
        let ids: Vec<_> = (items.into_iter().zip(tenants))
            .map(|(item, tenant)| {
                let timeout = Duration::from_secs(1000 - u64::from(item.as_bytes()[1]));
                let ticket = ticket_of(tenant).timeout(timeout);
                (item, queue.enqueue(item, ticket).unwrap())
            })
            .collect();
        let order = |queue: &RequestQueue<_>| {
            let mut order: Vec<_> = (ids.iter())
                .filter_map(|&(item, id)| Some((queue.position(id)?, item)))
                .collect();
            order.sort_unstable();
            order.into_iter().map(|(_, item)| item).collect::<Vec<_>>()
        };
        let before = order(&queue);
        assert!(queue.take_batch(9, 0).is_empty());
        assert_eq!(order(&queue), before, "{discipline:?}");
        assert_eq!(dequeue_all(&queue), before, "{discipline:?}");
    }
}

#[test]
fn skipped_items_keep_their_order_when_promoted() {
    // Promotions happen in real time here: each call may find some that are due.
    let config = config(|config| config.promote_after = Some(Duration::from_nanos(1)));
    let queue = costly(config, OnOversize::Backfill { max_overtakes: 9 });
    enqueue_all(&queue, ["a8", "b9", "c1", "d7"]);
    assert_eq!(queue.take_batch(9, 4), ["c1"]);
    enqueue_all(&queue, ["e1"]);
    assert_eq!(dequeue_all(&queue), ["a8", "b9", "d7", "e1"]);
}

#[test]
fn overtakes_by_lower_priorities_count() {
    let queue = backfilling(2);
    queue.enqueue("a8", ticket(0)).unwrap();
    enqueue_all(&queue, ["b1", "c1", "d1"]);
    assert_eq!(queue.take_batch(9, 4), ["b1", "c1"]);
    assert!(queue.take_batch(9, 4).is_empty());
    assert_eq!(queue.take_batch(9, 8), ["a8"]);
}

#[test]
fn higher_priorities_do_not_count_as_overtakes() {
    let queue = backfilling(1);
    enqueue_all(&queue, ["a8"]);
    for _ in 0..5 {
        queue.enqueue("b1", ticket(0)).unwrap();
        assert_eq!(queue.take_batch(9, 4), ["b1"]);
    }
    enqueue_all(&queue, ["c1", "d1"]);
    assert_eq!(queue.take_batch(9, 4), ["c1"]);
    assert!(queue.take_batch(9, 4).is_empty());
}

#[test]
fn earlier_deadlines_do_not_count_as_overtakes() {
    let config = config(|config| config.discipline = Discipline::Deadline);
    let queue = costly(config, OnOversize::Backfill { max_overtakes: 1 });
    let until = |seconds| ticket(1).timeout(Duration::from_secs(seconds));
    queue.enqueue("a8", until(100)).unwrap();
    queue.enqueue("b1", until(200)).unwrap();
    queue.enqueue("c1", until(50)).unwrap();
    assert_eq!(queue.take_batch(9, 4), ["c1", "b1"]);
    queue.enqueue("d1", until(200)).unwrap();
    assert!(queue.take_batch(9, 4).is_empty());
    queue.enqueue("e1", until(50)).unwrap();
    assert_eq!(queue.take_batch(9, 4), ["e1"]);
}

#[test]
fn a_tenant_pays_when_its_first_item_is_skipped() {
    for others_of_x in [0, 1] {
        let config = config(|config| config.discipline = Discipline::Fair);
        let queue = costly(config, OnOversize::Backfill { max_overtakes: 9 });
        queue.enqueue("a8", ticket_of("x")).unwrap();
        queue.enqueue("b1", ticket_of("x")).unwrap();
        for _ in 0..others_of_x {
            queue.enqueue("c9", ticket_of("x")).unwrap();
        }
        queue.enqueue("d8", ticket_of("y")).unwrap();
        assert_eq!(queue.take_batch(1, 4), ["b1"]);
        assert_eq!(queue.take_batch(2, 99), ["d8", "a8"], "{others_of_x}");
    }
}

#[test]
fn fair_backfill_takes_a_large_item_within_a_bound() {
    for max_overtakes in 0..4 {
        let config = config(|config| config.discipline = Discipline::Fair);
        let queue = costly(config, OnOversize::Backfill { max_overtakes });
        queue.enqueue("a9", ticket_of("x")).unwrap();
        let mut others = 0;
        // Small items arrive at each step. In two of three steps only they fit.
        let taken = (0..100).find(|step| {
            for tenant in ["x", "y", "z"] {
                queue.enqueue("b1", ticket_of(tenant)).unwrap();
            }
            let free = if step % 3 == 2 { 9 } else { 2 };
            let batch = queue.take_batch(1, free);
            others += batch.iter().filter(|&&item| item == "b1").count();
            batch.contains(&"a9")
        });
        // Those that overtake it, and one of each other tenant for each of its own tenant.
        let most = max_overtakes as usize * 3 + 2;
        assert!(
            taken.is_some() && others <= most,
            "{max_overtakes}: {others}"
        );
    }
}

#[test]
fn a_batch_skips_at_most_64_items() {
    let queue = backfilling(9);
    enqueue_all(&queue, ["a9"; 64]);
    enqueue_all(&queue, ["b1"]);
    assert_eq!(queue.take_batch(9, 4), ["b1"]);
    enqueue_all(&queue, ["a9", "b1"]);
    assert!(queue.take_batch(9, 4).is_empty());
    assert_eq!(queue.len(), 66);
}

#[test]
fn a_batch_is_shared_by_tenant_weight() {
    let queue = RequestQueue::new(config(|config| {
        config.discipline = Discipline::Fair;
        config.weights.insert("b".into(), 2);
    }));
    for item in 0..20 {
        queue.enqueue(("a", item), ticket_of("a")).unwrap();
    }
    for item in 0..20 {
        queue.enqueue(("b", item), ticket_of("b")).unwrap();
    }
    for _ in 0..5 {
        let batch = queue.take_batch(3, u64::MAX);
        let of_a = batch.iter().filter(|(tenant, _)| *tenant == "a");
        assert_eq!(of_a.count(), 1, "{batch:?}");
    }
}

#[test]
fn remove_and_take_batch_never_share_an_item() {
    let queue = queue();
    let ids = enqueue_all(&queue, 0..4);
    assert_eq!(queue.remove(ids[1]), Some(1));
    assert_eq!(queue.take_batch(2, 9), [0, 2]);
    assert_eq!(
        ids.iter().map(|&id| queue.remove(id)).collect::<Vec<_>>(),
        [None, None, None, Some(3)]
    );
}
