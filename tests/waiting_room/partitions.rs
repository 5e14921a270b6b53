//! Partitions of the room with a bound and a discipline of their own.

use std::time::Duration;

use tower_triage::admit::{Partition, WakeList};
use tower_triage::{Discipline, Priority, RejectReason, WaitingRoomConfig};

use super::fairness::LaneRoom;
use super::pools::TestSlot;
use super::scenarios::{HIGH, LOW, NORMAL, config};

/// Lanes on one pool with one slot, which is taken. Each lane has a partition of its own.
fn models(many: usize, config: WaitingRoomConfig) -> (LaneRoom, TestSlot) {
    let mut room = LaneRoom::with_config(config, &[1], &vec![vec![0]; many]);
    for lane in 0..many {
        set_partition(&room, lane, |_| ());
    }
    let slot = room.arrive(0, "").unwrap();
    room.requests.clear();
    (room, slot)
}

/// Changes the lane's partition in the capacity. The room is not told.
fn set_partition(room: &LaneRoom, lane: usize, change: impl FnOnce(&mut Partition)) {
    let mut partition = Partition::new(lane as u32);
    change(&mut partition);
    room.pools.set_partition(lane, partition);
}

fn waits(
    room: &mut LaneRoom,
    level: u8,
    lane: usize,
) -> Result<Vec<usize>, RejectReason<&'static str>> {
    room.arrive_at(Priority(level), lane, "")
        .map(|(_, got_up)| got_up)
}

#[test]
fn full_partition_rejects_while_another_has_room() {
    let (mut room, slot) = models(2, config(|_| {}));
    set_partition(&room, 0, |s| s.max_size = Some(2));
    for expected in [Ok(vec![]), Ok(vec![]), Err(RejectReason::Full)] {
        assert_eq!(waits(&mut room, HIGH, 0), expected);
    }
    assert_eq!(waits(&mut room, LOW, 1), Ok(vec![]));
    room.release(slot).unwrap();
    assert_eq!(waits(&mut room, LOW, 0), Ok(vec![]), "one has left");
    assert_eq!(room.inner.stats().full, 1);
}

#[test]
fn room_bound_holds_over_all_partitions() {
    let (mut room, _) = models(2, config(|c| c.max_size = 3));
    for lane in [0, 1] {
        set_partition(&room, lane, |s| s.max_size = Some(2));
    }
    for (lane, expected) in [(0, Ok(vec![])), (0, Ok(vec![])), (1, Ok(vec![]))] {
        assert_eq!(waits(&mut room, HIGH, lane), expected);
    }
    assert_eq!(waits(&mut room, HIGH, 1), Err(RejectReason::Full));
}

#[test]
fn lanes_of_one_partition_share_its_bound() {
    let (mut room, _) = models(2, config(|_| {}));
    for lane in [0, 1] {
        set_partition(&room, lane, |s| (s.id, s.max_size) = (7, Some(2)));
    }
    assert_eq!(waits(&mut room, HIGH, 0), Ok(vec![]));
    assert_eq!(waits(&mut room, HIGH, 1), Ok(vec![]));
    assert_eq!(waits(&mut room, HIGH, 0), Err(RejectReason::Full));
}

#[test]
fn partition_of_size_zero_lets_none_wait() {
    let (mut room, _) = models(2, config(|_| {}));
    set_partition(&room, 0, |s| s.max_size = Some(0));
    assert_eq!(waits(&mut room, HIGH, 0), Err(RejectReason::Full));
    assert_eq!(waits(&mut room, HIGH, 1), Ok(vec![]));
}

#[test]
fn full_partition_displaces_only_its_own_waiters() {
    let (mut room, slot) = models(2, config(|c| (c.max_size, c.displace) = (5, true)));
    set_partition(&room, 0, |s| s.max_size = Some(3));
    for (level, lane) in [(LOW, 0), (NORMAL, 0), (LOW, 0), (LOW, 1)] {
        assert_eq!(waits(&mut room, level, lane), Ok(vec![]));
    }
    assert_eq!(waits(&mut room, HIGH, 0), Ok(vec![2]));
    assert_eq!(waits(&mut room, LOW, 0), Err(RejectReason::Full));
    assert_eq!(waits(&mut room, HIGH, 0), Ok(vec![0]));
    assert_eq!(waits(&mut room, LOW, 1), Ok(vec![]));
    assert_eq!(waits(&mut room, HIGH, 1), Ok(vec![7]), "the room is full");
    assert_eq!(room.served(slot), [4, 6, 8, 1, 3]);
}

#[test]
fn smaller_partition_evicts_the_lowest_level_latest_first() {
    let (mut room, slot) = models(2, config(|_| {}));
    for i in 0..12 {
        let level = [NORMAL, LOW, HIGH][i / 2 % 3];
        assert_eq!(waits(&mut room, level, i % 2), Ok(vec![]));
    }
    set_partition(&room, 0, |s| s.max_size = Some(3));
    let gone = [8, 2, 6].map(|number| (number, RejectReason::Full));
    assert_eq!(room.on_capacity_changed(), gone);
    assert_eq!(room.served(slot), [4, 5, 10, 11, 0, 1, 7, 3, 9]);
}

