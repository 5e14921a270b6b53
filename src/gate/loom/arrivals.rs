//! Arrivals and releases that race each other.

use super::*;

#[test]
fn one_slot_serves_one_request_at_a_time() {
    model(|| {
        let gate = gate(1);
        let inside = Arc::new(AtomicUsize::new(0));
        let visit = |gate: Gate<SlotPool>, inside: Arc<AtomicUsize>| {
            let permit = block_on(acquire(&gate)).unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
            inside.fetch_sub(1, Ordering::Relaxed);
            drop(permit);
        };
        let other = with(&gate, {
            let inside = inside.clone();
            move |gate| visit(gate, inside)
        });
        visit(gate.clone(), inside);
        other.join().unwrap();
        assert_idle(&gate, 2);
    });
}

#[test]
fn two_slots_serve_three_two_at_a_time() {
    model(|| {
        let gate = gate(2);
        let inside = Arc::new(AtomicUsize::new(0));
        let visit = |gate: Gate<SlotPool>, inside: Arc<AtomicUsize>| {
            let permit = block_on(acquire(&gate)).unwrap();
            assert!(inside.fetch_add(1, Ordering::Relaxed) < 2);
            inside.fetch_sub(1, Ordering::Relaxed);
            drop(permit);
        };
        let others = [0, 1].map(|_| {
            let inside = inside.clone();
            with(&gate, move |gate| visit(gate, inside))
        });
        visit(gate.clone(), inside);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_idle(&gate, 3);
    });
}

#[test]
fn a_release_that_races_an_arrival_serves_it() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let releaser = spawn(move || drop(held));
        drop(block_on(acquire(&gate)).unwrap());
        releaser.join().unwrap();
        assert_idle(&gate, 2);
    });
}

#[test]
fn what_happened_under_a_permit_is_visible_to_the_next() {
    model(|| {
        let gate = gate(1);
        let data = Arc::new(AtomicUsize::new(0));
        let held = gate.try_acquire(&()).unwrap();
        let writer = spawn({
            let data = data.clone();
            move || {
                data.store(1, Ordering::Relaxed);
                drop(held);
            }
        });
        let _permit = block_on(acquire(&gate)).unwrap();
        assert_eq!(data.load(Ordering::Relaxed), 1);
        writer.join().unwrap();
    });
}

#[test]
fn an_arrival_takes_no_slot_from_a_waiter() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let arrival = with(&gate, |gate| {
            let normal = PriorityLevels::default().default_priority();
            let mut arrival = gate.acquire(Ticket::new(normal, now()), ());
            (poll(&mut arrival), arrival)
        });
        let mut waiter = waiting(&gate);
        drop(held);
        let _newcomer = arrival.join().unwrap();
        assert!(poll(&mut waiter).is_ready());
    });
}

#[test]
fn a_waker_may_release_a_permit_when_it_is_woken() {
    model(|| {
        let gate = gate(2);
        let [one, other] = [0, 1].map(|_| gate.try_acquire(&()).unwrap());
        let mut first = acquire(&gate);
        assert!(poll_with(&mut first, &holding(one)).is_pending());
        let second = waiting(&gate);
        let releaser = spawn(move || drop(other));
        drop(block_on(second).unwrap());
        releaser.join().unwrap();
        drop(block_on(first).unwrap());
        assert_idle(&gate, 4);
    });
}

#[test]
fn a_waker_may_release_a_permit_when_it_is_dropped() {
    model(|| {
        let gate = gate(2);
        let [one, other] = [0, 1].map(|_| gate.try_acquire(&()).unwrap());
        let mut first = acquire(&gate);
        assert!(poll_with(&mut first, &holding(one)).is_pending());
        let mut second = acquire(&gate);
        assert!(poll_with(&mut second, &holding(other)).is_pending());
        let canceller = spawn(move || drop(second));
        drop(block_on(first).unwrap());
        canceller.join().unwrap();
        let status = gate.status();
        assert_eq!((status.depth, status.running), (0, 0));
    });
}

#[test]
fn a_detached_permit_is_released_once() {
    model(|| {
        let gate = gate(1);
        let name = gate.try_acquire(&()).unwrap().detach();
        let releasers = [0, 1].map(|_| with(&gate, move |gate| gate.release(&name)));
        drop(block_on(acquire(&gate)).unwrap());
        let released = releasers.map(|releaser| releaser.join().unwrap());
        assert_ne!(released[0], released[1]);
        assert_idle(&gate, 2);
    });
}
