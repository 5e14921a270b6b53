//! Rejections without the lock.

use super::*;

#[test]
fn no_fast_reject_once_a_place_is_free() {
    model(|| {
        let gate = room_of(1);
        let _held = gate.try_acquire(&()).unwrap();
        let waiter = waiting(&gate);
        let free = Arc::new(AtomicBool::new(false));
        let releaser = spawn({
            let free = free.clone();
            move || {
                drop(waiter);
                free.store(true, Ordering::Release);
            }
        });
        let was_free = free.load(Ordering::Acquire);
        let rejected = gate.fast_reject(|| None).is_some();
        assert!(!(was_free && rejected));
        releaser.join().unwrap();
        assert!(gate.fast_reject(|| None).is_none());
        assert_eq!(gate.status().stats.full, u64::from(rejected));
    });
}

#[test]
fn a_request_is_fast_rejected_once() {
    model(|| {
        let gate = room_of(1);
        let held = gate.try_acquire(&()).unwrap();
        let waiter = waiting(&gate);
        let releaser = spawn(move || drop(held));
        let arrival = with(&gate, |gate| match gate.try_acquire(&()) {
            Some(_permit) => (),
            None if gate.fast_reject(|| None).is_some() => (),
            None => drop(block_on(acquire(&gate))),
        });
        drop(block_on(waiter).unwrap());
        releaser.join().unwrap();
        arrival.join().unwrap();
        let status = gate.status();
        assert_eq!((status.depth, status.running), (0, 0));
        assert_eq!(status.served + status.stats.full, 3);
    });
}

#[test]
fn a_closed_gate_does_not_fast_reject() {
    model(|| {
        let gate = room_of(1);
        let _held = gate.try_acquire(&()).unwrap();
        let _waiter = waiting(&gate);
        let closed = Arc::new(AtomicBool::new(false));
        let closer = with(&gate, {
            let closed = closed.clone();
            move |gate| {
                gate.close();
                closed.store(true, Ordering::Release);
            }
        });
        let was_closed = closed.load(Ordering::Acquire);
        assert!(!(was_closed && gate.fast_reject(|| None).is_some()));
        closer.join().unwrap();
    });
}
