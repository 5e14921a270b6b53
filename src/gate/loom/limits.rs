//! Limits that change while slots are out.

use super::*;

#[test]
fn a_raised_limit_serves_a_waiter() {
    model(|| {
        let gate = gate(0);
        let raiser = with(&gate, |gate| gate.set_limit(1));
        drop(block_on(acquire(&gate)).unwrap());
        raiser.join().unwrap();
        assert_idle(&gate, 1);
    });
}

#[test]
fn a_limit_raised_beside_a_release_serves_both_waiters() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let (first, second) = (waiting(&gate), waiting(&gate));
        let raiser = with(&gate, |gate| gate.set_limit(2));
        let releaser = spawn(move || drop(held));
        let _both = (block_on(first).unwrap(), block_on(second).unwrap());
        raiser.join().unwrap();
        releaser.join().unwrap();
        assert_eq!(gate.status().running, 2);
    });
}

#[test]
fn a_lowered_limit_holds_from_then_on() {
    model(|| {
        let gate = gate(2);
        let held = gate.try_acquire(&()).unwrap();
        let other = with(&gate, |gate| drop(poll(&mut acquire(&gate))));
        gate.set_limit(1);
        assert!(gate.try_acquire(&()).is_none());
        other.join().unwrap();
        drop(held);
        let _one = gate.try_acquire(&()).unwrap();
        assert!(gate.try_acquire(&()).is_none());
    });
}

#[test]
fn no_lease_slips_by_a_limit_that_was_lowered() {
    model(|| {
        let gate = gate(2);
        let _held = gate.try_acquire(&()).unwrap();
        let other = with(&gate, |gate| gate.try_acquire(&()));
        gate.set_limit(1);
        let running = gate.status().running;
        let _other = other.join().unwrap();
        assert_eq!(gate.status().running, running);
    });
}

#[test]
fn a_retired_slot_is_granted_to_no_waiter() {
    model(|| {
        let gate = gate(2);
        let held = [0, 1].map(|_| gate.try_acquire(&()).unwrap());
        let mut waiter = waiting(&gate);
        gate.set_limit(1);
        let releasers = held.map(|held| spawn(move || drop(held)));
        let permit = block_on(&mut waiter).unwrap();
        assert!(gate.try_acquire(&()).is_none());
        releasers
            .into_iter()
            .for_each(|releaser| releaser.join().unwrap());
        assert_eq!(gate.status().running, 1);
        drop(permit);
    });
}
