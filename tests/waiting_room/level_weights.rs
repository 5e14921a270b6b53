//! Levels that share the slots by weights.

use std::time::Instant;

use proptest::prelude::*;
use tower_triage::admit::{Partition, WaitQueue};
use tower_triage::{Discipline, Priority, RejectReason, Ticket, WaitingRoomConfig};

use super::fairness::LaneRoom;
use super::scenarios::{HIGH, LOW, NORMAL, Room, config, level};

fn weighted(discipline: Discipline) -> WaitingRoomConfig {
    config(|c| (c.max_size, c.discipline) = (1_000, discipline)).level_weight("high", 3)
}

#[test]
fn slots_are_divided_by_the_weights_of_levels_that_wait() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let mut room = Room::new(weighted(discipline));
        for name in ["n1", "n2", "n3"] {
            room.waits(name, level(NORMAL));
        }
        for name in ["h1", "h2", "h3", "h4", "h5", "h6", "h7"] {
            room.waits(name, level(HIGH));
        }
        let order = ["h1", "h2", "h3", "n1", "h4", "h5", "h6", "n2", "h7", "n3"];
        for (nth, name) in (1..).zip(order) {
            assert_eq!(room.position(name), Some(nth), "{name}");
        }
        assert_eq!(room.served(), order);
    }
}

#[test]
fn a_queue_without_slots_divides_them_likewise() {
    let now = Instant::now();
    let mut queue = WaitQueue::new(weighted(Discipline::Fifo), now);
    for (level, name) in [
        (1, "n1"),
        (1, "n2"),
        (0, "h1"),
        (0, "h2"),
        (0, "h3"),
        (0, "h4"),
    ] {
        let ticket = Ticket::new(Priority(level), now);
        queue.push(ticket, (), now, |_| name).unwrap();
    }
    let forecast: Vec<_> = queue.in_order().iter().map(|&id| *queue.get(id)).collect();
    let popped: Vec<_> = std::iter::from_fn(|| queue.pop(queue.peek()?)).collect();
    assert_eq!(popped, ["h1", "h2", "h3", "n1", "h4", "n2"]);
    assert_eq!(forecast, popped);
}

#[test]
fn a_level_that_waits_alone_has_every_slot() {
    let mut room = Room::new(weighted(Discipline::Fifo));
    room.waits("n1", level(NORMAL));
    room.waits("n2", level(NORMAL));
    assert_eq!([room.next(0), room.next(0)], [Some("n1"), Some("n2")]);
    // What it had while no other waited, it does not owe.
    room.waits("l1", level(LOW));
    room.waits("n3", level(NORMAL));
    room.waits("l2", level(LOW));
    room.waits("n4", level(NORMAL));
    assert_eq!(room.served(), ["l1", "n3", "l2", "n4"]);
}

#[test]
fn costs_and_tenants_count_with_fair_only() {
    let served = |discipline| {
        let mut room = Room::new(weighted(discipline));
        room.waits("a1", |t| level(NORMAL)(t).tenant("a".into()).cost(2));
        room.waits("a2", |t| level(NORMAL)(t).tenant("a".into()));
        room.waits("b1", |t| level(NORMAL)(t).tenant("b".into()));
        room.waits("h1", |t| level(HIGH)(t).tenant("b".into()).cost(4));
        room.waits("h2", |t| level(HIGH)(t).tenant("b".into()));
        room.served()
    };
    assert_eq!(served(Discipline::Fifo), ["h1", "h2", "a1", "a2", "b1"]);
    assert_eq!(served(Discipline::Fair), ["b1", "h1", "h2", "a1", "a2"]);
}

#[test]
fn a_tenant_s_weight_multiplies_that_of_its_level() {
    let mut room = Room::new(weighted(Discipline::Fair).weight("a", 2));
    for name in ["b1", "b2"] {
        room.waits(name, |t| level(HIGH)(t).tenant("b".into()));
    }
    for name in ["a1", "a2", "a3", "a4"] {
        room.waits(name, |t| level(HIGH)(t).tenant("a".into()));
    }
    room.waits("n1", |t| level(NORMAL)(t).tenant("a".into()));
    assert_eq!(room.served(), ["a1", "a2", "b1", "a3", "n1", "a4", "b2"]);
}

#[test]
fn a_level_within_its_share_keeps_its_places() {
    // Of four places, high has a share of three beside one of low.
    let mut room = Room::new(weighted(Discipline::Fifo).max_size(4));
    for name in ["low 1", "low 2", "low 3", "low 4"] {
        room.waits(name, level(LOW));
    }
    for (name, displaced) in [
        ("high 1", "low 4"),
        ("high 2", "low 3"),
        ("high 3", "low 2"),
    ] {
        assert_eq!(room.arrive(name, 0, level(HIGH)), Ok(vec![displaced]));
    }
    for urgency in [HIGH, NORMAL, LOW] {
        let full = Err(RejectReason::Full);
        assert_eq!(room.arrive("late", 0, level(urgency)), full);
    }
}

