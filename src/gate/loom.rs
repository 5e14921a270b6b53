//! The gate under every interleaving of a few threads.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib gate::loom`, bounded by `LOOM_MAX_PREEMPTIONS` (3 unless
//! it is set). A wake-up that is lost shows as a deadlock.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use loom::future::block_on;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread::{JoinHandle, spawn};

use super::{Acquire, Gate, Permit, Reservation, now};
use crate::admit::{Priority, PriorityLevels, RejectReason, SlotPool, Ticket, WaitingRoomConfig};
use crate::sync::Fences;

type Answer = Result<Permit<SlotPool>, RejectReason>;

#[test]
fn one_slot_serves_everyone_one_at_a_time() {
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
        let leaver = spawn(move || drop(held));
        drop(block_on(acquire(&gate)).unwrap());
        leaver.join().unwrap();
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
        let leaver = spawn(move || drop(held));
        let canceller = spawn(move || drop(first));
        drop(block_on(second).unwrap());
        leaver.join().unwrap();
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
        let leaver = spawn(move || drop(held));
        drop(only);
        leaver.join().unwrap();
        assert!(gate.try_acquire(&()).is_some());
    });
}

#[test]
fn a_waiter_is_either_served_or_expired() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let waiter = waiting(&gate);
        let leaver = spawn(move || drop(held));
        let timer = with(&gate, |gate| gate.expire(much_later()));
        let answer = block_on(waiter);
        leaver.join().unwrap();
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
fn a_closing_gate_answers_whoever_comes() {
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
fn a_closing_gate_answers_everyone_who_waits() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let first = waiting(&gate);
        let second = waiting(&gate);
        let closer = with(&gate, |gate| gate.close());
        let leaver = spawn(move || drop(held));
        let served = [first, second].map(block_on).map(|answer| answer.is_ok());
        closer.join().unwrap();
        leaver.join().unwrap();
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
        let leaver = spawn(move || drop(held));
        let closer = with(&gate, |gate| gate.close());
        block_on(gate.closed());
        assert_eq!(gate.status().running, 0);
        leaver.join().unwrap();
        closer.join().unwrap();
    });
}

#[test]
fn nobody_is_served_after_closed_resolved() {
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
fn a_raised_limit_serves_whoever_waits() {
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
        let leaver = spawn(move || drop(held));
        let _both = (block_on(first).unwrap(), block_on(second).unwrap());
        raiser.join().unwrap();
        leaver.join().unwrap();
        assert_eq!(gate.status().running, 2);
    });
}

#[test]
fn a_lowered_limit_holds_from_then_on() {
    model(|| {
        let gate = gate(2);
        let held = gate.try_acquire(&()).unwrap();
        let visitor = with(&gate, |gate| drop(poll(&mut acquire(&gate))));
        gate.set_limit(1);
        assert!(gate.try_acquire(&()).is_none());
        visitor.join().unwrap();
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
        let visitor = with(&gate, |gate| gate.try_acquire(&()));
        gate.set_limit(1);
        let running = gate.status().running;
        let _visit = visitor.join().unwrap();
        assert_eq!(gate.status().running, running);
    });
}

#[test]
fn a_slot_that_a_lowered_limit_retires_is_handed_to_nobody() {
    model(|| {
        let gate = gate(2);
        let held = [0, 1].map(|_| gate.try_acquire(&()).unwrap());
        let mut waiter = waiting(&gate);
        gate.set_limit(1);
        let leavers = held.map(|held| spawn(move || drop(held)));
        let permit = block_on(&mut waiter).unwrap();
        assert!(gate.try_acquire(&()).is_none());
        leavers
            .into_iter()
            .for_each(|leaver| leaver.join().unwrap());
        assert_eq!(gate.status().running, 1);
        drop(permit);
    });
}

