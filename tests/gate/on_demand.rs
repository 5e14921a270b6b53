//! A capacity with slots on demand, through a `Gate`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_triage::admit::{
    Capacity, LeaseError, OnDemandCapacity, PoolId, PoolSet, SlotState, SlotUsage, TargetWait,
};
use tower_triage::{Gate, Priority, RejectReason, Ticket, WaitingRoomConfig};

/// Two models of one slot each, which run or do not.
#[derive(Clone, Default)]
struct Models(Arc<Inner>);

#[derive(Default)]
struct Inner {
    runs: [AtomicBool; 2],
    taken: [AtomicUsize; 2],
    reports: AtomicU32,
    overtakes: Mutex<Vec<(PoolId, Priority)>>,
    leased: AtomicU64,
}

impl Models {
    fn set(&self, model: u32, runs: bool) {
        self.0.runs[model as usize].store(runs, SeqCst);
    }

    /// Returns the number of reports of lane heads since the last call.
    fn reports(&self) -> u32 {
        self.0.reports.swap(0, SeqCst)
    }
}

impl Capacity for Models {
    type Demand = u32;
    type Lease = PoolId;
    type Lane = u32;
    type Unservable = Infallible;

    fn try_lease(&self, model: &u32) -> Result<PoolId, LeaseError<Infallible>> {
        let nth = *model as usize;
        if !self.0.runs[nth].load(SeqCst) || self.0.taken[nth].swap(1, SeqCst) == 1 {
            return Err(LeaseError::Busy);
        }
        self.0.leased.fetch_add(1, SeqCst);
        Ok(PoolId(*model))
    }
    fn release(&self, pool: PoolId) -> PoolId {
        self.0.taken[pool.0 as usize].store(0, SeqCst);
        pool
    }
    fn pool(&self, pool: &PoolId) -> PoolId {
        *pool
    }
    fn lane(&self, model: &u32) -> u32 {
        *model
    }
    fn pools(&self, model: &u32) -> PoolSet {
        PoolSet::one(PoolId(*model))
    }
    fn usage(&self) -> SlotUsage {
        SlotUsage {
            slots: 2,
            in_use: self.0.taken.iter().map(|taken| taken.load(SeqCst)).sum(),
        }
    }
    fn leased(&self) -> u64 {
        self.0.leased.load(SeqCst)
    }
    fn on_demand(&self) -> Option<&dyn OnDemandCapacity<PoolId>> {
        Some(self)
    }
}

impl OnDemandCapacity<PoolId> for Models {
    fn slot_state(&self, pool: PoolId) -> SlotState {
        match self.0.runs[pool.0 as usize].load(SeqCst) {
            true => SlotState::Ready,
            false => SlotState::Stopped,
        }
    }
    fn on_lane_heads_changed(&self) {
        self.0.reports.fetch_add(1, SeqCst);
    }
    fn on_overtake(&self, pool: &PoolId, level: Priority) {
        self.0.overtakes.lock().unwrap().push((*pool, level));
    }
}

fn ticket(level: u8) -> Ticket {
    Ticket::new(Priority(level), Instant::now().into_std())
}

type Waiting = tokio::task::JoinHandle<Result<(), RejectReason<Infallible>>>;

/// A request that waits from here on, and is served for a second once it has its slot.
async fn wait(gate: &Gate<Models>, level: u8, model: u32) -> Waiting {
    let gate = gate.clone();
    let waiting = tokio::spawn(async move {
        let permit = gate.acquire(ticket(level), model).await?;
        sleep(Duration::from_secs(1)).await;
        drop(permit);
        Ok(())
    });
    tokio::task::yield_now().await;
    waiting
}

fn first(gate: &Gate<Models>) -> Vec<(u32, u8)> {
    let mut first: Vec<_> = gate
        .lane_heads()
        .iter()
        .map(|first| (first.lane, first.level.0))
        .collect();
    first.sort_unstable();
    first
}

#[tokio::test(start_paused = true)]
async fn a_new_lane_head_is_reported() {
    let models = Models::default();
    let gate = Gate::new(models.clone(), WaitingRoomConfig::default());
    models.reports();
    let normal = wait(&gate, 1, 0).await;
    assert!(models.reports() > 0);
    assert_eq!(first(&gate), [(0, 1)]);
    let _behind = wait(&gate, 1, 0).await;
    assert_eq!(models.reports(), 0, "the first one is the same");
    let _urgent = wait(&gate, 0, 0).await;
    assert!(models.reports() > 0);
    assert_eq!(first(&gate), [(0, 0)]);
    let other = wait(&gate, 1, 1).await;
    assert!(models.reports() > 0);
    assert_eq!(first(&gate), [(0, 0), (1, 1)]);
    other.abort();
    tokio::task::yield_now().await;
    assert!(models.reports() > 0);
    assert_eq!(first(&gate), [(0, 0)]);
    models.set(0, true);
    gate.capacity_changed();
    tokio::task::yield_now().await;
    assert!(models.reports() > 0);
    assert_eq!(first(&gate), [(0, 1)]);
    sleep(Duration::from_secs(5)).await;
    assert!(normal.await.unwrap().is_ok());
    assert_eq!(first(&gate), []);
    models.reports();
    wait(&gate, 1, 0).await.await.unwrap().unwrap();
    assert_eq!(models.reports(), 0, "it did not wait");
}

