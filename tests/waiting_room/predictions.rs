//! What a room predicts of a single arrival, and which arrivals and waiters it refuses for it.

use std::time::{Duration, Instant};

use tower_triage::admit::{AdmitOutcome, Capacity, WaiterId, WaitingRoom, WakeList};
use tower_triage::{Discipline, Priority, RejectReason, SlotPool, Ticket, WaitingRoomConfig};

use super::pools::{TestPools, TestSlot};

const SERVICE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(1);
const DISCIPLINES: [Discipline; 3] = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];

#[test]
fn a_request_that_can_not_be_answered_in_time_is_not_started() {
    for discipline in DISCIPLINES {
        let config = WaitingRoomConfig::default().discipline(discipline);
        let (begin, slots) = (Instant::now(), SlotPool::new(1));
        let mut room: WaitingRoom<SlotPool, &str> = WaitingRoom::new(config, begin);
        let at = |ms| begin + Duration::from_millis(ms);
        let ticket = |timeout| Ticket::new(Priority::HIGHEST, begin).timeout(timeout);
        let mut wakes = WakeList::new();
        let outcome = room.arrive(&slots, ticket(PATIENCE), (), begin, &mut wakes);
        let AdmitOutcome::Leased(slot) = outcome else {
            panic!("{outcome:?}");
        };
        for _ in 0..20 {
            let served = room.served(&slots, &(), begin);
            room.on_answered(&served, at(200));
        }
        let mut wait = |name, ms| {
            let ticket = ticket(Duration::from_millis(ms));
            let outcome = room.arrive(&slots, ticket, (), begin, &mut wakes);
            let AdmitOutcome::Queued(id) = outcome else {
                panic!("{outcome:?}");
            };
            room.set_waker(id, name).unwrap();
            id
        };
        let (late, in_time) = (wait("late", 299), wait("in time", 300));
        let pool = slots.release(slot);
        room.on_release(&slots, pool, at(100), &mut wakes);
        assert_eq!(wakes.into_iter().collect::<Vec<_>>(), ["late", "in time"]);
        let rejected = room.take_outcome(late).unwrap().err();
        assert_eq!(rejected, Some(RejectReason::DeadlinePassed));
        assert!(room.take_outcome(in_time).unwrap().is_ok());
    }
}

/// A room in front of one slot, of which it is known that it serves a request in 200 ms. The slot is taken, and none waits.
fn known() -> (WaitingRoom<SlotPool, ()>, SlotPool, Instant) {
    known_with(WaitingRoomConfig::default())
}

fn known_with(config: WaitingRoomConfig) -> (WaitingRoom<SlotPool, ()>, SlotPool, Instant) {
    let (mut now, slots) = (Instant::now(), SlotPool::new(1));
    let mut room = WaitingRoom::new(config, now);
    let mut wakes = WakeList::new();
    let ticket = |now| Ticket::new(Priority::HIGHEST, now);
    let mut slot = slots.try_lease(&()).unwrap();
    for _ in 0..30 {
        let id = queued(room.arrive(&slots, ticket(now), (), now, &mut wakes));
        let served = room.served(&slots, &(), now);
        now += SERVICE;
        room.on_answered(&served, now);
        let pool = slots.release(slot);
        room.on_release(&slots, pool, now, &mut wakes);
        slot = room.take_outcome(id).unwrap().unwrap();
    }
    (room, slots, now)
}

