//! `Gate` against Tokio's semaphore, where a slot is free.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use support::{Bench, now};
use tokio::sync::Semaphore;
use tower_triage::gate::Gate;
use tower_triage::{Priority, SlotPool, Ticket, WaitingRoomConfig};

fn main() {
    let semaphore = Arc::new(Semaphore::new(64));
    let gate = Gate::new(SlotPool::new(64), WaitingRoomConfig::default());
    let ticket = Ticket::new(Priority::HIGHEST, Instant::now());
    Bench::new("A slot is free: acquire().await and release", 601, 2_000)
        .base("an empty loop", |n| (0..n).for_each(|i| _ = black_box(i)))
        .subject("Semaphore::acquire_owned", |n| {
            for _ in 0..n {
                drop(black_box(now(Arc::clone(&semaphore).acquire_owned())));
            }
        })
        .subject("Gate::acquire", |n| {
            for _ in 0..n {
                drop(black_box(now(gate.acquire(ticket.clone(), ()))));
            }
        })
        .against("Semaphore::acquire_owned", "≤ 0.75×")
        .run();
}
