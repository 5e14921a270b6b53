//! The fast path allocates nothing.
#![cfg(not(loom))]

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tower_triage::gate::Gate;
use tower_triage::{Priority, SlotPool, Ticket, WaitingRoomConfig};

#[test]
fn the_fast_path_allocates_nothing() {
    let gate = Gate::new(SlotPool::new(1), WaitingRoomConfig::default());
    let ticket = Ticket::new(Priority::HIGHEST, Instant::now());
    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            let acquire = pin!(gate.acquire(ticket.clone(), ()));
            let answer = acquire.poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(answer, Poll::Ready(Ok(_))));
            drop(answer);
            drop(gate.try_acquire(&()).unwrap());
        }
    });
    assert_eq!(allocated.count_total, 0);
}