fn queued(outcome: AdmitOutcome<SlotPool>) -> WaiterId {
    match outcome {
        AdmitOutcome::Queued(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_expected_of_a_pool_that_is_out_of_service() {
    // Two pools of one slot each, of which each serves five requests per second.
    let pools = TestPools::new(&[1, 1], &[vec![0, 1]]);
    let (mut now, mut wakes) = (Instant::now(), WakeList::<()>::new());
    let mut room = WaitingRoom::new(WaitingRoomConfig::default(), now);
    let ticket = |now| Ticket::new(Priority::HIGHEST, now);
    let mut slots = [pools.try_lease(&0).unwrap(), pools.try_lease(&0).unwrap()];
    for nth in 0..60 {
        let id = match room.arrive(&pools, ticket(now), 0, now, &mut wakes) {
            AdmitOutcome::Queued(id) => id,
            other => panic!("{other:?}"),
        };
        now += SERVICE / 2;
        let slot = std::mem::replace(&mut slots[nth % 2], TestSlot(0));
        let pool = pools.release(slot);
        room.on_release(&pools, pool, now, &mut wakes);
        slots[nth % 2] = room.take_outcome(id).unwrap().unwrap();
    }
    let both = room.estimated_wait(10).unwrap();
    pools.set_slots(1, 0);
    pools.set_serves(0, vec![0]);
    room.on_capacity_changed(&pools, now, &mut wakes);
    let one = room.estimated_wait(10).unwrap();
    assert_eq!(one.as_millis(), 2 * both.as_millis());
    // It is as fast as before when it is back.
    pools.set_slots(1, 1);
    pools.set_serves(0, vec![0, 1]);
    room.on_capacity_changed(&pools, now, &mut wakes);
    assert_eq!(room.estimated_wait(10), Some(both));
}

#[test]
fn the_time_of_service_counts_against_the_patience() {
    let (mut room, slots, now) = known();
    let mut arrive = |millis| {
        let ticket = Ticket::new(Priority::HIGHEST, now).timeout(Duration::from_millis(millis));
        let outcome = room.arrive(&slots, ticket, (), now, &mut WakeList::new());
        if let AdmitOutcome::Queued(id) = outcome {
            room.cancel(id, now);
        }
        matches!(outcome, AdmitOutcome::Queued(_))
    };
    // The first of those that would be late finds out whether that is still so.
    assert!(arrive(300));
    assert!(!arrive(300) && arrive(500));
}

#[test]
fn a_deadline_counts_among_arrivals_that_need_no_prediction() {
    let target = Duration::from_secs(30);
    let (mut room, slots, now) = known_with(WaitingRoomConfig::default().target_wait(target));
    let mut arrive = |ticket| room.arrive(&slots, ticket, (), now, &mut WakeList::new());
    // All of them arrive at one instant, and wait for far less than the target.
    for _ in 0..10 {
        queued(arrive(Ticket::new(Priority::HIGHEST, now)));
    }
    let in_vain = Ticket::new(Priority::HIGHEST, now).timeout(Duration::from_millis(500));
    let outcome = arrive(in_vain);
    assert!(
        matches!(
            outcome,
            AdmitOutcome::Rejected(RejectReason::Overloaded { .. })
        ),
        "{outcome:?}"
    );
}

#[test]
fn callers_that_name_a_deadline_teach_nothing_about_others() {
    let (mut room, slots, now) = known();
    let mut wakes = WakeList::new();
    for _ in 0..60 {
        let told = Ticket::new(Priority::HIGHEST, now).timeout(PATIENCE);
        let id = queued(room.arrive(&slots, told, (), now, &mut wakes));
        room.cancel(id, now + Duration::from_millis(1));
    }
    let silent = || Ticket::new(Priority::HIGHEST, now);
    queued(room.arrive(&slots, silent(), (), now, &mut wakes));
    queued(room.arrive(&slots, silent(), (), now, &mut wakes));
}

#[test]
fn a_requeued_request_was_let_in_before() {
    let (mut room, slots, now) = known();
    let mut arrive = |ticket: Ticket| {
        let ticket = ticket.timeout(Duration::from_millis(500));
        room.arrive(&slots, ticket, (), now, &mut WakeList::new())
    };
    let ticket = || Ticket::new(Priority::HIGHEST, now);
    queued(arrive(ticket()));
    let refused = arrive(ticket());
    assert!(matches!(refused, AdmitOutcome::Rejected(_)), "{refused:?}");
    queued(arrive(ticket().requeued()));
}

#[test]
fn the_waiters_of_other_lanes_count_where_they_compete_for_slots() {
    // One pool serves the first lane, and both serve the second.
    let (mut now, pools) = (
        Instant::now(),
        TestPools::new(&[1, 1], &[vec![0], vec![0, 1]]),
    );
    let mut room: WaitingRoom<TestPools, ()> = WaitingRoom::new(WaitingRoomConfig::default(), now);
    let mut wakes = WakeList::new();
    let _held = (pools.try_lease(&1).unwrap(), pools.try_lease(&1).unwrap());
    let mut arrive = |room: &mut WaitingRoom<TestPools, ()>, lane, now, timeout| {
        let ticket = Ticket::new(Priority::HIGHEST, now).timeout(timeout);
        match room.arrive(&pools, ticket, lane, now, &mut wakes) {
            AdmitOutcome::Queued(id) => Some(id),
            AdmitOutcome::Rejected(RejectReason::Overloaded { .. }) => None,
            other => panic!("{other:?}"),
        }
    };
    for _ in 0..30 {
        let id = arrive(&mut room, 0, now, 10 * PATIENCE).unwrap();
        now += SERVICE;
        let pool = pools.release(TestSlot(0));
        room.on_release(&pools, pool, now, &mut WakeList::new());
        assert!(room.take_outcome(id).unwrap().is_ok());
    }
    for _ in 0..12 {
        assert!(arrive(&mut room, 1, now, 60 * PATIENCE).is_some());
    }
    // Six are before it, at five per second. The first that would be late finds out whether that is still so.
    let probe = arrive(&mut room, 0, now, PATIENCE).unwrap();
    room.cancel(probe, now);
    assert!(arrive(&mut room, 0, now, PATIENCE).is_none());
}

#[test]
fn a_short_request_among_long_ones_is_served_though_it_names_a_deadline() {
    let (begin, slots) = (Instant::now(), SlotPool::new(1));
    let mut room: WaitingRoom<SlotPool, ()> = WaitingRoom::new(WaitingRoomConfig::default(), begin);
    let (mut now, mut wakes) = (begin, WakeList::new());
    let ticket = |now| Ticket::new(Priority::HIGHEST, now);
    let mut slot = slots.try_lease(&()).unwrap();
    for nth in 0..30 {
        let id = queued(room.arrive(&slots, ticket(now), (), now, &mut wakes));
        let sample = room.served(&slots, &(), now);
        // One in ten is short.
        now += Duration::from_millis(if nth % 10 == 0 { 100 } else { 2_000 });
        room.on_answered(&sample, now);
        let pool = slots.release(slot);
        room.on_release(&slots, pool, now, &mut wakes);
        slot = room.take_outcome(id).unwrap().unwrap();
    }
    let urgent = ticket(now).timeout(Duration::from_millis(1_500));
    let id = queued(room.arrive(&slots, urgent, (), now, &mut wakes));
    let pool = slots.release(slot);
    room.on_release(&slots, pool, now + Duration::from_millis(1_300), &mut wakes);
    assert!(room.take_outcome(id).unwrap().is_ok());
}
