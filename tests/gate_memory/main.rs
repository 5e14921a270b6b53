//! The memory that a gate keeps after a burst of many tenants.
#![cfg(not(loom))]

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::{unconstrained, yield_now};
use tokio::time::{Instant, advance};
use tower_triage::admit::Tenant;
use tower_triage::gate::{Acquire, Gate, Permit};
use tower_triage::{Discipline, Priority, SlotPool, Ticket, WaitingRoomConfig};

const MANY: usize = 10_000;
/// The most bytes that a small room may keep.
const LITTLE: i64 = 80_000;

#[test]
fn an_empty_gate_keeps_little_memory_of_a_burst() {
    let kept = kept_after(|gate| async move {
        let _held = burst(&gate);
        for _ in 0..2 {
            assert!(poll(&mut acquire(&gate, 0)).is_pending());
        }
    });
    assert!(kept < LITTLE, "{kept} bytes");
}

#[test]
fn a_short_queue_keeps_little_memory_of_a_burst() {
    let kept = kept_after(|gate| async move {
        let mut last = acquire(&gate, 0);
        let _held = burst_and(&gate, || assert!(poll(&mut last).is_pending()));
        for nth in 0..8 {
            let mut next = acquire(&gate, nth);
            assert!(poll(&mut next).is_pending());
            last = next;
            advance(Duration::from_secs(6)).await;
        }
        drop(last);
    });
    assert!(kept < LITTLE, "{kept} bytes");
}

#[test]
fn a_room_that_stays_small_keeps_little_memory_of_a_burst() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let config = WaitingRoomConfig::default()
            .max_size(MANY + 2)
            .discipline(discipline)
            .displace(discipline == Discipline::Fair);
        let runtime = Builder::new_current_thread();
        let runtime = { runtime }
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let gate = runtime.block_on(async { Gate::new(SlotPool::new(1), config) });
        let mut waits = None;
        let small = async {
            let mut last = acquire(&gate, 0);
            let held = burst_and(&gate, || assert!(poll(&mut last).is_pending()));
            for nth in 0..16 {
                let mut next = acquire(&gate, nth);
                assert!(poll(&mut next).is_pending());
                last = next;
                advance(Duration::from_secs(6)).await;
            }
            waits = Some((last, held));
        };
        let measured = allocation_counter::measure(|| runtime.block_on(unconstrained(small)));
        assert_eq!(gate.status().depth, 1);
        let kept = measured.bytes_current;
        assert!(kept < LITTLE, "{kept} bytes, {discipline:?}");
    }
}

#[test]
fn an_idle_gate_keeps_little_memory_of_a_burst() {
    let kept = kept_after(|gate| async move {
        let _held = burst(&gate);
        yield_now().await;
        for _ in 0..4 {
            advance(Duration::from_secs(31)).await;
            yield_now().await;
        }
    });
    assert!(kept < LITTLE, "{kept} bytes");
}

#[test]
fn an_idle_gate_keeps_little_memory_of_a_burst_that_timed_out() {
    let kept = kept_after(|gate| async move {
        let _held = gate.try_acquire(&()).unwrap();
        let mut all: Vec<_> = (0..MANY).map(|nth| acquire(&gate, nth)).collect();
        assert!(all.iter_mut().all(|acquire| poll(acquire).is_pending()));
        yield_now().await;
        advance(Duration::from_secs(31)).await;
        yield_now().await;
        assert!(all.iter_mut().all(|acquire| poll(acquire).is_ready()));
        drop(all);
        assert_eq!(gate.status().stats.timed_out, MANY as u64);
        for _ in 0..4 {
            advance(Duration::from_secs(31)).await;
            yield_now().await;
        }
    });
    assert!(kept < LITTLE, "{kept} bytes");
}

