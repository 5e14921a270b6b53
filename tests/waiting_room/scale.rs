//! The cost of a thousand lanes: how often the capacity is asked, and what is kept of empty lanes.

use std::time::{Duration, Instant};

use tower_triage::admit::{
    AdmitOutcome, Partition, PoolId, Tenant, WaiterId, WaitingRoom, WakeList,
};
use tower_triage::{Discipline, Priority, Ticket};

use super::pools::{Serves, TestPools};
use super::scenarios::config;

const MANY: usize = 1_000;

fn waiting(
    lanes: Vec<Serves>,
    discipline: Discipline,
) -> (WaitingRoom<TestPools, usize>, TestPools, Vec<WaiterId>) {
    waiting_in(lanes, discipline, |_| Partition::default())
}

fn waiting_in(
    lanes: Vec<Serves>,
    discipline: Discipline,
    partition: impl Fn(usize) -> Partition,
) -> (WaitingRoom<TestPools, usize>, TestPools, Vec<WaiterId>) {
    let pools = lanes.iter().flatten().max().map_or(0, |pool| pool + 1);
    let pools = TestPools::new(&vec![0; pools], &lanes);
    (0..lanes.len()).for_each(|lane| pools.set_partition(lane, partition(lane)));
    let now = Instant::now();
    let config = config(|c| (c.max_size, c.discipline) = (MANY, discipline));
    let mut room = WaitingRoom::new(config, now);
    let mut ids = Vec::new();
    for lane in 0..lanes.len() {
        let ticket = Ticket::new(Priority::HIGHEST, now);
        let AdmitOutcome::Queued(id) = room.arrive(&pools, ticket, lane, now, &mut WakeList::new())
        else {
            panic!("no pool has a slot");
        };
        room.set_waker(id, lane).unwrap();
        ids.push(id);
    }
    (room, pools, ids)
}

/// Frees one slot of a pool. Returns the waiters that were woken, and how often the capacity was asked.
fn asked_by_one_release(
    room: &mut WaitingRoom<TestPools, usize>,
    pools: &TestPools,
    pool: usize,
) -> (Vec<usize>, usize) {
    pools.set_slots(pool, 1);
    pools.asked();
    let mut wakes = WakeList::new();
    room.on_release(pools, PoolId(pool as u32), Instant::now(), &mut wakes);
    (wakes.into_iter().collect(), pools.asked())
}

#[test]
fn release_asks_the_capacity_for_one_lane() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let all_on_one = vec![vec![0]; MANY];
        let all_elsewhere = (0..MANY)
            .map(|lane| vec![usize::from(lane + 1 < MANY)])
            .collect();
        let each_differently = (0..MANY).map(|lane| vec![0, lane + 1]).collect();
        let first_and_last: [(Vec<Serves>, usize); 3] = [
            (all_on_one, 0),
            (all_elsewhere, MANY - 1),
            (each_differently, 0),
        ];
        for (lanes, served) in first_and_last {
            let (mut room, pools, _) = waiting(lanes, discipline);
            assert_eq!(
                asked_by_one_release(&mut room, &pools, 0),
                (vec![served], 1)
            );
        }
    }
}

#[test]
fn release_asks_for_one_lane_across_partitions() {
    let partition = |lane: usize| {
        let disciplines = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];
        let discipline = disciplines.get(lane % 4).copied();
        Partition::new(lane as u32)
            .max_size(1)
            .discipline(discipline)
    };
    let (mut room, pools, _) = waiting_in(vec![vec![0]; MANY], Discipline::Fifo, partition);
    assert_eq!(asked_by_one_release(&mut room, &pools, 0), (vec![0], 1));
    pools.set_slots(0, 0);
    pools.asked();
    room.on_release(&pools, PoolId(0), Instant::now(), &mut WakeList::new());
    assert_eq!(pools.asked(), 3, "one of each discipline, if there is none");
}