#[test]
fn a_newcomer_takes_no_slot_from_one_who_waits() {
    model(|| {
        let gate = gate(1);
        let held = gate.try_acquire(&()).unwrap();
        let newcomer = with(&gate, |gate| {
            let normal = PriorityLevels::default().default_priority();
            let mut newcomer = gate.acquire(Ticket::new(normal, now()), ());
            (poll(&mut newcomer), newcomer)
        });
        let mut waiter = waiting(&gate);
        drop(held);
        let _newcomer = newcomer.join().unwrap();
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
        let leaver = spawn(move || drop(other));
        drop(block_on(second).unwrap());
        leaver.join().unwrap();
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
fn a_chair_that_becomes_free_goes_to_one_who_stands() {
    model(|| {
        let gate = room_of(1);
        let taken = block_on(reserve(&gate)).unwrap();
        let riser = spawn(move || drop(taken));
        let chair = block_on(reserve(&gate)).unwrap();
        riser.join().unwrap();
        let _held = gate.try_acquire(&()).unwrap();
        let mut seated = acquire(&gate).with_reservation(chair);
        assert!(poll(&mut seated).is_pending());
        assert!(matches!(
            poll(&mut acquire(&gate)),
            Poll::Ready(Err(RejectReason::Full))
        ));
    });
}

#[test]
fn a_reserved_chair_is_taken_by_nobody_else() {
    model(|| {
        let gate = room_of(1);
        let _held = gate.try_acquire(&()).unwrap();
        let newcomer = with(&gate, |gate| {
            let mut newcomer = acquire(&gate);
            (poll(&mut newcomer), newcomer)
        });
        let mut standing = gate.reserve();
        let wish = standing.poll_reserve(&mut Context::from_waker(Waker::noop()));
        let (answer, newcomer) = newcomer.join().unwrap();
        assert_ne!(answer.is_pending(), wish.is_ready());
        drop(newcomer);
        if let Poll::Ready(chair) = wish {
            let mut seated = acquire(&gate).with_reservation(chair.unwrap());
            assert!(poll(&mut seated).is_pending());
        }
    });
}

#[test]
fn two_who_stand_share_one_chair_in_turns() {
    model(|| {
        let gate = room_of(1);
        let other = with(&gate, |gate| drop(block_on(reserve(&gate)).unwrap()));
        drop(block_on(reserve(&gate)).unwrap());
        other.join().unwrap();
        assert!(block_on(reserve(&gate)).is_some());
    });
}

#[test]
fn a_waiter_who_is_served_leaves_the_chair_to_one_who_stands() {
    model(|| {
        let gate = room_of(1);
        let held = gate.try_acquire(&()).unwrap();
        let waiter = waiting(&gate);
        let leaver = spawn(move || drop(held));
        let _chair = block_on(reserve(&gate)).unwrap();
        leaver.join().unwrap();
        drop(block_on(waiter).unwrap());
    });
}

#[test]
fn a_closing_gate_answers_those_who_stand() {
    model(|| {
        let gate = room_of(1);
        let _chair = block_on(reserve(&gate)).unwrap();
        let closer = with(&gate, |gate| gate.close());
        assert!(block_on(reserve(&gate)).is_none());
        closer.join().unwrap();
    });
}

#[test]
fn nobody_is_turned_away_once_a_chair_is_free() {
    model(|| {
        let gate = room_of(1);
        let _held = gate.try_acquire(&()).unwrap();
        let waiter = waiting(&gate);
        let free = Arc::new(AtomicBool::new(false));
        let leaver = spawn({
            let free = free.clone();
            move || {
                drop(waiter);
                free.store(true, Ordering::Release);
            }
        });
        let was_free = free.load(Ordering::Acquire);
        let turned_away = gate.turn_away().is_some();
        assert!(!(was_free && turned_away));
        leaver.join().unwrap();
        assert!(gate.turn_away().is_none());
        assert_eq!(gate.status().stats.full, u64::from(turned_away));
    });
}

#[test]
fn who_finds_neither_slot_nor_chair_is_turned_away_once() {
    model(|| {
        let gate = room_of(1);
        let held = gate.try_acquire(&()).unwrap();
        let waiter = waiting(&gate);
        let leaver = spawn(move || drop(held));
        let newcomer = with(&gate, |gate| match gate.try_acquire(&()) {
            Some(_permit) => (),
            None if gate.turn_away().is_some() => (),
            None => drop(block_on(acquire(&gate))),
        });
        drop(block_on(waiter).unwrap());
        leaver.join().unwrap();
        newcomer.join().unwrap();
        let status = gate.status();
        assert_eq!((status.depth, status.running), (0, 0));
        assert_eq!(status.served + status.stats.full, 3);
    });
}

#[test]
fn a_closed_gate_does_not_say_that_it_is_full() {
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
        assert!(!(was_closed && gate.turn_away().is_some()));
        closer.join().unwrap();
    });
}

/// Bounded by the environment, or by three preemptions; once for each place that fences may have.
fn model(scenario: impl Fn() + Send + Sync + Copy + 'static) {
    for fences in [Fences::AfterWrites, Fences::BeforeReads] {
        fences.place();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(scenario);
    }
}

fn gate(slots: usize) -> Gate<SlotPool> {
    Gate::new(SlotPool::new(slots), WaitingRoomConfig::default())
}

/// One slot, and so many chairs.
fn room_of(max_size: usize) -> Gate<SlotPool> {
    let config = WaitingRoomConfig {
        max_size,
        ..WaitingRoomConfig::default()
    };
    Gate::new(SlotPool::new(1), config)
}

fn acquire(gate: &Gate<SlotPool>) -> Acquire<SlotPool> {
    gate.acquire(Ticket::new(Priority::HIGHEST, now()), ())
}

/// An arrival that found no slot, and whom nothing tells so far.
fn waiting(gate: &Gate<SlotPool>) -> Acquire<SlotPool> {
    let mut acquire = acquire(gate);
    assert!(poll(&mut acquire).is_pending());
    acquire
}

async fn reserve(gate: &Gate<SlotPool>) -> Option<Reservation<SlotPool>> {
    let mut standing = gate.reserve();
    poll_fn(|cx| standing.poll_reserve(cx)).await
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
            .locked(|_, state, woken| state.room.advance(now, woken));
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
