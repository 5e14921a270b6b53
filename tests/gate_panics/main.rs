//! A capacity is user code: one that panics counts as busy. No panic reaches a request, and no slot is lost.
#![cfg(not(loom))]

#[path = "../support/log.rs"]
mod log;

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tower_triage::admit::{
    AdmitOutcome, Capacity, LeaseError, PoolId, PoolSet, SlotUsage, WaitingRoom, WakeList,
};
use tower_triage::gate::{Gate, Permit};
use tower_triage::{Priority, RejectReason, SlotPool, Ticket, WaitingRoomConfig};
use tracing_subscriber::filter::LevelFilter;

use log::Log;

const GUARD: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_slot_missed_in_a_panic_goes_to_the_best_at_the_next_event() {
    let (gate, held) = flaky();
    let mut first = gate.acquire(ticket(), None);
    assert!(poll_once(&mut first).is_pending());
    let mut second = gate.acquire(ticket(), None);
    assert!(poll_once(&mut second).is_pending());
    gate.capacity().fails.store(1, SeqCst);
    drop(held); // panics over the first
    assert!(poll_once(&mut first).is_pending());
    assert_eq!((gate.status().depth, gate.status().running), (2, 0));
    let mut third = gate.acquire(ticket(), None);
    assert!(poll_once(&mut third).is_pending());
    let Poll::Ready(Ok(served)) = poll_once(&mut first) else {
        panic!("the first one has the slot");
    };
    assert!(poll_once(&mut second).is_pending());
    drop((second, third, served));
    assert_eq!((gate.status().depth, gate.status().running), (0, 0));
}

#[tokio::test]
async fn a_panic_is_logged_once_for_each_call() {
    let log = Log::default();
    let _guards = log.install(LevelFilter::ERROR);
    let (gate, held) = flaky();
    let mut waiter = gate.acquire(ticket(), None);
    assert!(poll_once(&mut waiter).is_pending());
    gate.capacity().fails.store(1, SeqCst);
    drop(held);
    assert_eq!(log.take().matches("a capacity panicked").count(), 1);
    gate.capacity_changed();
    assert!(poll_once(&mut waiter).is_ready());
    assert_eq!(log.take(), "");
}

#[tokio::test]
async fn a_panic_over_an_arrival_counts_as_busy() {
    let gate = Gate::new(Flaky::new(2), room(None));
    gate.capacity().fails.store(i64::MAX, SeqCst);
    assert!(gate.try_acquire(&None).is_none());
    let mut waiter = gate.acquire(ticket(), None);
    assert!(poll_once(&mut waiter).is_pending());
    let mut refused = gate.acquire(ticket().no_wait(), None);
    assert!(matches!(
        poll_once(&mut refused),
        Poll::Ready(Err(RejectReason::NotQueued))
    ));
    gate.capacity().fails.store(0, SeqCst);
    let mut second = gate.acquire(ticket(), None);
    assert!(poll_once(&mut second).is_ready());
    assert!(poll_once(&mut waiter).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_whatever_the_capacity_does() {
    let (gate, held) = flaky();
    let waiter = tokio::spawn(gate.acquire(ticket().timeout(ms(100)), None));
    tokio::task::yield_now().await;
    gate.capacity().fails.store(i64::MAX, SeqCst);
    drop(held);
    let answer = timeout(ms(200), waiter).await.unwrap().unwrap();
    assert!(matches!(answer, Err(RejectReason::DeadlinePassed)));
}

#[tokio::test]
async fn a_grant_dropped_in_unwinding_is_not_lost() {
    let (gate, held) = flaky();
    let mut first = gate.acquire(ticket(), None);
    assert!(poll_once(&mut first).is_pending());
    let second = tokio::spawn(gate.acquire(ticket(), None));
    let third = tokio::spawn(gate.acquire(ticket(), None));
    tokio::task::yield_now().await;
    drop(held); // to the first
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _first = first;
        gate.capacity().fails.store(1, SeqCst);
        panic!("while a slot is there");
    }));
    assert!(unwound.is_err());
    gate.capacity_changed();
    for next in [second, third] {
        assert!(timeout(GUARD, next).await.unwrap().is_ok());
    }
    assert_eq!((gate.status().depth, gate.status().running), (0, 0));
}