#[test]
fn promoted_waiter_stays_in_its_partition() {
    let ten = Duration::from_secs(10);
    let (mut room, _) = models(
        2,
        config(|c| (c.promote_after, c.displace) = (Some(ten), true)),
    );
    set_partition(&room, 0, |s| s.max_size = Some(2));
    for level in [NORMAL, LOW] {
        assert_eq!(waits(&mut room, level, 0), Ok(vec![]));
    }
    let later = room.begin + ten;
    room.inner
        .on_capacity_grown(&room.pools, later, &mut WakeList::new());
    assert_eq!(waits(&mut room, NORMAL, 0), Err(RejectReason::Full));
    assert_eq!(waits(&mut room, HIGH, 0), Ok(vec![1]));
}

#[test]
fn change_of_discipline_loses_no_waiter() {
    let (mut room, mut slot) = models(2, config(|_| {}));
    for i in 0..20 {
        room.arrive(0, if i < 10 { "a" } else { "b" });
    }
    let mut served = Vec::new();
    for (discipline, expected) in [
        (Discipline::Fifo, [0, 1, 2, 3]),
        (Discipline::Fair, [4, 10, 5, 11]),
        (Discipline::Fifo, [6, 7, 8, 9]),
    ] {
        set_partition(&room, 0, |s| s.discipline = Some(discipline));
        assert_eq!(room.on_capacity_changed(), []);
        for next in expected {
            let position = room.inner.position(room.ids[&next]);
            assert_eq!(position, Some(1), "{next} under {discipline:?}");
            let (first, again) = room.release(slot).unwrap();
            assert_eq!(first, next, "{discipline:?}");
            served.push(first);
            slot = again;
        }
    }
    served.extend(room.served(slot));
    served.sort_unstable();
    assert_eq!(served, Vec::from_iter(0..20));
}

#[test]
fn fair_order_survives_a_change_of_another_partition() {
    let (mut room, mut slot) = models(2, config(|c| c.discipline = Discipline::Fair));
    for _ in 0..3 {
        room.arrive(0, "a");
    }
    for _ in 0..3 {
        room.arrive(0, "b");
    }
    for next in [0, 3, 1] {
        let (first, again) = room.release(slot).unwrap();
        assert_eq!(first, next);
        slot = again;
    }
    set_partition(&room, 1, |s| s.discipline = Some(Discipline::Fifo));
    assert_eq!(room.on_capacity_changed(), []);
    assert_eq!(room.served(slot), [4, 2, 5], "b has had less");
}

#[test]
fn across_disciplines_the_earlier_arrival_goes_first() {
    let (mut room, slot) = models(2, config(|_| {}));
    set_partition(&room, 1, |s| s.discipline = Some(Discipline::Fair));
    for (lane, tenant) in [(1, "a"), (0, "a"), (1, "a"), (0, "b"), (1, "b"), (0, "b")] {
        room.arrive(lane, tenant);
    }
    let order = [0, 1, 3, 4, 2, 5];
    let positions = order.map(|number| room.inner.position(room.ids[&number]).unwrap());
    assert_eq!(positions, [1, 2, 3, 4, 5, 6]);
    assert_eq!(room.served(slot), order);
}

#[test]
fn blocked_head_does_not_block_others_of_its_discipline() {
    let config = config(|c| {
        c.weights.insert("heavy".into(), 2);
    });
    let mut room = LaneRoom::with_config(config, &[0, 0], &[vec![0], vec![0], vec![1]]);
    for lane in [0, 2] {
        set_partition(&room, lane, |s| s.discipline = Some(Discipline::Fair));
    }
    for (lane, tenant) in [(0, "light"), (1, "light"), (2, "heavy")] {
        assert!(room.arrive(lane, tenant).is_none());
    }
    room.pools.set_slots(0, 1);
    let mut wakes = WakeList::new();
    room.inner
        .on_capacity_grown(&room.pools, room.begin, &mut wakes);
    assert_eq!(wakes.into_iter().collect::<Vec<_>>(), [0]);
}

#[test]
fn higher_level_goes_first_across_disciplines() {
    let (mut room, slot) = models(2, config(|_| {}));
    set_partition(&room, 1, |s| s.discipline = Some(Discipline::Deadline));
    for (level, lane) in [(LOW, 0), (NORMAL, 1), (HIGH, 0), (HIGH, 1)] {
        assert_eq!(waits(&mut room, level, lane), Ok(vec![]));
    }
    assert_eq!(room.served(slot), [2, 3, 1, 0]);
}

#[test]
fn lanes_that_share_a_pool_are_served_round_robin() {
    const MODELS: usize = 10;
    let fair = config(|c| (c.max_size, c.discipline) = (1_000, Discipline::Fair));
    let (mut room, slot) = models(MODELS, fair);
    for i in 0..50 * MODELS {
        room.arrive(i / 50, "");
    }
    let served = room.served(slot);
    let lanes: Vec<usize> = served
        .iter()
        .map(|&number| room.requests[number].0)
        .collect();
    assert_eq!(lanes, Vec::from_iter(0..MODELS).repeat(50));
}
