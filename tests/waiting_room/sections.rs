//! Parts of the room with chairs and an order of their own: a model each.

use std::time::Duration;

use tower_triage::admit::Partition;
use tower_triage::admit::WakeList;
use tower_triage::{Discipline, Priority, RejectReason, WaitingRoomConfig};

use super::fairness::Hall;
use super::scenarios::{HIGH, LOW, NORMAL, config};
use super::wards::Bed;

/// Models on one ward with one bed, which is taken. Each is a lane, and a section.
fn models(many: usize, config: WaitingRoomConfig) -> (Hall, Bed) {
    let mut hall = Hall::furnished(config, &[1], &vec![vec![0]; many]);
    for lane in 0..many {
        furnish(&hall, lane, |_| ());
    }
    let bed = hall.arrive(0, "").unwrap();
    hall.who.clear();
    (hall, bed)
}

/// The model's section, as the capacity has it; the room has not been told.
fn furnish(hall: &Hall, lane: usize, change: impl FnOnce(&mut Partition)) {
    let mut section = Partition {
        id: lane as u32,
        ..Partition::default()
    };
    change(&mut section);
    hall.wards.set_section(lane, section);
}

fn waits(
    hall: &mut Hall,
    level: u8,
    lane: usize,
) -> Result<Vec<usize>, RejectReason<&'static str>> {
    hall.arrive_at(Priority(level), lane, "")
        .map(|(_, got_up)| got_up)
}

#[test]
fn a_full_section_turns_away_while_another_has_chairs() {
    let (mut hall, bed) = models(2, config(|_| {}));
    furnish(&hall, 0, |s| s.max_size = Some(2));
    for expected in [Ok(vec![]), Ok(vec![]), Err(RejectReason::Full)] {
        assert_eq!(waits(&mut hall, HIGH, 0), expected);
    }
    assert_eq!(waits(&mut hall, LOW, 1), Ok(vec![]));
    hall.release(bed).unwrap();
    assert_eq!(waits(&mut hall, LOW, 0), Ok(vec![]), "one has left");
    assert_eq!(hall.room.stats().full, 1);
}

#[test]
fn sections_have_no_more_chairs_than_the_room() {
    let (mut hall, _) = models(2, config(|c| c.max_size = 3));
    for lane in [0, 1] {
        furnish(&hall, lane, |s| s.max_size = Some(2));
    }
    for (lane, expected) in [(0, Ok(vec![])), (0, Ok(vec![])), (1, Ok(vec![]))] {
        assert_eq!(waits(&mut hall, HIGH, lane), expected);
    }
    assert_eq!(waits(&mut hall, HIGH, 1), Err(RejectReason::Full));
}

#[test]
fn lanes_of_one_section_share_its_chairs() {
    let (mut hall, _) = models(2, config(|_| {}));
    for lane in [0, 1] {
        furnish(&hall, lane, |s| (s.id, s.max_size) = (7, Some(2)));
    }
    assert_eq!(waits(&mut hall, HIGH, 0), Ok(vec![]));
    assert_eq!(waits(&mut hall, HIGH, 1), Ok(vec![]));
    assert_eq!(waits(&mut hall, HIGH, 0), Err(RejectReason::Full));
}

#[test]
fn a_section_without_chairs_lets_nobody_wait() {
    let (mut hall, _) = models(2, config(|_| {}));
    furnish(&hall, 0, |s| s.max_size = Some(0));
    assert_eq!(waits(&mut hall, HIGH, 0), Err(RejectReason::Full));
    assert_eq!(waits(&mut hall, HIGH, 1), Ok(vec![]));
}

#[test]
fn who_finds_its_section_full_takes_a_chair_in_it() {
    let (mut hall, bed) = models(2, config(|c| (c.max_size, c.displace) = (5, true)));
    furnish(&hall, 0, |s| s.max_size = Some(3));
    for (level, lane) in [(LOW, 0), (NORMAL, 0), (LOW, 0), (LOW, 1)] {
        assert_eq!(waits(&mut hall, level, lane), Ok(vec![]));
    }
    assert_eq!(waits(&mut hall, HIGH, 0), Ok(vec![2]));
    assert_eq!(waits(&mut hall, LOW, 0), Err(RejectReason::Full));
    assert_eq!(waits(&mut hall, HIGH, 0), Ok(vec![0]));
    assert_eq!(waits(&mut hall, LOW, 1), Ok(vec![]));
    assert_eq!(waits(&mut hall, HIGH, 1), Ok(vec![7]), "the room is full");
    assert_eq!(hall.served(bed), [4, 6, 8, 1, 3]);
}

#[test]
fn a_smaller_section_sends_away_the_latest_of_its_lowest_level() {
    let (mut hall, bed) = models(2, config(|_| {}));
    for i in 0..12 {
        let level = [NORMAL, LOW, HIGH][i / 2 % 3];
        assert_eq!(waits(&mut hall, level, i % 2), Ok(vec![]));
    }
    furnish(&hall, 0, |s| s.max_size = Some(3));
    let gone = [8, 2, 6].map(|id| (id, RejectReason::Full));
    assert_eq!(hall.rearrange(), gone);
    assert_eq!(hall.served(bed), [4, 5, 10, 11, 0, 1, 7, 3, 9]);
}

