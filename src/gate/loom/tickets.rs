//! Waiters whose tickets change while a slot comes back, they leave, or the gate closes.

use super::*;
use crate::admit::RejectReason::ShuttingDown;

/// A waiter of the lowest level.
fn low(gate: &Gate<SlotPool>) -> Acquire<SlotPool> {
    let lowest = PriorityLevels::default().default_priority();
    let mut acquire = gate.acquire(Ticket::new(lowest, now()), ());
    assert!(poll(&mut acquire).is_pending());
    acquire
}

fn high() -> Ticket {
    Ticket::new(Priority::HIGHEST, now())
}

#[test]
fn a_change_that_races_a_grant_loses_neither() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let mut waiter = low(&gate);
        let releaser = spawn(move || drop(held));
        let is_changed = waiter.set_ticket(high().id(7), ());
        let permit = block_on(&mut waiter).unwrap();
        assert_eq!(permit.request(), if is_changed { 7 } else { 0 });
        drop(permit);
        releaser.join().unwrap();
        assert_idle(&gate, 2);
    });
}

#[test]
fn a_waiter_that_moves_back_lets_the_other_go_first() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let mut first = waiting(&gate);
        let second = waiting(&gate);
        let releaser = spawn(move || drop(held));
        let lowest = PriorityLevels::default().default_priority();
        let is_changed = first.set_ticket(Ticket::new(lowest, now()), ());
        let other = spawn(move || drop(block_on(second).unwrap()));
        // It was granted the slot before, or goes last.
        assert!(is_changed || poll(&mut first).is_ready());
        if is_changed {
            drop(block_on(first).unwrap());
        }
        other.join().unwrap();
        releaser.join().unwrap();
        assert_idle(&gate, 3);
    });
}

#[test]
fn a_change_that_races_a_waiter_that_leaves_loses_no_slot() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let first = waiting(&gate);
        let mut second = low(&gate);
        let canceller = spawn(move || drop(first));
        let releaser = spawn(move || drop(held));
        second.set_ticket(high(), ());
        drop(block_on(second).unwrap());
        canceller.join().unwrap();
        releaser.join().unwrap();
        assert_idle(&gate, 2);
        assert_eq!(gate.status().stats.cancelled, 1);
    });
}

#[test]
fn a_waiter_that_leaves_after_a_change_passes_its_slot_on() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let first = waiting(&gate);
        let mut second = low(&gate);
        let releaser = spawn(move || drop(held));
        let changer = spawn(move || {
            second.set_ticket(high().patient(), ());
            drop(second);
        });
        drop(block_on(first).unwrap());
        changer.join().unwrap();
        releaser.join().unwrap();
        assert_idle(&gate, 2);
    });
}

#[test]
fn a_change_that_races_a_close_is_rejected() {
    model(|| {
        let gate = gate(1);
        let _held = gate.try_acquire(&()).unwrap();
        let mut waiter = low(&gate);
        let closer = with(&gate, |gate| gate.close());
        waiter.set_ticket(high().patient(), ());
        assert_eq!(block_on(&mut waiter).unwrap_err(), ShuttingDown);
        closer.join().unwrap();
        assert!(!waiter.set_ticket(high(), ()));
        assert_eq!(gate.status().stats.shutting_down, 1);
    });
}
