//! The gate under every interleaving of a few threads.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib gate::loom`, bounded by `LOOM_MAX_PREEMPTIONS` (3 unless
//! it is set). A wake-up that is lost shows as a deadlock.

mod arrivals;
mod ends;
mod fast_reject;
mod inner_ready;
mod limits;
mod reservations;
mod tickets;

use std::cell::Cell;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use loom::future::block_on;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread::{JoinHandle, spawn};

use super::with_lock::WithLock;
use super::{Acquire, Gate, Permit, now};
use crate::admit::{
    Discipline, Priority, PriorityLevels, RejectReason, SlotPool, Ticket, WaitingRoomConfig,
};
use crate::sync::Fences;

type Answer = Result<Permit<SlotPool>, RejectReason>;

thread_local! {
    /// What the models of this thread configure: with it, the plain or the full room.
    static DISCIPLINE: Cell<Discipline> = const { Cell::new(Discipline::Fifo) };
}

/// Bounded by the environment, or by three preemptions; once for each room, and for each place that fences may have.
fn model(scenario: impl Fn() + Send + Sync + Copy + 'static) {
    // One tenant takes all turns, so both rooms have the same order.
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        DISCIPLINE.set(discipline);
        for fences in [Fences::AfterWrites, Fences::BeforeReads] {
            fences.place();
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound.get_or_insert(3);
            builder.check(scenario);
        }
    }
}

fn config() -> WaitingRoomConfig {
    WaitingRoomConfig::default().discipline(DISCIPLINE.get())
}

fn gate(slots: usize) -> Gate<SlotPool> {
    Gate::new(SlotPool::new(slots), config())
}

/// One slot, and a waiting room of `max_size`.
fn room_of(max_size: usize) -> Gate<SlotPool> {
    let config = WaitingRoomConfig {
        max_size,
        ..config()
    };
    Gate::new(SlotPool::new(1), config)
}

fn acquire(gate: &Gate<SlotPool>) -> Acquire<SlotPool> {
    gate.acquire(Ticket::new(Priority::HIGHEST, now()), ())
}

/// A waiter without a waker so far.
fn waiting(gate: &Gate<SlotPool>) -> Acquire<SlotPool> {
    let mut acquire = acquire(gate);
    assert!(poll(&mut acquire).is_pending());
    acquire
}

/// The permit of a waiter that is served by the inner service's readiness, after it has called.
fn from_inner(gate: &Gate<SlotPool>, mut waiter: Acquire<SlotPool>) -> Permit<SlotPool> {
    if waiter.may_poll_inner() {
        gate.on_inner_ready();
    }
    let permit = block_on(&mut waiter).unwrap();
    drop(gate.claim_readiness());
    permit
}

fn poll(acquire: &mut Acquire<SlotPool>) -> Poll<Answer> {
    poll_with(acquire, Waker::noop())
}

fn poll_with(acquire: &mut Acquire<SlotPool>, waker: &Waker) -> Poll<Answer> {
    Pin::new(acquire).poll(&mut Context::from_waker(waker))
}

fn with<R: 'static>(
    gate: &Gate<SlotPool>,
    act: impl FnOnce(Gate<SlotPool>) -> R + 'static,
) -> JoinHandle<R> {
    let gate = gate.clone();
    spawn(move || act(gate))
}

fn much_later() -> Instant {
    now() + Duration::from_secs(3600)
}

fn assert_idle(gate: &Gate<SlotPool>, served: u64) {
    let status = gate.status();
    assert_eq!(
        (status.depth, status.running, status.served),
        (0, 0, served)
    );
}

impl Gate<SlotPool> {
    /// The part of the timer, which does not run in a model.
    fn expire(&self, now: Instant) {
        self.origin
            .with_lock(|_, state, wakes| state.room.advance(now, wakes));
    }
}

/// A waker that holds a permit until it is woken or dropped.
fn holding(permit: Permit<SlotPool>) -> Waker {
    Arc::new(Holding(Mutex::new(Some(permit)))).into()
}

struct Holding(Mutex<Option<Permit<SlotPool>>>);

impl Wake for Holding {
    fn wake(self: Arc<Self>) {
        let permit = self.0.lock().unwrap().take();
        drop(permit);
    }
}