#[test]
fn who_rises_stays_in_its_section() {
    let ten = Duration::from_secs(10);
    let (mut hall, _) = models(
        2,
        config(|c| (c.promote_after, c.displace) = (Some(ten), true)),
    );
    furnish(&hall, 0, |s| s.max_size = Some(2));
    for level in [NORMAL, LOW] {
        assert_eq!(waits(&mut hall, level, 0), Ok(vec![]));
    }
    let later = hall.begin + ten;
    hall.room
        .on_capacity_grown(&hall.wards, later, &mut WakeList::new());
    assert_eq!(waits(&mut hall, NORMAL, 0), Err(RejectReason::Full));
    assert_eq!(waits(&mut hall, HIGH, 0), Ok(vec![1]));
}

#[test]
fn a_change_of_discipline_while_twenty_wait_loses_nobody() {
    let (mut hall, mut bed) = models(2, config(|_| {}));
    for i in 0..20 {
        hall.arrive(0, if i < 10 { "a" } else { "b" });
    }
    let mut served = Vec::new();
    for (discipline, expected) in [
        (Discipline::Fifo, [0, 1, 2, 3]),
        (Discipline::Fair, [4, 10, 5, 11]),
        (Discipline::Fifo, [6, 7, 8, 9]),
    ] {
        furnish(&hall, 0, |s| s.discipline = Some(discipline));
        assert_eq!(hall.rearrange(), []);
        for next in expected {
            let position = hall.room.position(hall.keys[&next]);
            assert_eq!(position, Some(1), "{next} under {discipline:?}");
            let (first, again) = hall.release(bed).unwrap();
            assert_eq!(first, next, "{discipline:?}");
            served.push(first);
            bed = again;
        }
    }
    served.extend(hall.served(bed));
    served.sort_unstable();
    assert_eq!(served, Vec::from_iter(0..20));
}

#[test]
fn tenants_of_one_section_take_turns_beside_one_that_does_not_change() {
    let (mut hall, mut bed) = models(2, config(|c| c.discipline = Discipline::Fair));
    for _ in 0..3 {
        hall.arrive(0, "a");
    }
    for _ in 0..3 {
        hall.arrive(0, "b");
    }
    for next in [0, 3, 1] {
        let (first, again) = hall.release(bed).unwrap();
        assert_eq!(first, next);
        bed = again;
    }
    furnish(&hall, 1, |s| s.discipline = Some(Discipline::Fifo));
    assert_eq!(hall.rearrange(), []);
    assert_eq!(hall.served(bed), [4, 2, 5], "it is the turn of b");
}

#[test]
fn of_the_best_of_two_disciplines_the_one_who_came_first_goes_first() {
    let (mut hall, bed) = models(2, config(|_| {}));
    furnish(&hall, 1, |s| s.discipline = Some(Discipline::Fair));
    for (lane, tenant) in [(1, "a"), (0, "a"), (1, "a"), (0, "b"), (1, "b"), (0, "b")] {
        hall.arrive(lane, tenant);
    }
    let order = [0, 1, 3, 4, 2, 5];
    let positions = order.map(|id| hall.room.position(hall.keys[&id]).unwrap());
    assert_eq!(positions, [1, 2, 3, 4, 5, 6]);
    assert_eq!(hall.served(bed), order);
}

#[test]
fn whom_no_slot_can_serve_keeps_none_from_others_of_its_discipline() {
    let config = config(|c| {
        c.weights.insert("heavy".into(), 2);
    });
    let mut hall = Hall::furnished(config, &[0, 0], &[vec![0], vec![0], vec![1]]);
    for lane in [0, 2] {
        furnish(&hall, lane, |s| s.discipline = Some(Discipline::Fair));
    }
    for (lane, tenant) in [(0, "light"), (1, "light"), (2, "heavy")] {
        assert!(hall.arrive(lane, tenant).is_none());
    }
    hall.wards.set_beds(0, 1);
    let mut woken = WakeList::new();
    hall.room
        .on_capacity_grown(&hall.wards, hall.begin, &mut woken);
    assert_eq!(woken.into_iter().collect::<Vec<_>>(), [0]);
}

#[test]
fn a_higher_level_goes_first_whatever_its_discipline() {
    let (mut hall, bed) = models(2, config(|_| {}));
    furnish(&hall, 1, |s| s.discipline = Some(Discipline::Deadline));
    for (level, lane) in [(LOW, 0), (NORMAL, 1), (HIGH, 0), (HIGH, 1)] {
        assert_eq!(waits(&mut hall, level, lane), Ok(vec![]));
    }
    assert_eq!(hall.served(bed), [2, 3, 1, 0]);
}

#[test]
fn models_that_share_a_pool_take_turns() {
    const MODELS: usize = 10;
    let fair = config(|c| (c.max_size, c.discipline) = (1_000, Discipline::Fair));
    let (mut hall, bed) = models(MODELS, fair);
    for i in 0..50 * MODELS {
        hall.arrive(i / 50, "");
    }
    let served = hall.served(bed);
    let lanes: Vec<usize> = served.iter().map(|&id| hall.who[id].0).collect();
    assert_eq!(lanes, Vec::from_iter(0..MODELS).repeat(50));
}