#[test]
fn a_demand_is_dropped_without_the_lock_when_try_lease_panics() {
    let ended = ends(|| {
        let gate = Gate::new(Flaky::new(2), room(None).max_size(1));
        let one = gate.try_acquire(&None).unwrap();
        let two = gate.try_acquire(&None).unwrap();
        let mut waiter = gate.acquire(ticket(), None);
        assert!(poll_once(&mut waiter).is_pending());
        let demand: Demand = Some(Arc::new(two));
        let mut newcomer = gate.acquire(ticket(), demand);
        gate.capacity().fails.store(1, SeqCst);
        assert!(poll_once(&mut newcomer).is_ready(), "the room is full");
        drop(one);
    });
    assert!(ended, "the demand was dropped under the lock");
}

#[test]
fn a_demand_is_dropped_without_the_lock_when_lane_panics() {
    let ended = ends(|| {
        let gate = Gate::new(Flaky::new(1), room(None));
        let held = gate.try_acquire(&None).unwrap();
        let mut waiter = gate.acquire(ticket(), None);
        assert!(poll_once(&mut waiter).is_pending());
        let demand: Demand = Some(Arc::new(held));
        let mut newcomer = gate.acquire(ticket(), demand);
        gate.capacity().lane_fails.store(true, SeqCst);
        assert!(matches!(
            poll_once(&mut newcomer),
            Poll::Ready(Err(RejectReason::NotQueued))
        ));
    });
    assert!(ended, "the demand was dropped under the lock");
}

#[tokio::test]
async fn a_panic_over_a_new_ticket_costs_the_waiter_nothing() {
    let (gate, held) = flaky();
    let mut waiter = gate.acquire(ticket(), None);
    assert!(poll_once(&mut waiter).is_pending());
    gate.capacity().lane_fails.store(true, SeqCst);
    assert!(waiter.set_ticket(ticket(), None));
    gate.capacity().lane_fails.store(false, SeqCst);
    gate.capacity().fails.store(1, SeqCst);
    assert!(waiter.set_ticket(ticket(), None));
    assert_eq!(gate.status().depth, 1);
    drop(held);
    assert!(poll_once(&mut waiter).is_ready());
    drop(waiter);
    assert_eq!((gate.status().depth, gate.status().running), (0, 0));
}

#[test]
fn a_new_demand_is_dropped_without_the_lock_when_lane_panics() {
    let ended = ends(|| {
        let gate = Gate::new(Flaky::new(2), room(None));
        let one = gate.try_acquire(&None).unwrap();
        let _two = gate.try_acquire(&None).unwrap();
        let mut waiter = gate.acquire(ticket(), None);
        assert!(poll_once(&mut waiter).is_pending());
        gate.capacity().lane_fails.store(true, SeqCst);
        let demand: Demand = Some(Arc::new(one));
        assert!(waiter.set_ticket(ticket(), demand));
        assert!(waiter.set_ticket(ticket(), None));
    });
    assert!(ended, "the demand was dropped under the lock");
}

#[tokio::test]
async fn a_panic_in_pool_loses_no_slot() {
    let (gate, held) = flaky();
    let mut waiter = gate.acquire(ticket(), None);
    assert!(poll_once(&mut waiter).is_pending());
    gate.capacity().pool_fails.store(1, SeqCst);
    drop(held);
    let _ = poll_once(&mut waiter);
    drop(waiter);
    assert_eq!(gate.status().running, 0, "the slot is lost");
}

#[tokio::test]
async fn dropping_a_permit_of_a_closed_gate_never_panics() {
    let (gate, held) = flaky();
    gate.close();
    gate.capacity().in_use_fails.store(true, SeqCst);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(held)));
    gate.capacity().in_use_fails.store(false, SeqCst);
    assert!(dropped.is_ok());
}

