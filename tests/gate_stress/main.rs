//! A gate under a million operations from many tasks on several threads.
//!
//! `OPERATIONS=20000000 cargo test --release --test gate_stress` for more of them.
#![cfg(not(loom))]

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;
use tower_triage::admit::TargetWait;
use tower_triage::gate::{Acquire, Gate, Permit};
use tower_triage::{Priority, PriorityLevels, SlotPool, Ticket, WaitingRoomConfig};

const TASKS: u64 = 48;
const MOST: usize = 8;

#[derive(Default)]
struct Seen {
    arrived: AtomicU64,
    served: AtomicU64,
    rejected: AtomicU64,
    inside: AtomicUsize,
    done: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_million_operations_leave_nothing_behind() {
    let operations: u64 = std::env::var("OPERATIONS").map_or(1_000_000, |n| n.parse().unwrap());
    let mut config = WaitingRoomConfig::default();
    config.max_size = 24;
    config.max_wait = None;
    config.target_wait = TargetWait::Off; // the room is to be full
    config.displace = false; // a caller may leave before it learns that it was displaced
    let gate = Gate::new(SlotPool::new(MOST), config);
    let seen = Arc::new(Seen::default());
    let changer = tokio::spawn(change_limits(gate.clone(), Arc::clone(&seen)));
    let mut tasks = JoinSet::new();
    for seed in 0..TASKS {
        let (gate, seen) = (gate.clone(), Arc::clone(&seen));
        // An arrival is one operation, a departure another.
        tasks.spawn(come_and_go(gate, seen, seed, operations / 2 / TASKS));
    }
    let all = timeout(Duration::from_secs(300), tasks.join_all());
    all.await.expect("a task was never woken");
    seen.done.store(true, Relaxed);
    changer.await.unwrap();
    let status = gate.status();
    let counts = status.stats;
    assert_eq!((status.depth, status.running), (0, 0));
    assert_eq!(status.served, seen.served.load(Relaxed));
    assert_eq!(counts.rejected(), seen.rejected.load(Relaxed));
    let accounted = status.served + counts.rejected() + counts.cancelled;
    assert_eq!(accounted, seen.arrived.load(Relaxed));
    assert!(counts.cancelled > 0 && counts.full > 0);
    gate.close();
    gate.closed().await;
}

async fn come_and_go(gate: Gate<SlotPool>, seen: Arc<Seen>, seed: u64, times: u64) {
    let mut rng = Rng::with_seed(seed);
    let levels = [
        Priority::HIGHEST,
        PriorityLevels::default().default_priority(),
    ];
    for _ in 0..times {
        let ticket = Ticket::new(levels[rng.usize(0..2)], Instant::now());
        seen.arrived.fetch_add(1, Relaxed);
        let patience = rng.bool().then(|| rng.u8(0..4));
        let Some(answer) = wait(gate.acquire(ticket, ()), patience).await else {
            continue;
        };
        let Ok(permit) = answer else {
            seen.rejected.fetch_add(1, Relaxed);
            yield_now().await;
            continue;
        };
        seen.served.fetch_add(1, Relaxed);
        assert!(seen.inside.fetch_add(1, Relaxed) < MOST);
        if rng.u8(..) < 64 {
            yield_now().await;
        }
        seen.inside.fetch_sub(1, Relaxed);
        give_back(&gate, permit, rng.u8(..) < 16);
    }
}

/// Waits for the answer; with a limit, for no more polls than that.
async fn wait<T>(mut acquire: Acquire<SlotPool>, patience: Option<u8>) -> Option<T>
where
    Acquire<SlotPool>: Future<Output = T>,
{
    let Some(looks) = patience else {
        return Some(acquire.await);
    };
    for _ in 0..=looks {
        let look = poll_fn(|cx| Poll::Ready(Pin::new(&mut acquire).poll(cx)));
        if let Poll::Ready(answer) = look.await {
            return Some(answer);
        }
        yield_now().await;
    }
    None
}

fn give_back(gate: &Gate<SlotPool>, permit: Permit<SlotPool>, by_name: bool) {
    if by_name {
        assert!(gate.release(&permit.detach()));
    }
}

async fn change_limits(gate: Gate<SlotPool>, seen: Arc<Seen>) {
    let mut rng = Rng::with_seed(0);
    while !seen.done.load(Relaxed) {
        gate.set_limit(rng.usize(1..=MOST));
        yield_now().await;
    }
}
