//! Capacities that change before the room is told, or that contradict themselves.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tower_triage::admit::{
    AdmitOutcome, Capacity, LeaseError, PoolId, PoolSet, SlotUsage, Tenant, WaiterId, WaitingRoom,
    WakeList,
};
use tower_triage::{Discipline, Priority, PriorityLevels};
use tower_triage::{Ticket, WaitingRoomConfig};

use super::pools::TestPools;
use super::scenarios::config;

/// More calls of `try_lease` than a room of 24 waiters needs in one step.
const TOO_MANY: usize = 20_000;

#[test]
fn unannounced_change_of_pools_does_not_hang_the_group() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let pools = TestPools::new(&[0, 0], &[vec![0], vec![0]]);
        pools.stop_after(TOO_MANY);
        let now = Instant::now();
        let mut room = WaitingRoom::new(config(|c| c.discipline = discipline), now);
        let arrive = |room: &mut WaitingRoom<TestPools, usize>, lane| {
            let ticket = Ticket::new(Priority::HIGHEST, now);
            match room.arrive(&pools, ticket, lane, now, &mut WakeList::new()) {
                AdmitOutcome::Queued(id) => id,
                other => panic!("{other:?}"),
            }
        };
        // The room takes both lanes to be busy together.
        arrive(&mut room, 0);
        arrive(&mut room, 1);
        pools.set_serves(1, vec![1]);
        pools.set_slots(1, 1);
        pools.asked();
        let id = arrive(&mut room, 1);
        assert!(pools.asked() < 10, "{discipline:?}");

        let mut wakes = WakeList::new();
        room.on_capacity_changed(&pools, now, &mut wakes);
        assert_eq!(room.len(), 2, "one slot, for the first of its lane");
        assert!(room.position(id).is_some());
    }
}

#[test]
fn contradictory_capacity_does_not_hang_the_room() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let erratic = Erratic::new(rng.u64(..));
        let begin = Instant::now();
        let mut room: WaitingRoom<Erratic, ()> = WaitingRoom::new(random_config(&mut rng), begin);
        let mut ids: Vec<WaiterId> = Vec::new();
        for step in 0..400 {
            let now = begin + Duration::from_millis(step);
            let mut wakes = WakeList::new();
            if rng.u8(..4) == 0 {
                erratic.shuffle();
            }
            match rng.u8(..10) {
                0..=4 => {
                    let ticket = Ticket::new(Priority(rng.u8(..3)), now)
                        .tenant(["a", "b", "c"][rng.usize(..3)].into());
                    match room.arrive(&erratic, ticket, rng.u32(..DEMANDS), now, &mut wakes) {
                        AdmitOutcome::Queued(id) => ids.push(id),
                        AdmitOutcome::Leased(lease) => _ = erratic.release(lease),
                        AdmitOutcome::Rejected(_) => {}
                    }
                }
                5..=6 => room.on_release(&erratic, PoolId(rng.u32(..3)), now, &mut wakes),
                7 => room.on_capacity_grown(&erratic, now, &mut wakes),
                8 => room.on_capacity_changed(&erratic, now, &mut wakes),
                _ if !ids.is_empty() => {
                    let id = ids.swap_remove(rng.usize(..ids.len()));
                    room.cancel(id, now).0.map(|lease| erratic.release(lease));
                }
                _ => {}
            }
            ids.retain(|&id| match room.take_outcome(id) {
                Some(Ok(lease)) => {
                    erratic.release(lease);
                    false
                }
                Some(Err(_)) => false,
                None => true,
            });
            assert!(!erratic.gave_up(), "seed {seed}, step {step}");
            assert_eq!(room.len(), ids.len(), "seed {seed}, step {step}");
        }
    }
}

fn random_config(rng: &mut fastrand::Rng) -> WaitingRoomConfig {
    config(|c| {
        c.max_size = 24;
        c.levels = PriorityLevels::new(["a", "b", "c"], "b").unwrap();
        c.displace = rng.bool();
        c.discipline = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline][rng.usize(..3)];
        c.weights = [(Tenant::from("a"), 3)].into();
    })
}

/// A capacity with random answers, which stay the same until it is shuffled.
struct Erratic {
    answers: Mutex<Answers>,
    asked: AtomicUsize,
}

#[derive(Default)]
struct Answers {
    rng: fastrand::Rng,
    /// By demand.
    leases: Vec<Result<u32, LeaseError<&'static str>>>,
    /// By demand.
    lanes: Vec<u32>,
    /// By lane.
    pools: Vec<PoolSet>,
}

const DEMANDS: u32 = 6;
const LANES: u32 = 8;

impl Erratic {
    fn new(seed: u64) -> Self {
        let erratic = Self {
            answers: Mutex::default(),
            asked: AtomicUsize::new(0),
        };
        erratic.answers.lock().unwrap().rng.seed(seed);
        erratic.shuffle();
        erratic
    }

    fn shuffle(&self) {
        let answers = &mut *self.answers.lock().unwrap();
        let rng = &mut answers.rng;
        let mut lease = || match rng.u8(..16) {
            0 => Err(LeaseError::Unservable("never")),
            1..=9 => Err(LeaseError::Busy),
            pool => Ok(u32::from(pool % 3)),
        };
        answers.leases = (0..DEMANDS).map(|_| lease()).collect();
        answers.lanes = (0..DEMANDS).map(|_| rng.u32(..LANES)).collect();
        let mut pools = || (0..rng.u8(..3)).map(|_| PoolId(rng.u32(..3))).collect();
        answers.pools = (0..LANES).map(|_| pools()).collect();
    }

    /// Whether `try_lease` was called too often since the last call of this.
    fn gave_up(&self) -> bool {
        self.asked.swap(0, SeqCst) >= TOO_MANY
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap()
    }
}

impl Capacity for Erratic {
    type Demand = u32;
    type Lease = u32;
    type Lane = u32;
    type Unservable = &'static str;

    fn try_lease(&self, &demand: &u32) -> Result<u32, LeaseError<&'static str>> {
        if self.asked.fetch_add(1, SeqCst) >= TOO_MANY {
            return Err(LeaseError::Busy);
        }
        self.answers().leases[demand as usize]
    }

    fn release(&self, pool: u32) -> PoolId {
        PoolId(pool)
    }

    fn pool(&self, &pool: &u32) -> PoolId {
        PoolId(pool)
    }

    fn lane(&self, &demand: &u32) -> u32 {
        self.answers().lanes[demand as usize]
    }

    fn pools(&self, &lane: &u32) -> PoolSet {
        self.answers().pools[lane as usize].clone()
    }

    fn usage(&self) -> SlotUsage {
        SlotUsage {
            slots: 0,
            in_use: 0,
        }
    }
    fn leased(&self) -> u64 {
        0
    }
}