#[tokio::test]
async fn a_panic_while_lanes_are_rebuilt_loses_no_waiter() {
    let (gate, held) = flaky();
    let waiter = tokio::spawn(gate.acquire(ticket(), None));
    tokio::task::yield_now().await;
    gate.capacity().lane_fails.store(true, SeqCst);
    gate.capacity_changed();
    gate.capacity().lane_fails.store(false, SeqCst);
    drop(held);
    assert!(timeout(GUARD, waiter).await.is_ok(), "the waiter is lost");
}

#[tokio::test]
async fn a_panic_over_a_new_lane_leaves_no_trace_of_the_request() {
    let gate = Gate::new(Forgetful(SlotPool::new(1)), room(None));
    let held = gate.try_acquire(&Asks(true, Arc::new(()))).unwrap();
    let kept = Arc::new(());
    for _ in 0..5 {
        let mut newcomer = gate.acquire(ticket(), Asks(false, Arc::clone(&kept)));
        assert!(matches!(
            poll_once(&mut newcomer),
            Poll::Ready(Err(RejectReason::NotQueued))
        ));
    }
    drop(held);
    assert_eq!(Arc::strong_count(&kept), 1, "demands are kept for ever");
}

#[tokio::test]
async fn a_panic_in_pool_over_an_arrival_loses_no_slot() {
    let gate = Gate::new(Flaky::new(2), room(None));
    let one = gate.try_acquire(&None).unwrap();
    let two = gate.try_acquire(&None).unwrap();
    let mut waiter = gate.acquire(ticket(), None);
    assert!(poll_once(&mut waiter).is_pending());
    // A slot is free that the waiter has yet to be asked for.
    gate.capacity().fails.store(1, SeqCst);
    drop(one);
    gate.capacity().pool_fails.store(1, SeqCst);
    let mut newcomer = gate.acquire(ticket(), None);
    assert!(poll_once(&mut newcomer).is_pending());
    drop((waiter, two));
    assert!(poll_once(&mut newcomer).is_ready());
    drop(newcomer);
    assert_eq!((gate.status().depth, gate.status().running), (0, 0));
}

#[tokio::test]
async fn a_panic_over_a_slot_that_is_passed_on_costs_no_waiter_its_slot() {
    let (gate, held) = flaky();
    let mut first = gate.acquire(ticket(), None);
    assert!(poll_once(&mut first).is_pending());
    gate.capacity().fails.store(1, SeqCst);
    drop(held); // panics over the first
    let mut second = gate.acquire(ticket(), None);
    gate.capacity().release_fails.store(1, SeqCst);
    // Takes the slot and gives it back, for the first.
    assert!(poll_once(&mut second).is_pending());
    assert_eq!((gate.status().depth, gate.status().running), (1, 1));
    assert!(poll_once(&mut first).is_ready());
}

#[test]
fn a_lease_that_is_returned_in_a_panic_goes_to_the_next() {
    let capacity = Flaky::new(1);
    let now = Instant::now();
    let (mut room, mut wakes) = (WaitingRoom::new(room(None), now), WakeList::new());
    let lease = capacity.try_lease(&None).unwrap();
    let waiter = room.arrive(&capacity, ticket(), None, now, &mut wakes);
    let AdmitOutcome::Queued(waiter) = waiter else {
        panic!("no slot is free");
    };
    room.set_waker(waiter, ()).unwrap();
    capacity.release_fails.store(1, SeqCst);
    room.on_lease_returned(&capacity, lease, now, &mut wakes);
    assert!(matches!(room.take_outcome(waiter), Some(Ok(_))));
}

#[tokio::test]
async fn a_demand_that_panics_when_it_is_dropped_loses_no_slot() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(thread::panicking(), "a bug");
        }
    }
    let (gate, held) = flaky();
    let mut waiter = gate.acquire(ticket(), Some(Arc::new(Panics)));
    assert!(poll_once(&mut waiter).is_pending());
    drop(held);
    let answered = catch_unwind(AssertUnwindSafe(|| drop(poll_once(&mut waiter))));
    assert!(answered.is_err());
    drop(waiter);
    assert_eq!((gate.status().depth, gate.status().running), (0, 0));
}