#[test]
fn arrival_asks_only_for_its_own_lane() {
    let lanes: Vec<Serves> = (0..MANY).map(|lane| vec![0, lane + 1]).collect();
    let (room, pools, _) = waiting(lanes, Discipline::Fifo);
    assert_eq!(room.len(), MANY);
    assert!(pools.asked() <= 2 * MANY, "once, or twice if none waited");
}

#[test]
fn lane_busy_beside_a_free_slot_blocks_no_other() {
    let (mut room, pools, _) = waiting(vec![vec![0, 1], vec![0], vec![0]], Discipline::Fifo);
    // The room still takes pool 0 to serve lane 0.
    pools.set_serves(0, vec![1]);
    assert_eq!(asked_by_one_release(&mut room, &pools, 0).0, [1]);
}

#[test]
fn slot_released_during_a_pump_goes_to_the_better_waiter() {
    let (mut room, pools, _) = waiting(vec![vec![0], vec![0, 1]], Discipline::Fifo);
    pools.late_slot(0);
    let mut wakes = WakeList::new();
    room.on_release(&pools, PoolId(0), Instant::now(), &mut wakes);
    assert_eq!(wakes.into_iter().collect::<Vec<_>>(), [0]);
}

#[test]
fn slot_released_during_a_pump_crosses_disciplines() {
    for (first, second) in [
        (Discipline::Fair, Discipline::Fifo),
        (Discipline::Fifo, Discipline::Deadline),
    ] {
        let partition = |lane: usize| {
            let discipline = [first, second].get(lane).copied();
            Partition::new(lane as u32).discipline(discipline)
        };
        let lanes = vec![vec![0], vec![0, 1]];
        let (mut room, pools, _) = waiting_in(lanes, Discipline::Fifo, partition);
        pools.late_slot(0);
        let mut wakes = WakeList::new();
        room.on_release(&pools, PoolId(0), Instant::now(), &mut wakes);
        assert_eq!(wakes.into_iter().collect::<Vec<_>>(), [0]);
    }
}

#[test]
fn arrival_uses_a_new_pool_before_it_is_announced() {
    let (mut room, pools, ids) = waiting(vec![vec![0], vec![1]], Discipline::Fifo);
    pools.set_serves(0, vec![1]);
    pools.set_slots(1, 3);
    let mut wakes = WakeList::new();
    let (ticket, now) = (
        Ticket::new(Priority::HIGHEST, Instant::now()),
        Instant::now(),
    );
    assert!(matches!(
        room.arrive(&pools, ticket, 0, now, &mut wakes),
        AdmitOutcome::Leased(_)
    ));
    assert!(
        ids.iter().all(|&id| room.position(id).is_none()),
        "no waiter is left behind"
    );
}

#[test]
fn empty_lanes_are_closed() {
    let pools = TestPools::new(&[0], &vec![vec![0]; MANY + 1]);
    let now = Instant::now();
    let mut room: WaitingRoom<TestPools, usize> = WaitingRoom::new(
        config(|c| {
            (c.max_size, c.discipline) = (MANY, Discipline::Fair);
            (c.max_size_per_tenant, c.promote_after) = (Some(9), Some(Duration::from_secs(9)));
        }),
        now,
    );
    for _ in 0..3 {
        let mut ids = Vec::new();
        for lane in 0..MANY {
            let ticket = Ticket::new(Priority(2), now)
                .tenant(Tenant::from(lane.to_string()))
                .timeout(Duration::from_secs(1));
            match room.arrive(&pools, ticket, lane, now, &mut WakeList::new()) {
                AdmitOutcome::Queued(id) => ids.push(id),
                other => panic!("{other:?}"),
            }
        }
        for (nth, id) in ids.into_iter().enumerate() {
            match nth % 2 {
                0 => drop(room.cancel(id, now)),
                _ => {
                    room.advance(now + Duration::from_secs(1), &mut WakeList::new());
                    assert!(room.take_outcome(id).unwrap().is_err());
                }
            }
        }
        assert_eq!(room.len(), 0);
    }
    let ticket = Ticket::new(Priority(2), now);
    let _ = room.arrive(&pools, ticket, MANY, now, &mut WakeList::new());
    assert_eq!(pools.open_lanes(), 1);
}
