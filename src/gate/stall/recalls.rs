//! Recalls of slots whose clients stall, on Tokio's paused clock.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::*;
use crate::admit::{
    Discipline, LeaseError, PoolSet, Priority, Slot, SlotPool, SlotUsage, TargetWait, Ticket,
    WaitingRoomConfig,
};
use crate::gate::Gate;

const SECOND: Duration = Duration::from_secs(1);

fn fair() -> WaitingRoomConfig {
    WaitingRoomConfig::default()
        .discipline(Discipline::Fair)
        .max_wait(None)
        .target_wait(TargetWait::Off)
}

fn ticket(level: u8, tenant: &str) -> Ticket {
    Ticket::from(Priority(level)).tenant(tenant.into())
}

type Asked<C> = JoinHandle<Permit<C>>;

fn ask<C: Capacity<Demand = (), Unservable = Infallible>>(
    gate: &Gate<C>,
    ticket: Ticket,
) -> Asked<C> {
    let acquire = gate.acquire(ticket, ());
    tokio::spawn(async { acquire.await.unwrap() })
}

/// The client of a greedy request, which never lets its answer end.
#[derive(Debug, Clone, Copy)]
enum Client {
    ReadsNothing,
    SendsABytePerSecond,
    HoldsAWebsocket,
}

impl Client {
    /// Holds a slot until it is recalled.
    async fn hold<C: Capacity>(self, permit: Permit<C>) {
        let stall = permit.client_stall().expect("slots are shared");
        match self {
            Self::ReadsNothing => stall.begin(LARGEST),
            Self::HoldsAWebsocket => {
                stall.on_upgraded();
                stall.begin_after(SECOND);
            }
            Self::SendsABytePerSecond => {
                while !stall.recalled().is_cancelled() {
                    stall.begin(0);
                    _ = timeout(SECOND, stall.recalled().cancelled()).await;
                    stall.end(1);
                }
            }
        }
        stall.recalled().cancelled().await;
    }
}

/// Returns the share of honest requests that get a slot within 10 s: those of three tenants with 0.7 of the load, beside one whose
/// clients stall as soon as they have a slot.
async fn honest_share(slots: usize, greedy: Client) -> f64 {
    const LENGTH: f64 = 120.0;
    const WARM: f64 = 40.0;
    const SERVICE: f64 = 0.2;
    let gate = Gate::new(
        SlotPool::new(slots),
        fair().target_wait(TargetWait::default()),
    );
    let mut attack = JoinSet::new();
    for _ in 0..5 * slots {
        let gate = gate.clone();
        attack.spawn(async move {
            loop {
                match gate.acquire(ticket(1, "greedy"), ()).await {
                    Ok(permit) => greedy.hold(permit).await,
                    Err(_) => sleep(SECOND / 10).await,
                }
            }
        });
    }
    let mut honest = JoinSet::new();
    for tenant in ["a", "b", "c"] {
        let mut random = fastrand::Rng::with_seed(u64::from(tenant.as_bytes()[0]));
        let gate = gate.clone();
        honest.spawn(async move {
            let mut asked = JoinSet::new();
            let (begin, mut at) = (tokio::time::Instant::now(), 0.0);
            let per_second = 0.7 / 3.0 * slots as f64 / SERVICE;
            while at < LENGTH {
                at += -(1.0 - random.f64()).ln() / per_second;
                tokio::time::sleep_until(begin + Duration::from_secs_f64(at)).await;
                let acquire = gate.acquire(ticket(1, tenant).cost(100), ());
                asked.spawn(async move {
                    let answer = timeout(10 * SECOND, acquire).await;
                    let permit = answer.ok().and_then(Result::ok);
                    let is_served = permit.is_some();
                    sleep(Duration::from_secs_f64(SERVICE)).await;
                    drop(permit);
                    (at, is_served)
                });
            }
            asked.join_all().await
        });
    }
    let served = honest.join_all().await.concat();
    let served: Vec<bool> = served
        .into_iter()
        .filter(|it| it.0 > WARM)
        .map(|it| it.1)
        .collect();
    served.iter().filter(|&&is_served| is_served).count() as f64 / served.len() as f64
}

#[tokio::test(start_paused = true)]
async fn clients_that_stall_leave_the_others_their_share() {
    for client in [
        Client::ReadsNothing,
        Client::SendsABytePerSecond,
        Client::HoldsAWebsocket,
    ] {
        for slots in [4, 8, 16] {
            let share = honest_share(slots, client).await;
            // Without recalls it is 0.
            assert!(share >= 0.9, "{client:?}, {slots} slots: {share}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_before_any_slot_was_held_gets_a_recalled_one() {
    let gate = Gate::new(SlotPool::new(0), fair());
    let waiting = ask(&gate, ticket(1, "honest"));
    let urgent = ask(&gate, ticket(0, "greedy"));
    yield_now().await;
    gate.set_limit(1);
    let held = urgent.await.unwrap();
    tokio::spawn(Client::ReadsNothing.hold(held));
    let slot = timeout(60 * SECOND, waiting).await;
    drop(slot.expect("the slot is recalled").unwrap());
}

/// Slots that count the questions for their number.
struct Counted {
    slots: SlotPool,
    questions: AtomicUsize,
}

impl Capacity for Counted {
    type Demand = ();
    type Lease = Slot;
    type Lane = ();
    type Unservable = Infallible;

    fn try_lease(&self, demand: &()) -> Result<Slot, LeaseError<Infallible>> {
        self.slots.try_lease(demand)
    }

    fn release(&self, lease: Slot) -> PoolId {
        self.slots.release(lease)
    }

    fn pool(&self, lease: &Slot) -> PoolId {
        self.slots.pool(lease)
    }

    fn lane(&self, demand: &()) {
        self.slots.lane(demand);
    }

    fn pools(&self, lane: &()) -> PoolSet {
        self.slots.pools(lane)
    }

    fn pool_usage(&self, pool: PoolId) -> SlotUsage {
        self.questions.fetch_add(1, Relaxed);
        self.slots.pool_usage(pool)
    }

    fn usage(&self) -> SlotUsage {
        self.slots.usage()
    }

    fn leased(&self) -> u64 {
        self.slots.leased()
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_counts_the_waiters_once_for_each_tenant() {
    let slots = Counted {
        slots: SlotPool::new(32),
        questions: AtomicUsize::new(0),
    };
    let gate = Gate::new(slots, fair());
    let mut stalls = Vec::new();
    let mut held = Vec::new();
    for _ in 0..32 {
        let permit = ask(&gate, ticket(1, "greedy")).await.unwrap();
        let stall = permit.client_stall().unwrap();
        stall.begin(0);
        stalls.push(stall);
        held.push(permit);
    }
    let waiting = ask(&gate, ticket(1, "honest"));
    tokio::time::advance(2 * GRACE).await;
    let recalled = gate.shared().with_lock(|shared, state, _| {
        shared.capacity.questions.store(0, Relaxed);
        let recalled = state.stalls_to_recall(&shared.capacity, clock::now());
        (recalled.len(), shared.capacity.questions.load(Relaxed))
    });
    // The timer may have recalled the only slot that is wanted before.
    assert!(recalled.0 <= 1 && recalled.1 <= 1, "{recalled:?}");
    let is_recalled = |stall: &&Arc<ClientStall>| stall.recalled().is_cancelled();
    assert_eq!(stalls.iter().filter(is_recalled).count() + recalled.0, 1);
    drop(held);
    drop(waiting.await.unwrap());
}
