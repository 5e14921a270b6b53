//! Slots from an inner service's readiness.

use std::future::poll_fn;

use super::*;

#[test]
fn one_readiness_gives_one_lease_beside_a_release() {
    model(|| {
        let gate = Gate::from_inner(config());
        let held = from_inner(&gate, waiting(&gate));
        let (mut first, mut second) = (waiting(&gate), waiting(&gate));
        let releaser = spawn(move || drop(held));
        let offer = with(&gate, |gate| gate.on_inner_ready());
        gate.on_inner_ready();
        offer.join().unwrap();
        releaser.join().unwrap();
        assert!(poll(&mut first).is_ready());
        assert!(poll(&mut second).is_pending());
    });
}

#[test]
fn a_claim_that_ends_wakes_the_next_head() {
    model(|| {
        let gate = Gate::from_inner(config());
        let first = waiting(&gate);
        let mut second = waiting(&gate);
        gate.on_inner_ready();
        let caller = with(&gate, |gate| drop(from_inner(&gate, first)));
        // Until it is the head and the claim is over: a lost notification is a deadlock.
        block_on(poll_fn(|cx| {
            assert!(poll_with(&mut second, cx.waker()).is_pending());
            match second.may_poll_inner() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }));
        caller.join().unwrap();
        gate.on_inner_ready();
        assert!(poll(&mut second).is_ready());
    });
}

#[test]
fn a_granted_waiter_that_leaves_frees_the_readiness() {
    model(|| {
        let gate = Gate::from_inner(config());
        let (first, mut second) = (waiting(&gate), waiting(&gate));
        let offer = with(&gate, |gate| gate.on_inner_ready());
        let releaser = spawn(move || drop(first));
        offer.join().unwrap();
        releaser.join().unwrap();
        gate.on_inner_ready();
        let second = poll(&mut second);
        assert!(second.is_ready());
        assert_eq!(gate.status().running, 1);
    });
}
