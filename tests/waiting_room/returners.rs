//! Who had a slot, failed, and comes back stands where it would if it had never had one.

use std::time::Instant;

use tower_triage::{Discipline, RejectReason, Ticket};

use super::scenarios::{HIGH, LOW, NORMAL, Room, config, level};

/// It first arrived at `arrival`, and comes back.
fn back(arrival: Instant) -> impl FnOnce(Ticket) -> Ticket {
    move |mut ticket| {
        ticket.arrival = Some(arrival);
        ticket.requeued()
    }
}

/// Three who came one second after the other, the first of whom is served.
fn one_of_three(discipline: Discipline) -> Room {
    let mut room = Room::new(config(|c| (c.discipline, c.max_size) = (discipline, 4)));
    for (seconds, name) in [(1, "a"), (2, "b"), (3, "c")] {
        room.arrive(name, seconds, |t| t).unwrap();
    }
    assert_eq!(room.next(4), Some("a"));
    room
}

#[test]
fn who_comes_back_stands_before_all_who_came_later() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let mut room = one_of_three(discipline);
        let came = room.at(1);
        room.arrive("a again", 5, back(came)).unwrap();
        assert_eq!(room.position("a again"), Some(1), "{discipline:?}");
        assert_eq!(room.served(), ["a again", "b", "c"], "{discipline:?}");
    }
}

#[test]
fn who_comes_back_stands_behind_all_who_came_before_or_with_it() {
    let mut room = one_of_three(Discipline::Fifo);
    let came = room.at(2);
    room.arrive("x again", 5, back(came)).unwrap();
    room.arrive("y again", 5, back(came)).unwrap();
    assert_eq!(room.served(), ["b", "x again", "y again", "c"]);
}

#[test]
fn who_comes_back_stands_before_who_was_handed_in_later_and_says_no_more() {
    for cost in [1, 2] {
        let mut room = Room::new(config(|c| c.max_size = 4));
        let undated = |mut ticket: Ticket| {
            ticket.arrival = None;
            ticket.cost(cost)
        };
        room.arrive("a", 1, undated).unwrap();
        room.arrive("b", 3, undated).unwrap();
        let came = room.at(2);
        room.arrive("again", 5, back(came)).unwrap();
        assert_eq!(room.served(), ["a", "again", "b"], "of cost {cost}");
    }
}

#[test]
fn who_does_not_come_back_stands_last_whatever_its_ticket_says() {
    let mut room = one_of_three(Discipline::Fifo);
    let came = room.at(1);
    let came_elsewhere = |mut t: Ticket| {
        t.arrival = Some(came);
        t
    };
    room.arrive("d", 5, came_elsewhere).unwrap();
    assert_eq!(room.served(), ["b", "c", "d"]);
}

#[test]
fn one_from_the_future_stands_by_when_it_was_handed_in() {
    let mut room = Room::new(config(|c| c.max_size = 4));
    let (far, came) = (room.at(1_000), room.at(2));
    let from_the_future = |mut ticket: Ticket| {
        ticket.arrival = Some(far);
        ticket
    };
    room.arrive("a", 1, |t| t).unwrap();
    room.arrive("b", 1, from_the_future).unwrap();
    room.arrive("again", 3, back(came)).unwrap();
    assert_eq!(room.served(), ["a", "b", "again"]);
}

#[test]
fn who_comes_back_comes_from_no_future() {
    let mut room = one_of_three(Discipline::Fifo);
    let far = room.at(1_000);
    room.arrive("again", 5, back(far)).unwrap();
    room.arrive("d", 6, |t| t).unwrap();
    assert_eq!(room.served(), ["b", "c", "again", "d"]);
}

#[test]
fn who_comes_back_holds_up_nobody_who_came_before_it() {
    let mut room = one_of_three(Discipline::Fifo);
    let [came, before] = [5, 4].map(|seconds| room.at(seconds));
    room.arrive("again", 5, back(came)).unwrap();
    let came_elsewhere = |mut t: Ticket| {
        t.arrival = Some(before);
        t
    };
    room.arrive("d", 5, came_elsewhere).unwrap();
    assert_eq!(room.served(), ["b", "c", "d", "again"]);
}

#[test]
fn who_comes_back_goes_before_no_higher_level() {
    let mut room = one_of_three(Discipline::Fifo);
    room.arrive("high", 4, level(HIGH)).unwrap();
    let came = room.at(1);
    room.arrive("low again", 5, |t| level(LOW)(back(came)(t)))
        .unwrap();
    assert_eq!(room.served(), ["high", "b", "c", "low again"]);
}

#[test]
fn a_tenant_that_comes_back_pays_again() {
    let mut room = Room::new(config(|c| c.discipline = Discipline::Fair));
    for (seconds, name) in [(1, "a1"), (2, "a2"), (3, "b1"), (4, "b2")] {
        room.arrive(name, seconds, |t| t.tenant(name[..1].to_owned().into()))
            .unwrap();
    }
    assert_eq!(room.next(5), Some("a1"));
    let came = room.at(1);
    room.arrive("a1 again", 5, |t| back(came)(t.tenant("a".into())))
        .unwrap();
    assert_eq!(room.served(), ["b1", "a1 again", "b2", "a2"]);
}

#[test]
fn of_those_who_must_go_who_comes_back_is_not_the_latest() {
    let mut room = one_of_three(Discipline::Fifo);
    let came = room.at(1);
    room.arrive("a again", 5, back(came)).unwrap();
    let answered = room.reconfigure(config(|c| c.max_size = 1));
    assert_eq!(
        answered,
        [("c", RejectReason::Full), ("b", RejectReason::Full)]
    );

    let mut room = one_of_three(Discipline::Fifo);
    room.reconfigure(config(|c| (c.max_size, c.displace) = (3, true)));
    room.arrive("a again", 5, back(came)).unwrap();
    let displaced = room.arrive("high", 6, level(HIGH));
    assert_eq!(displaced, Ok(vec!["c"]));
}

#[test]
fn a_full_room_is_full_for_who_comes_back() {
    let mut room = one_of_three(Discipline::Fifo);
    room.reconfigure(config(|c| c.max_size = 2));
    let came = room.at(1);
    let again = |t| level(NORMAL)(back(came)(t));
    assert_eq!(room.arrive("a again", 5, again), Err(RejectReason::Full));
}
