//! The gate under every interleaving of a few threads.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib gate::loom`, bounded by `LOOM_MAX_PREEMPTIONS` (3 unless
//! it is set). A wake-up that is lost shows as a deadlock.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use loom::future::block_on;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread::{JoinHandle, spawn};

use super::with_lock::WithLock;
use super::{Acquire, Gate, Permit, Reservation, now};
use crate::admit::{
    Discipline, Priority, PriorityLevels, RejectReason, SlotPool, Ticket, WaitingRoomConfig,
};
use crate::sync::Fences;

type Answer = Result<Permit<SlotPool>, RejectReason>;

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

#[test]
fn a_freed_place_goes_to_a_reserve() {
    model(|| {
        let gate = room_of(1);
        let taken = block_on(reserve(&gate)).unwrap();
        let releaser = spawn(move || drop(taken));
        let reservation = block_on(reserve(&gate)).unwrap();
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
        let reserved = reserve.poll_reserve(&mut Context::from_waker(Waker::noop()));
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
        let other = with(&gate, |gate| drop(block_on(reserve(&gate)).unwrap()));
        drop(block_on(reserve(&gate)).unwrap());
        other.join().unwrap();
        assert!(block_on(reserve(&gate)).is_some());
    });
}

#[test]
fn a_served_waiter_leaves_its_place_to_a_reserve() {
    model(|| {
        let gate = room_of(1);
        let held = gate.try_acquire(&()).unwrap();
        let waiter = waiting(&gate);
        let releaser = spawn(move || drop(held));
        let _reservation = block_on(reserve(&gate)).unwrap();
        releaser.join().unwrap();
        drop(block_on(waiter).unwrap());
    });
}

#[test]
fn a_closing_gate_answers_reserves() {
    model(|| {
        let gate = room_of(1);
        let _reservation = block_on(reserve(&gate)).unwrap();
        let closer = with(&gate, |gate| gate.close());
        assert!(block_on(reserve(&gate)).is_none());
        closer.join().unwrap();
    });
}

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
        let rejected = gate.fast_reject().is_some();
        assert!(!(was_free && rejected));
        releaser.join().unwrap();
        assert!(gate.fast_reject().is_none());
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
            None if gate.fast_reject().is_some() => (),
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
        assert!(!(was_closed && gate.fast_reject().is_some()));
        closer.join().unwrap();
    });
}

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

async fn reserve(gate: &Gate<SlotPool>) -> Option<Reservation<SlotPool>> {
    let mut reserve = gate.reserve();
    poll_fn(|cx| reserve.poll_reserve(cx)).await
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
        self.shared
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
