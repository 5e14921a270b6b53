//! The gate against Tokio's semaphore, when a slot is free.

mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use support::{compare, now, subject};
use tokio::sync::Semaphore;
use tower_triage::gate::Gate;
use tower_triage::{Priority, SlotPool, Ticket, WaitingRoomConfig};

fn main() {
    let semaphore = Arc::new(Semaphore::new(64));
    let gate = Gate::new(SlotPool::new(64), WaitingRoomConfig::default());
    let ticket = Ticket::new(Priority::HIGHEST, Instant::now());
    compare(
        "acquire().await and release, a slot is free",
        "≤ 0.75×",
        &mut [
            subject("a loop", |n| (0..n).for_each(|i| _ = black_box(i))),
            subject("tokio Semaphore::acquire_owned", |n| {
                for _ in 0..n {
                    drop(black_box(now(Arc::clone(&semaphore).acquire_owned())));
                }
            }),
            subject("Gate::acquire", |n| {
                for _ in 0..n {
                    drop(black_box(now(gate.acquire(ticket.clone(), ()))));
                }
            }),
        ],
        301,
        5_000,
    );
    compare(
        "try_acquire and release, a slot is free",
        "none",
        &mut [
            subject("a loop", |n| (0..n).for_each(|i| _ = black_box(i))),
            subject("tokio Semaphore::try_acquire_owned", |n| {
                for _ in 0..n {
                    drop(black_box(Arc::clone(&semaphore).try_acquire_owned()));
                }
            }),
            subject("Gate::try_acquire", |n| {
                for _ in 0..n {
                    drop(black_box(gate.try_acquire(&())));
                }
            }),
        ],
        301,
        5_000,
    );
}
