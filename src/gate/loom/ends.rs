//! Waits that end without a slot: a request that leaves, one that expires, a gate that closes.

use super::*;

#[test]
fn a_waiter_that_leaves_passes_its_slot_on() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let first = waiting(&gate);
        let second = waiting(&gate);
        let releaser = spawn(move || drop(held));
        let canceller = spawn(move || drop(first));
        drop(block_on(second).unwrap());
        releaser.join().unwrap();
        canceller.join().unwrap();
        assert_idle(&gate, 2);
        assert_eq!(gate.status().stats.cancelled, 1);
    });
}

#[test]
fn the_last_waiter_that_leaves_frees_its_slot() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let only = waiting(&gate);
        let releaser = spawn(move || drop(held));
        drop(only);
        releaser.join().unwrap();
        assert!(gate.try_acquire(&()).is_some());
    });
}

#[test]
fn a_waiter_is_either_served_or_expired() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let waiter = waiting(&gate);
        let releaser = spawn(move || drop(held));
        let timer = with(&gate, |gate| gate.expire(much_later()));
        let answer = block_on(waiter);
        releaser.join().unwrap();
        timer.join().unwrap();
        let served = match answer {
            Ok(_) => 2,
            Err(why) => {
                assert_eq!(why, RejectReason::TimedOut);
                1
            }
        };
        drop(answer);
        assert_idle(&gate, served);
        assert_eq!(gate.status().stats.timed_out, 2 - served);
        assert!(gate.try_acquire(&()).is_some());
    });
}

#[test]
fn an_expiry_that_races_a_cancel_leaves_no_ghost() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let first = waiting(&gate);
        let second = waiting(&gate);
        let timer = with(&gate, |gate| gate.expire(much_later()));
        let canceller = spawn(move || drop(first));
        drop(held);
        drop(block_on(second));
        timer.join().unwrap();
        canceller.join().unwrap();
        let status = gate.status();
        let counts = status.stats;
        assert_eq!((status.depth, status.running), (0, 0));
        assert_eq!(status.served + counts.timed_out + counts.cancelled, 3);
    });
}

#[test]
fn a_closing_gate_rejects_arrivals() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let closer = with(&gate, |gate| gate.close());
        let why = block_on(acquire(&gate)).unwrap_err();
        assert_eq!(why, RejectReason::ShuttingDown);
        closer.join().unwrap();
        drop(held);
        assert_idle(&gate, 1);
    });
}

#[test]
fn a_closing_gate_rejects_all_waiters() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let first = waiting(&gate);
        let second = waiting(&gate);
        let closer = with(&gate, |gate| gate.close());
        let releaser = spawn(move || drop(held));
        let served = [first, second].map(block_on).map(|answer| answer.is_ok());
        closer.join().unwrap();
        releaser.join().unwrap();
        let served = served.into_iter().filter(|&served| served).count() as u64;
        assert_idle(&gate, 1 + served);
        assert_eq!(gate.status().stats.shutting_down, 2 - served);
    });
}

#[test]
fn closed_resolves_once_the_last_permit_is_back() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let releaser = spawn(move || drop(held));
        let closer = with(&gate, |gate| gate.close());
        block_on(gate.closed());
        assert_eq!(gate.status().running, 0);
        releaser.join().unwrap();
        closer.join().unwrap();
    });
}

#[test]
fn no_request_is_served_after_closed_resolved() {
    model(|| {
        let gate = gate(1);
        let drained = Arc::new(AtomicBool::new(false));
        let closer = with(&gate, {
            let drained = drained.clone();
            move |gate| {
                gate.close();
                block_on(gate.closed());
                drained.store(true, Ordering::SeqCst);
            }
        });
        if let Ok(permit) = block_on(acquire(&gate)) {
            assert!(!drained.load(Ordering::SeqCst));
            drop(permit);
        }
        closer.join().unwrap();
    });
}
