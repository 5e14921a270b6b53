//! What it costs when a thousand models wait, and what is left when they have gone.

use std::time::{Duration, Instant};

use tower_triage::admit::{AdmitOutcome, WaiterId, WaitingRoom, WakeList};
use tower_triage::admit::{Partition, PoolId, Tenant};
use tower_triage::{Discipline, Priority, Ticket};

use super::scenarios::config;
use super::wards::{Treats, Wards};

const MANY: usize = 1_000;

fn hall(
    lanes: Vec<Treats>,
    discipline: Discipline,
) -> (WaitingRoom<Wards, usize>, Wards, Vec<WaiterId>) {
    hall_of(lanes, discipline, |_| Partition::default())
}

fn hall_of(
    lanes: Vec<Treats>,
    discipline: Discipline,
    section: impl Fn(usize) -> Partition,
) -> (WaitingRoom<Wards, usize>, Wards, Vec<WaiterId>) {
    let wards = lanes.iter().flatten().max().map_or(0, |ward| ward + 1);
    let wards = Wards::new(&vec![0; wards], &lanes);
    (0..lanes.len()).for_each(|lane| wards.set_section(lane, section(lane)));
    let now = Instant::now();
    let config = config(|c| (c.max_size, c.discipline) = (MANY, discipline));
    let mut room = WaitingRoom::new(config, now);
    let mut keys = Vec::new();
    for lane in 0..lanes.len() {
        let ticket = Ticket::new(Priority::HIGHEST, now);
        let AdmitOutcome::Queued(key) =
            room.arrive(&wards, ticket, lane, now, &mut WakeList::new())
        else {
            panic!("no ward has a bed");
        };
        room.set_waker(key, lane).unwrap();
        keys.push(key);
    }
    (room, wards, keys)
}

/// One bed of a ward becomes free; who is told, and how often a bed was asked for.
fn asked_by_one_release(
    room: &mut WaitingRoom<Wards, usize>,
    wards: &Wards,
    ward: usize,
) -> (Vec<usize>, usize) {
    wards.set_beds(ward, 1);
    wards.asked();
    let mut woken = WakeList::new();
    room.on_release(wards, PoolId(ward as u32), Instant::now(), &mut woken);
    (woken.into_iter().collect(), wards.asked())
}

#[test]
fn a_release_asks_for_one_of_the_lanes_that_it_can_serve() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let all_on_one = vec![vec![0]; MANY];
        let all_elsewhere = (0..MANY)
            .map(|lane| vec![usize::from(lane + 1 < MANY)])
            .collect();
        let each_differently = (0..MANY).map(|lane| vec![0, lane + 1]).collect();
        let first_and_last: [(Vec<Treats>, usize); 3] = [
            (all_on_one, 0),
            (all_elsewhere, MANY - 1),
            (each_differently, 0),
        ];
        for (lanes, served) in first_and_last {
            let (mut room, wards, _) = hall(lanes, discipline);
            assert_eq!(
                asked_by_one_release(&mut room, &wards, 0),
                (vec![served], 1)
            );
        }
    }
}

#[test]
fn a_release_asks_for_one_lane_whatever_their_sections() {
    let section = |lane: usize| Partition {
        id: lane as u32,
        max_size: Some(1),
        discipline: [Discipline::Fifo, Discipline::Fair, Discipline::Deadline]
            .get(lane % 4)
            .copied(),
    };
    let (mut room, wards, _) = hall_of(vec![vec![0]; MANY], Discipline::Fifo, section);
    assert_eq!(asked_by_one_release(&mut room, &wards, 0), (vec![0], 1));
    wards.set_beds(0, 0);
    wards.asked();
    room.on_release(&wards, PoolId(0), Instant::now(), &mut WakeList::new());
    assert_eq!(wards.asked(), 3, "one of each discipline, if there is none");
}

#[test]
fn an_arrival_asks_for_itself_only() {
    let lanes: Vec<Treats> = (0..MANY).map(|lane| vec![0, lane + 1]).collect();
    let (room, wards, _) = hall(lanes, Discipline::Fifo);
    assert_eq!(room.len(), MANY);
    assert!(wards.asked() <= 2 * MANY, "once, or twice if nobody waited");
}

