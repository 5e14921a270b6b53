//! Arrivals that meet a slot before the room was told of its release.

use std::time::Instant;

use tower_triage::admit::{AdmitOutcome, Capacity, SlotPool, WaitingRoom, WakeList};
use tower_triage::{Discipline, Priority, Ticket, WaitingRoomConfig};

/// What a newcomer of this level gets while one of level 1 waits and a slot is free, and which waiters are woken.
fn newcomer(discipline: Discipline, level: u8) -> (&'static str, Vec<u8>) {
    let (slots, now) = (SlotPool::new(1), Instant::now());
    let config = WaitingRoomConfig::default().discipline(discipline);
    let mut room: WaitingRoom<SlotPool, u8> = WaitingRoom::new(config, now);
    let mut wakes = WakeList::new();
    let held = slots.try_lease(&()).unwrap();
    let waiter = Ticket::new(Priority(1), now);
    let AdmitOutcome::Queued(id) = room.arrive(&slots, waiter, (), now, &mut wakes) else {
        panic!("the slot is taken")
    };
    room.set_waker(id, 1).unwrap();
    slots.release(held);
    let ticket = Ticket::new(Priority(level), now);
    let outcome = match room.arrive(&slots, ticket, (), now, &mut wakes) {
        AdmitOutcome::Leased(_) => "leased",
        AdmitOutcome::Queued(_) => "queued",
        AdmitOutcome::Rejected(_) => "rejected",
    };
    (outcome, wakes.into_iter().collect())
}

#[test]
fn slot_goes_to_the_better_of_waiter_and_newcomer() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        assert_eq!(
            newcomer(discipline, 1),
            ("queued", vec![1]),
            "{discipline:?}"
        );
        assert_eq!(
            newcomer(discipline, 0),
            ("leased", vec![]),
            "{discipline:?}"
        );
    }
}

/// A cheap request does not go before its own tenant's earlier one, nor before those that go before that.
#[test]
fn newcomer_stays_behind_its_own_tenant() {
    let (slots, now) = (SlotPool::new(1), Instant::now());
    let config = WaitingRoomConfig::default().discipline(Discipline::Fair);
    let mut room: WaitingRoom<SlotPool, &str> = WaitingRoom::new(config, now);
    let mut wakes = WakeList::new();
    let held = slots.try_lease(&()).unwrap();
    let ticket = |tenant: &'static str, cost| {
        let ticket = Ticket::new(Priority::HIGHEST, now);
        ticket.tenant(tenant.into()).cost(cost)
    };
    for (tenant, cost) in [("a", 5), ("b", 3)] {
        let arrived = room.arrive(&slots, ticket(tenant, cost), (), now, &mut wakes);
        let AdmitOutcome::Queued(id) = arrived else {
            panic!("the slot is taken")
        };
        room.set_waker(id, tenant).unwrap();
    }
    slots.release(held);
    let cheap = room.arrive(&slots, ticket("a", 1), (), now, &mut wakes);
    assert!(matches!(cheap, AdmitOutcome::Queued(_)), "{cheap:?}");
    assert_eq!(wakes.into_iter().collect::<Vec<_>>(), ["b"]);
}
