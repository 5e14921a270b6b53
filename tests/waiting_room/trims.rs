//! Memory that is given back while requests wait.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tower_triage::admit::{AdmitOutcome, WaiterId, WaitingRoom, WakeList};
use tower_triage::admit::{Capacity, LeaseError, PoolId, PoolSet};
use tower_triage::{Discipline, Priority, Ticket};

use super::scenarios::config;

/// Lane 0: pool 0 alone. Lane 1: pools 0 and 1.
struct Two([AtomicUsize; 2]);
impl Capacity for Two {
    type Demand = u8;
    type Lease = u32;
    type Lane = u8;
    type Unservable = Infallible;
    fn try_lease(&self, demand: &u8) -> Result<u32, LeaseError<Infallible>> {
        for pool in 0..=u32::from(*demand) {
            let free = &self.0[pool as usize];
            if free.load(SeqCst) > 0 {
                free.fetch_sub(1, SeqCst);
                return Ok(pool);
            }
        }
        Err(LeaseError::Busy)
    }
    fn release(&self, pool: u32) -> PoolId {
        self.0[pool as usize].fetch_add(1, SeqCst);
        PoolId(pool)
    }
    fn pool(&self, lease: &u32) -> PoolId {
        PoolId(*lease)
    }
    fn lane(&self, demand: &u8) -> u8 {
        *demand
    }
    fn pools(&self, lane: &u8) -> PoolSet {
        (0..=u32::from(*lane)).map(PoolId).collect()
    }
    fn in_use(&self) -> usize {
        0
    }
    fn limit(&self) -> usize {
        2
    }
    fn leased(&self) -> u64 {
        0
    }
}

fn queued(outcome: AdmitOutcome<Two>) -> WaiterId {
    match outcome {
        AdmitOutcome::Queued(key) => key,
        other => panic!("{other:?}"),
    }
}

/// Which lanes the slots of pool 0 went to, with or without a trim before.
fn lanes_on_pool_0(trims: bool) -> Vec<usize> {
    let begin = Instant::now();
    let capacity = Two([0, 0].map(AtomicUsize::new));
    let config =
        config(|c| (c.max_size, c.discipline, c.max_wait) = (1 << 20, Discipline::Fair, None));
    let mut room: WaitingRoom<Two, usize> = WaitingRoom::new(config, begin);
    let mut woken = WakeList::new();
    let ticket = |now| Ticket::new(Priority::HIGHEST, now).tenant("a".into());
    let burst: Vec<WaiterId> = (0..4_000)
        .map(|_| queued(room.arrive(&capacity, ticket(begin), 1, begin, &mut woken)))
        .collect();
    for key in burst {
        room.cancel(key);
    }
    let mut keys = Vec::new();
    for nth in 0..100u8 {
        let lane = nth % 2;
        let key = queued(room.arrive(&capacity, ticket(begin), lane, begin, &mut woken));
        room.set_waker(key, usize::from(lane)).unwrap();
        keys.push(key);
    }
    // PoolId 1 is fast: it serves thirty of lane 1.
    for _ in 0..30 {
        let pool = capacity.release(1);
        room.on_release(&capacity, pool, begin, &mut woken);
    }
    let served: Vec<usize> = std::mem::take(&mut woken).into_iter().collect();
    assert_eq!(served, [1; 30]);
    // Two more come. At the second, the room has been small for long.
    let step = Duration::from_secs(if trims { 11 } else { 1 });
    for nth in 1..=2 {
        let now = begin + nth * step;
        let key = queued(room.arrive(&capacity, ticket(now), 0, now, &mut woken));
        room.set_waker(key, 0).unwrap();
    }
    for _ in 0..20 {
        let pool = capacity.release(0);
        room.on_release(&capacity, pool, begin + 2 * step, &mut woken);
    }
    woken.into_iter().collect()
}

#[test]
fn memory_that_is_given_back_changes_no_order() {
    assert_eq!(lanes_on_pool_0(true), lanes_on_pool_0(false));
}