#[test]
fn a_lane_that_is_busy_beside_a_free_slot_holds_up_nobody() {
    let (mut room, wards, _) = hall(vec![vec![0, 1], vec![0], vec![0]], Discipline::Fifo);
    // The first lane's ward is not what the room was told: no bed there will do.
    wards.set_treats(0, vec![1]);
    assert_eq!(asked_by_one_release(&mut room, &wards, 0).0, [1]);
}

#[test]
fn a_slot_that_comes_back_during_a_pump_is_the_better_waiters() {
    let (mut room, wards, _) = hall(vec![vec![0], vec![0, 1]], Discipline::Fifo);
    wards.late_bed(0);
    let mut woken = WakeList::new();
    room.on_release(&wards, PoolId(0), Instant::now(), &mut woken);
    assert_eq!(woken.into_iter().collect::<Vec<_>>(), [0]);
}

#[test]
fn a_slot_that_comes_back_during_a_pump_is_the_better_waiters_of_another_discipline() {
    for (first, second) in [
        (Discipline::Fair, Discipline::Fifo),
        (Discipline::Fifo, Discipline::Deadline),
    ] {
        let section = |lane: usize| Partition {
            id: lane as u32,
            max_size: None,
            discipline: [first, second].get(lane).copied(),
        };
        let lanes = vec![vec![0], vec![0, 1]];
        let (mut room, wards, _) = hall_of(lanes, Discipline::Fifo, section);
        wards.late_bed(0);
        let mut woken = WakeList::new();
        room.on_release(&wards, PoolId(0), Instant::now(), &mut woken);
        assert_eq!(woken.into_iter().collect::<Vec<_>>(), [0]);
    }
}

#[test]
fn a_lane_with_a_new_ward_finds_its_bed_before_the_room_is_told() {
    let (mut room, wards, keys) = hall(vec![vec![0], vec![1]], Discipline::Fifo);
    wards.set_treats(0, vec![1]);
    wards.set_beds(1, 3);
    let mut woken = WakeList::new();
    let (ticket, now) = (
        Ticket::new(Priority::HIGHEST, Instant::now()),
        Instant::now(),
    );
    assert!(matches!(
        room.arrive(&wards, ticket, 0, now, &mut woken),
        AdmitOutcome::Leased(_)
    ));
    assert!(
        keys.iter().all(|&key| room.position(key).is_none()),
        "nobody was passed over"
    );
}

#[test]
fn empty_lanes_are_forgotten() {
    let wards = Wards::new(&[0], &vec![vec![0]; MANY + 1]);
    let now = Instant::now();
    let mut room: WaitingRoom<Wards, usize> = WaitingRoom::new(
        config(|c| {
            (c.max_size, c.discipline) = (MANY, Discipline::Fair);
            (c.max_size_per_tenant, c.promote_after) = (Some(9), Some(Duration::from_secs(9)));
        }),
        now,
    );
    for _ in 0..3 {
        let mut keys = Vec::new();
        for lane in 0..MANY {
            let ticket = Ticket::new(Priority(2), now)
                .tenant(Tenant::from(lane.to_string()))
                .timeout(Duration::from_secs(1));
            match room.arrive(&wards, ticket, lane, now, &mut WakeList::new()) {
                AdmitOutcome::Queued(key) => keys.push(key),
                other => panic!("{other:?}"),
            }
        }
        for (nth, key) in keys.into_iter().enumerate() {
            match nth % 2 {
                0 => drop(room.cancel(key)),
                _ => {
                    room.advance(now + Duration::from_secs(1), &mut WakeList::new());
                    assert!(room.take_outcome(key).unwrap().is_err());
                }
            }
        }
        assert_eq!(room.len(), 0);
    }
    let ticket = Ticket::new(Priority(2), now);
    let _ = room.arrive(&wards, ticket, MANY, now, &mut WakeList::new());
    assert_eq!(wards.lanes_remembered(), 1);
}
