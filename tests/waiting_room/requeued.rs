//! Requeued requests, which keep the place of their first arrival.

use std::time::Instant;

use tower_triage::{Discipline, RejectReason, Ticket};

use super::scenarios::{HIGH, LOW, NORMAL, Room, config, level};

/// The ticket of a requeued request that first arrived at `arrival`.
fn requeued(arrival: Instant) -> impl FnOnce(Ticket) -> Ticket {
    move |mut ticket| {
        ticket.arrival = Some(arrival);
        ticket.requeued()
    }
}

/// A room with b and c, which arrived after 2 s and 3 s; a arrived after 1 s and is being served.
fn one_of_three(discipline: Discipline) -> Room {
    let mut room = Room::new(config(|c| (c.discipline, c.max_size) = (discipline, 4)));
    for (seconds, name) in [(1, "a"), (2, "b"), (3, "c")] {
        room.arrive(name, seconds, |t| t).unwrap();
    }
    assert_eq!(room.next(4), Some("a"));
    room
}

#[test]
fn requeued_request_goes_before_later_arrivals() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let mut room = one_of_three(discipline);
        let arrival = room.at(1);
        room.arrive("a again", 5, requeued(arrival)).unwrap();
        assert_eq!(room.position("a again"), Some(1), "{discipline:?}");
        assert_eq!(room.served(), ["a again", "b", "c"], "{discipline:?}");
    }
}

#[test]
fn requeued_request_goes_behind_earlier_and_equal_arrivals() {
    let mut room = one_of_three(Discipline::Fifo);
    let arrival = room.at(2);
    room.arrive("x again", 5, requeued(arrival)).unwrap();
    room.arrive("y again", 5, requeued(arrival)).unwrap();
    assert_eq!(room.served(), ["b", "x again", "y again", "c"]);
}

#[test]
fn requeued_request_goes_before_later_undated_tickets() {
    for cost in [1, 2] {
        let mut room = Room::new(config(|c| c.max_size = 4));
        let undated = |mut ticket: Ticket| {
            ticket.arrival = None;
            ticket.cost(cost)
        };
        room.arrive("a", 1, undated).unwrap();
        room.arrive("b", 3, undated).unwrap();
        let arrival = room.at(2);
        room.arrive("again", 5, requeued(arrival)).unwrap();
        assert_eq!(room.served(), ["a", "again", "b"], "of cost {cost}");
    }
}

#[test]
fn early_arrival_without_requeue_goes_last() {
    let mut room = one_of_three(Discipline::Fifo);
    let arrival = room.at(1);
    let from_elsewhere = |mut t: Ticket| {
        t.arrival = Some(arrival);
        t
    };
    room.arrive("d", 5, from_elsewhere).unwrap();
    assert_eq!(room.served(), ["b", "c", "d"]);
}

#[test]
fn arrival_from_the_future_counts_as_now() {
    let mut room = Room::new(config(|c| c.max_size = 4));
    let (far, arrival) = (room.at(1_000), room.at(2));
    let from_the_future = |mut ticket: Ticket| {
        ticket.arrival = Some(far);
        ticket
    };
    room.arrive("a", 1, |t| t).unwrap();
    room.arrive("b", 1, from_the_future).unwrap();
    room.arrive("again", 3, requeued(arrival)).unwrap();
    assert_eq!(room.served(), ["a", "b", "again"]);
}

#[test]
fn requeued_arrival_from_the_future_counts_as_now() {
    let mut room = one_of_three(Discipline::Fifo);
    let far = room.at(1_000);
    room.arrive("again", 5, requeued(far)).unwrap();
    room.arrive("d", 6, |t| t).unwrap();
    assert_eq!(room.served(), ["b", "c", "again", "d"]);
}

#[test]
fn requeued_request_does_not_raise_later_arrivals() {
    let mut room = one_of_three(Discipline::Fifo);
    let [arrival, before] = [5, 4].map(|seconds| room.at(seconds));
    room.arrive("again", 5, requeued(arrival)).unwrap();
    let from_elsewhere = |mut t: Ticket| {
        t.arrival = Some(before);
        t
    };
    room.arrive("d", 5, from_elsewhere).unwrap();
    assert_eq!(room.served(), ["b", "c", "d", "again"]);
}

#[test]
fn requeued_request_goes_behind_higher_levels() {
    let mut room = one_of_three(Discipline::Fifo);
    room.arrive("high", 4, level(HIGH)).unwrap();
    let arrival = room.at(1);
    room.arrive("low again", 5, |t| level(LOW)(requeued(arrival)(t)))
        .unwrap();
    assert_eq!(room.served(), ["high", "b", "c", "low again"]);
}

#[test]
fn requeued_request_is_charged_again() {
    let mut room = Room::new(config(|c| c.discipline = Discipline::Fair));
    for (seconds, name) in [(1, "a1"), (2, "a2"), (3, "b1"), (4, "b2")] {
        room.arrive(name, seconds, |t| t.tenant(name[..1].to_owned().into()))
            .unwrap();
    }
    assert_eq!(room.next(5), Some("a1"));
    let arrival = room.at(1);
    room.arrive("a1 again", 5, |t| requeued(arrival)(t.tenant("a".into())))
        .unwrap();
    assert_eq!(room.served(), ["b1", "a1 again", "b2", "a2"]);
}

#[test]
fn requeued_request_is_not_evicted_as_the_latest() {
    let mut room = one_of_three(Discipline::Fifo);
    let arrival = room.at(1);
    room.arrive("a again", 5, requeued(arrival)).unwrap();
    let answered = room.reconfigure(config(|c| c.max_size = 1));
    assert_eq!(
        answered,
        [("c", RejectReason::Full), ("b", RejectReason::Full)]
    );

    let mut room = one_of_three(Discipline::Fifo);
    room.reconfigure(config(|c| (c.max_size, c.displace) = (3, true)));
    room.arrive("a again", 5, requeued(arrival)).unwrap();
    let displaced = room.arrive("high", 6, level(HIGH));
    assert_eq!(displaced, Ok(vec!["c"]));
}

#[test]
fn full_room_has_a_place_for_a_requeued_request() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        for displace in [false, true] {
            let mut room = one_of_three(discipline);
            room.reconfigure(config(|c| {
                (c.discipline, c.max_size, c.displace) = (discipline, 2, displace);
            }));
            let arrival = room.at(1);
            assert_eq!(room.arrive("d", 5, level(NORMAL)), Err(RejectReason::Full));
            // It displaces no other waiter, whatever the levels.
            let again = |t| level(HIGH)(requeued(arrival)(t));
            assert_eq!(room.arrive("a again", 5, again), Ok(vec![]));
            // It takes the place of the next arrival.
            assert_eq!(room.next(6), Some("a again"));
            assert_eq!(room.arrive("e", 6, level(NORMAL)), Err(RejectReason::Full));
            assert_eq!(room.next(7), Some("b"));
            room.arrive("f", 7, level(NORMAL)).unwrap();
            assert_eq!(room.served(), ["c", "f"], "{discipline:?}");
        }
    }
}

#[test]
fn requeued_request_is_displaced_after_later_arrivals_only() {
    let mut room = one_of_three(Discipline::Fifo);
    room.reconfigure(config(|c| (c.max_size, c.displace) = (2, true)));
    let arrival = room.at(1);
    room.arrive("a again", 5, requeued(arrival)).unwrap();
    for (name, displaced) in [("1", "c"), ("2", "b"), ("3", "a again")] {
        let high = room.arrive(name, 6, level(HIGH));
        assert_eq!(high, Ok(vec![displaced]));
    }
}
