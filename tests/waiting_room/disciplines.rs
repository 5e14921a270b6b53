//! Disciplines: what all have in common, and the order of each.

use std::time::Duration;

use tower_triage::Discipline::{self, Deadline, Fair, Fifo};
use tower_triage::admit::WakeList;
use tower_triage::{Ticket, WaitingRoomConfig};

use super::scenarios::{HIGH, LOW, NORMAL, Room, config, level};

const ALL: [Discipline; 3] = [Fifo, Fair, Deadline];

fn in_order_of(discipline: Discipline) -> WaitingRoomConfig {
    config(|c| c.discipline = discipline)
}

fn each(scenario: impl Fn(Room)) {
    for discipline in ALL {
        scenario(Room::new(in_order_of(discipline)));
    }
}

#[test]
fn one_tenant_without_deadlines_is_served_in_arrival_order() {
    each(|mut room| {
        room.all_wait(&["a", "b", "c", "d"], "");
        assert_eq!(room.served(), ["a", "b", "c", "d"]);
    });
}

#[test]
fn higher_level_goes_before_share_and_deadline() {
    each(|mut room| {
        room.waits("low", |t| level(LOW)(t.timeout(Duration::from_secs(1))));
        room.waits("normal", |t| {
            level(NORMAL)(t.timeout(Duration::from_secs(2)))
        });
        room.waits("high", |t| level(HIGH)(t.tenant("a".into()).cost(9)));
        assert_eq!(room.served(), ["high", "normal", "low"]);
    });
}

#[test]
fn cancelled_waiters_neither_run_nor_block() {
    each(|mut room| {
        room.all_wait(&["a", "b", "c", "d"], "");
        for name in ["a", "c", "d"] {
            room.cancel(name);
        }
        assert_eq!(room.served(), ["b"]);
        assert!(room.room.is_empty());
    });
}

#[test]
fn reconfiguring_to_the_same_keeps_the_order() {
    for discipline in ALL {
        let config = config(|c| {
            c.discipline = discipline;
            c.weights.insert("a".into(), 2);
        });
        let [mut left_alone, mut changed] = [(); 2].map(|()| Room::new(config.clone()));
        for room in [&mut left_alone, &mut changed] {
            room.all_wait(&["a1", "a2", "a3", "a4"], "a");
            room.all_wait(&["b1", "b2", "b3"], "b");
        }
        while let Some(next) = left_alone.next(0) {
            assert_eq!(changed.next(0), Some(next), "{discipline:?}");
            assert_eq!(changed.reconfigure(config.clone()), []);
        }
    }
}

#[test]
fn each_discipline_serves_in_its_own_order() {
    let seconds = Duration::from_secs;
    let orders = [
        (Fifo, ["a1", "a2", "b1", "a3", "b2"]),
        (Fair, ["a1", "b1", "a2", "b2", "a3"]),
        (Deadline, ["a3", "b1", "a1", "b2", "a2"]),
    ];
    for (discipline, order) in orders {
        let mut room = Room::new(in_order_of(discipline));
        let of = |tenant: &'static str, end| {
            move |t: Ticket| t.tenant(tenant.into()).timeout(seconds(end))
        };
        room.waits("a1", of("a", 30));
        room.waits("a2", |t| t.tenant("a".into()));
        room.waits("b1", of("b", 20));
        room.waits("a3", of("a", 10));
        room.waits("b2", of("b", 30));
        assert_eq!(room.served(), order, "{discipline:?}");
    }
}

#[test]
fn change_of_discipline_reorders_waiters() {
    let mut room = Room::new(in_order_of(Fifo));
    room.all_wait(&["a1", "a2", "a3"], "a");
    room.waits("b1", |t| {
        t.tenant("b".into()).timeout(Duration::from_secs(9))
    });
    room.reconfigure(in_order_of(Fair));
    assert_eq!(room.next(0), Some("a1"));
    assert_eq!(room.position("b1"), Some(1));
    room.reconfigure(in_order_of(Fifo));
    assert_eq!(room.position("b1"), Some(3));
    room.reconfigure(in_order_of(Deadline));
    assert_eq!(room.served(), ["b1", "a2", "a3"]);
}

#[test]
fn client_retries_go_behind_first_attempts_of_their_level() {
    each(|mut room| {
        let again = Ticket::client_retry;
        room.waits("retry 1", again);
        room.waits("first 1", |ticket| ticket);
        room.waits("low", level(LOW));
        room.waits("retry 2", again);
        room.waits("first 2", |ticket| ticket);
        let order = ["first 1", "first 2", "retry 1", "retry 2", "low"];
        for (nth, name) in order.into_iter().enumerate() {
            assert_eq!(room.position(name), Some(nth + 1), "{name}");
        }
        assert_eq!(room.served(), order);
    });
}

#[test]
fn waits_of_client_retries_end_in_time() {
    let config = config(|c| c.max_wait = Some(Duration::from_secs(5)));
    let mut room = Room::new(config);
    room.waits("retry", Ticket::client_retry);
    room.waits("first", |ticket| ticket);
    let end = room.room.next_timeout();
    assert_eq!(end, Some(room.at(5)));
    let mut wakes = WakeList::new();
    room.room.advance(room.at(5), &mut wakes);
    assert!(room.room.is_empty());
}