/// Whether `act` ends, or panics, in time.
fn ends(act: impl FnOnce() + Send + 'static) -> bool {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let _ = catch_unwind(AssertUnwindSafe(act));
        let _ = done.send(());
    });
    is_done.recv_timeout(GUARD).is_ok()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn room(max_wait: Option<Duration>) -> WaitingRoomConfig {
    let mut config = WaitingRoomConfig::default();
    config.max_wait = max_wait;
    config
}

fn ticket() -> Ticket {
    Ticket::new(Priority::HIGHEST, tokio::time::Instant::now().into_std())
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn flaky() -> (Gate<Flaky>, Permit<Flaky>) {
    let gate = Gate::new(Flaky::new(1), room(None));
    let held = gate.try_acquire(&None).unwrap();
    (gate, held)
}

/// Slots, and bugs that can be switched on.
struct Flaky {
    slots: SlotPool,
    fails: AtomicI64,
    release_fails: AtomicI64,
    pool_fails: AtomicI64,
    in_use_fails: AtomicBool,
    lane_fails: AtomicBool,
}
impl Flaky {
    fn new(slots: usize) -> Self {
        Self {
            slots: SlotPool::new(slots),
            fails: AtomicI64::new(0),
            release_fails: AtomicI64::new(0),
            pool_fails: AtomicI64::new(0),
            in_use_fails: AtomicBool::new(false),
            lane_fails: AtomicBool::new(false),
        }
    }
}
/// What is asked for, and what is dropped with it.
type Demand = Option<Arc<dyn Send + Sync>>;
impl Capacity for Flaky {
    type Demand = Demand;
    type Lease = <SlotPool as Capacity>::Lease;
    type Lane = ();
    type Unservable = Infallible;
    fn try_lease(&self, _: &Demand) -> Result<Self::Lease, LeaseError<Infallible>> {
        assert!(self.fails.fetch_sub(1, SeqCst) <= 0, "a bug");
        self.slots.try_lease(&())
    }
    fn release(&self, lease: Self::Lease) -> PoolId {
        let pool = self.slots.release(lease);
        assert!(self.release_fails.fetch_sub(1, SeqCst) <= 0, "a bug");
        pool
    }
    fn pool(&self, lease: &Self::Lease) -> PoolId {
        assert!(self.pool_fails.fetch_sub(1, SeqCst) <= 0, "a bug");
        self.slots.pool(lease)
    }
    fn lane(&self, _: &Demand) {
        assert!(!self.lane_fails.load(SeqCst), "a bug");
    }
    fn pools(&self, lane: &()) -> PoolSet {
        self.slots.pools(lane)
    }
    fn usage(&self) -> SlotUsage {
        assert!(!self.in_use_fails.load(SeqCst), "a bug");
        self.slots.usage()
    }
    fn leased(&self) -> u64 {
        self.slots.leased()
    }
}

/// Whether the lane is known, and what is dropped with the demand.
#[derive(Clone)]
struct Asks(
    bool,
    #[expect(dead_code, reason = "counts its owners")] Arc<()>,
);

/// Has a bug in one lane.
struct Forgetful(SlotPool);
impl Capacity for Forgetful {
    type Demand = Asks;
    type Lease = <SlotPool as Capacity>::Lease;
    type Lane = bool;
    type Unservable = Infallible;
    fn try_lease(&self, _: &Asks) -> Result<Self::Lease, LeaseError<Infallible>> {
        self.0.try_lease(&())
    }
    fn release(&self, lease: Self::Lease) -> PoolId {
        self.0.release(lease)
    }
    fn pool(&self, lease: &Self::Lease) -> PoolId {
        self.0.pool(lease)
    }
    fn lane(&self, Asks(known, _): &Asks) -> bool {
        *known
    }
    fn pools(&self, &lane: &bool) -> PoolSet {
        assert!(lane, "a bug");
        self.0.pools(&())
    }
    fn usage(&self) -> SlotUsage {
        self.0.usage()
    }

    fn leased(&self) -> u64 {
        self.0.leased()
    }
}
