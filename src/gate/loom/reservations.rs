//! Places that are reserved.

use super::*;

#[test]
fn a_freed_place_goes_to_a_reserve() {
    model(|| {
        let gate = room_of(1);
        let taken = block_on(gate.reserve()).unwrap();
        let releaser = spawn(move || drop(taken));
        let reservation = block_on(gate.reserve()).unwrap();
        releaser.join().unwrap();
        let _held = gate.try_acquire(&()).unwrap();
        let mut waiter = acquire(&gate).with_reservation(reservation);
        assert!(poll(&mut waiter).is_pending());
        assert!(matches!(
            poll(&mut acquire(&gate)),
            Poll::Ready(Err(RejectReason::Full))
        ));
    });
}

#[test]
fn a_reserved_place_is_taken_by_no_other_request() {
    model(|| {
        let gate = room_of(1);
        let _held = gate.try_acquire(&()).unwrap();
        let arrival = with(&gate, |gate| {
            let mut arrival = acquire(&gate);
            (poll(&mut arrival), arrival)
        });
        let mut reserve = gate.reserve();
        let reserved = Pin::new(&mut reserve).poll(&mut Context::from_waker(Waker::noop()));
        let (answer, arrival) = arrival.join().unwrap();
        assert_ne!(answer.is_pending(), reserved.is_ready());
        drop(arrival);
        if let Poll::Ready(reservation) = reserved {
            let mut waiter = acquire(&gate).with_reservation(reservation.unwrap());
            assert!(poll(&mut waiter).is_pending());
        }
    });
}

#[test]
fn two_reserves_share_one_place_one_after_the_other() {
    model(|| {
        let gate = room_of(1);
        let other = with(&gate, |gate| drop(block_on(gate.reserve()).unwrap()));
        drop(block_on(gate.reserve()).unwrap());
        other.join().unwrap();
        assert!(block_on(gate.reserve()).is_some());
    });
}

#[test]
fn a_served_waiter_leaves_its_place_to_a_reserve() {
    model(|| {
        let gate = room_of(1);
        let held = gate.try_acquire(&()).unwrap();
        let waiter = waiting(&gate);
        let releaser = spawn(move || drop(held));
        let _reservation = block_on(gate.reserve()).unwrap();
        releaser.join().unwrap();
        drop(block_on(waiter).unwrap());
    });
}

#[test]
fn a_closing_gate_answers_reserves() {
    model(|| {
        let gate = room_of(1);
        let _reservation = block_on(gate.reserve()).unwrap();
        let closer = with(&gate, |gate| gate.close());
        assert!(block_on(gate.reserve()).is_none());
        closer.join().unwrap();
    });
}