#[tokio::test(start_paused = true)]
async fn a_lane_head_with_another_ticket_is_reported() {
    let models = Models::default();
    let gate = Gate::new(models.clone(), WaitingRoomConfig::default());
    let mut waiting = gate.acquire(ticket(1), 0);
    assert!(futures_util::poll!(&mut waiting).is_pending());
    let _other = wait(&gate, 1, 1).await;
    models.reports();
    assert!(waiting.set_ticket(ticket(0), 0));
    assert!(models.reports() > 0);
    assert_eq!(first(&gate), [(0, 0), (1, 1)]);
    assert!(waiting.set_ticket(ticket(0), 1));
    assert!(models.reports() > 0);
    assert_eq!(first(&gate), [(1, 0)]);
    // Its new model is there: it passes the one that waits for another.
    models.set(0, true);
    gate.capacity_changed();
    assert!(waiting.set_ticket(ticket(1), 0));
    assert!(waiting.await.is_ok());
    let passed = std::mem::take(&mut *models.0.overtakes.lock().unwrap());
    assert_eq!(passed, [(PoolId(0), Priority(1))]);
}

#[tokio::test(start_paused = true)]
async fn a_capacity_with_one_lane_is_told_of_its_first_waiter() {
    let models = Models::default();
    let gate = Gate::new(models.clone(), WaitingRoomConfig::default());
    models.reports();
    let waiting = wait(&gate, 1, 0).await;
    assert!(models.reports() > 0);
    assert_eq!(first(&gate), [(0, 1)]);
    models.set(0, true);
    gate.capacity_changed();
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_arrival_that_overtakes_waiters_is_reported() {
    let models = Models::default();
    // So all arrivals are seen by the room.
    let config = WaitingRoomConfig::default().max_concurrent_per_tenant(8);
    let gate = Gate::new(models.clone(), config);
    models.set(1, true);
    gate.capacity_changed();
    wait(&gate, 1, 1).await.await.unwrap().unwrap();
    let passed = || std::mem::take(&mut *models.0.overtakes.lock().unwrap());
    assert_eq!(passed(), [], "it passed no request");
    let _urgent = wait(&gate, 0, 0).await;
    let served = wait(&gate, 1, 1).await;
    assert_eq!(passed(), [(PoolId(1), Priority(1))]);
    let next = wait(&gate, 2, 1).await;
    served.await.unwrap().unwrap();
    next.await.unwrap().unwrap();
    assert_eq!(passed(), [], "it waited for its slot");
}

/// The time in which the slot is not there says nothing of how long its requests take.
#[tokio::test(start_paused = true)]
async fn no_request_is_refused_because_its_slot_is_starting() {
    let models = Models::default();
    let target = TargetWait::After(Duration::from_secs(10));
    let config = WaitingRoomConfig::default()
        .target_wait(target)
        .max_wait(Duration::from_secs(400));
    let gate = Gate::new(models.clone(), config);
    models.set(0, true);
    gate.capacity_changed();
    // So long that bursts are not worth waiting for.
    let mut sent = VecDeque::new();
    for _ in 0..20_000 {
        sent.push_back(wait(&gate, 1, 0).await);
        if sent.len() > 3 {
            sent.pop_front().unwrap().await.unwrap().unwrap();
        }
    }
    for sent in sent.drain(..) {
        sent.await.unwrap().unwrap();
    }
    // It takes five minutes until the slot is there again.
    models.set(0, false);
    gate.capacity_changed();
    for _ in 0..8 {
        sent.push_back(wait(&gate, 1, 0).await);
        sleep(Duration::from_secs(40)).await;
    }
    models.set(0, true);
    gate.capacity_changed();
    for sent in sent {
        sent.await.unwrap().unwrap();
    }
    // Nor are the next ones, which wait for 9 s by a service of 1 s.
    let mut sent = Vec::new();
    for _ in 0..10 {
        sent.push(wait(&gate, 1, 0).await);
    }
    for sent in sent {
        sent.await.unwrap().unwrap();
    }
    assert_eq!(gate.status().stats.overloaded, 0);
}