#[test]
fn waiters_keep_their_levels_when_weights_come_and_go() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let strict = || config(|c| c.discipline = discipline);
        let mut room = Room::new(strict());
        for (name, number) in [("n1", NORMAL), ("n2", NORMAL), ("h1", HIGH), ("h2", HIGH)] {
            room.waits(name, level(number));
        }
        room.reconfigure(strict().level_weight("normal", 4));
        assert_eq!(room.next(0), Some("n1"));
        room.reconfigure(strict());
        assert_eq!(room.served(), ["h1", "h2", "n2"]);
    }
}

#[test]
fn levels_stay_strict_in_a_partition_by_deadline() {
    let mut room = LaneRoom::with_config(weighted(Discipline::Fifo), &[0], &[vec![0]]);
    room.pools
        .set_partition(0, Partition::default().discipline(Discipline::Deadline));
    for priority in [NORMAL, NORMAL, HIGH, HIGH, HIGH, HIGH] {
        room.arrive_at(Priority(priority), 0, "").unwrap();
    }
    let positions = (0..6).map(|number| room.inner.position(room.ids[&number]));
    let positions: Vec<_> = positions.flatten().collect();
    assert_eq!(positions, [5, 6, 1, 2, 3, 4]);
}

#[test]
fn each_lane_has_a_share_for_each_of_its_levels() {
    let mut room = LaneRoom::with_config(
        weighted(Discipline::Fifo),
        &[1],
        &[vec![0], vec![0], vec![0]],
    );
    let slot = room.arrive(0, "").unwrap();
    for lane in 0..3 {
        for _ in 0..12 {
            room.arrive_at(Priority(HIGH), lane, "").unwrap();
        }
    }
    for _ in 0..12 {
        room.arrive_at(Priority(NORMAL), 0, "").unwrap();
    }
    // Three shares of 3, and one of 1.
    let served = room.served(slot);
    let normal = served[..40].iter().filter(|&&number| number > 36);
    assert_eq!(normal.count(), 4);
}

const NAMES: [&str; 3] = ["high", "normal", "low"];

/// A waiter of this level: the first letter of its name says which.
fn waits(room: &mut Room, nth: usize, number: usize, cost: u32) {
    let name = format!("{nth} {number}").leak();
    room.waits(name, |t| level(nth as u8)(t).cost(cost));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_level_has_its_share_within_one_request(
        discipline in prop::sample::select(vec![Discipline::Fifo, Discipline::Fair]),
        weights in prop::array::uniform3(1u32..8),
        // How many wait at a time, and the cost of each.
        asks in prop::array::uniform3((1usize..4, 1u32..5)),
    ) {
        let mut config = config(|c| c.discipline = discipline);
        for (name, weight) in NAMES.into_iter().zip(weights) {
            config = config.level_weight(name, weight);
        }
        let mut room = Room::new(config);
        for (nth, (waiting, cost)) in asks.into_iter().enumerate() {
            (0..waiting).for_each(|number| waits(&mut room, nth, number, cost));
        }
        let cost = |nth: usize| match discipline {
            Discipline::Fair => f64::from(asks[nth].1),
            _ => 1.0,
        };
        let mut had = [0.0; 3];
        for number in 10..200 {
            let name = room.next(0).unwrap();
            let nth: usize = name[..1].parse().unwrap();
            had[nth] += cost(nth);
            // All levels go on waiting.
            waits(&mut room, nth, number, asks[nth].1);
            let by_weight = |nth: usize, had: f64| had / f64::from(weights[nth]);
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                // The bound of self-clocked fair queueing: a request of each.
                let bound = by_weight(a, cost(a)) + by_weight(b, cost(b));
                let apart = (by_weight(a, had[a]) - by_weight(b, had[b])).abs();
                prop_assert!(apart <= bound + 1e-6, "{had:?}: {apart} > {bound}");
            }
        }
    }
}

#[test]
fn no_level_starves() {
    let mut room = Room::new(weighted(Discipline::Fifo));
    waits(&mut room, 0, 0, 1);
    room.waits("low", level(LOW));
    // A high waiter comes for each that is served.
    let mut served = 0;
    while room.next(0) != Some("low") {
        served += 1;
        waits(&mut room, 0, served, 1);
    }
    assert_eq!(served, 3);
}