#[test]
fn waits_that_went_on_leave_little_memory() {
    let config = WaitingRoomConfig::default()
        .max_size(2 * MANY)
        .max_wait(None)
        .target_wait(Duration::from_secs(20));
    let kept = kept_after_in(config, |gate| async move {
        let (held, first) = (gate.try_acquire(&()).unwrap(), Instant::now().into_std());
        advance(Duration::from_secs(100)).await;
        let again = Ticket::new(Priority::HIGHEST, first).requeued();
        let requeued = (0..MANY).map(|_| gate.acquire(again.clone(), ()));
        let mut all: Vec<_> = requeued.collect();
        assert!(all.iter_mut().all(|acquire| poll(acquire).is_pending()));
        drop((all, held));
        assert!(poll(&mut acquire(&gate, 0)).is_ready());
        yield_now().await;
        for _ in 0..4 {
            advance(Duration::from_secs(61)).await;
            yield_now().await;
        }
    });
    assert!(kept < LITTLE, "{kept} bytes");
}

#[test]
fn a_gate_that_fills_repeatedly_keeps_its_memory() {
    // Paused: memory is given back after half a minute.
    let runtime = Builder::new_current_thread();
    let runtime = { runtime }
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let _clock = runtime.enter();
    let gate = gate();
    let mut allocated = Vec::new();
    for _ in 0..3 {
        let measured = allocation_counter::measure(|| drop(burst(&gate)));
        allocated.push(measured.bytes_total);
    }
    assert!(allocated[2] < allocated[0] / 2, "{allocated:?}");
}

/// [`MANY`] tenants wait, and leave. Returns the slot that they waited for.
fn burst(gate: &Gate<SlotPool>) -> Permit<SlotPool> {
    burst_and(gate, || ())
}

/// As [`burst`], and does something before they leave.
fn burst_and(gate: &Gate<SlotPool>, act: impl FnOnce()) -> Permit<SlotPool> {
    let held = gate.try_acquire(&()).unwrap();
    let mut all: Vec<_> = (0..MANY).map(|nth| acquire(gate, nth)).collect();
    assert!(all.iter_mut().all(|acquire| poll(acquire).is_pending()));
    assert!(gate.status().depth >= MANY);
    act();
    held
}

/// The bytes that are still allocated after `act`, and were not before.
fn kept_after<F: Future<Output = ()>>(act: impl FnOnce(Gate<SlotPool>) -> F) -> i64 {
    kept_after_in(config(), act)
}

/// As [`kept_after`], in a waiting room of this configuration.
fn kept_after_in<F: Future<Output = ()>>(
    config: WaitingRoomConfig,
    act: impl FnOnce(Gate<SlotPool>) -> F,
) -> i64 {
    let runtime = Builder::new_current_thread();
    let runtime = { runtime }
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let gate = runtime.block_on(async { Gate::new(SlotPool::new(1), config) });
    let act = act(gate.clone());
    // All requests of a burst arrive in one poll.
    let measured = allocation_counter::measure(|| runtime.block_on(unconstrained(act)));
    assert!(measured.bytes_max > 10 * LITTLE as u64, "there was a burst");
    assert_eq!(gate.status().depth, 0);
    measured.bytes_current
}

fn gate() -> Gate<SlotPool> {
    Gate::new(SlotPool::new(1), config())
}

fn config() -> WaitingRoomConfig {
    let mut config = WaitingRoomConfig::default();
    config.max_size = 2 * MANY;
    config.discipline = Discipline::Fair;
    config.max_size_per_tenant = Some(10);
    config
}

fn acquire(gate: &Gate<SlotPool>, tenant: usize) -> Acquire<SlotPool> {
    let ticket = Ticket::new(Priority::HIGHEST, Instant::now().into_std());
    gate.acquire(ticket.tenant(Tenant::from(tenant.to_string())), ())
}

fn poll(acquire: &mut Acquire<SlotPool>) -> Poll<<Acquire<SlotPool> as Future>::Output> {
    Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()))
}
