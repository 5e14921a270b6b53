//! Memory that is given back while requests wait, without a change of their order.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tower_triage::admit::{
    AdmitOutcome, Capacity, LeaseError, PoolId, PoolSet, SlotUsage, WaitQueue, WaiterId,
    WaitingRoom, WakeList,
};
use tower_triage::{Discipline, Priority, Ticket};

use super::scenarios::config;

/// A capacity with two lanes: pool 0 serves lane 0, pools 0 and 1 serve lane 1.
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
    fn usage(&self) -> SlotUsage {
        SlotUsage {
            slots: 2,
            in_use: 0,
        }
    }
    fn leased(&self) -> u64 {
        0
    }
}

fn queued(outcome: AdmitOutcome<Two>) -> WaiterId {
    match outcome {
        AdmitOutcome::Queued(id) => id,
        other => panic!("{other:?}"),
    }
}

/// The lanes that got the slots of pool 0, with or without memory given back before.
fn lanes_on_pool_0(trims: bool) -> Vec<usize> {
    let begin = Instant::now();
    let capacity = Two([0, 0].map(AtomicUsize::new));
    let config =
        config(|c| (c.max_size, c.discipline, c.max_wait) = (1 << 20, Discipline::Fair, None));
    let mut room: WaitingRoom<Two, usize> = WaitingRoom::new(config, begin);
    let mut wakes = WakeList::new();
    let ticket = |now| Ticket::new(Priority::HIGHEST, now).tenant("a".into());
    let burst: Vec<WaiterId> = (0..4_000)
        .map(|_| queued(room.arrive(&capacity, ticket(begin), 1, begin, &mut wakes)))
        .collect();
    for id in burst {
        room.cancel(id, begin);
    }
    let mut ids = Vec::new();
    for nth in 0..100u8 {
        let lane = nth % 2;
        let id = queued(room.arrive(&capacity, ticket(begin), lane, begin, &mut wakes));
        room.set_waker(id, usize::from(lane)).unwrap();
        ids.push(id);
    }
    // Pool 1 is fast: it serves thirty requests of lane 1.
    for _ in 0..30 {
        let pool = capacity.release(1);
        room.on_release(&capacity, pool, begin, &mut wakes);
    }
    let served: Vec<usize> = std::mem::take(&mut wakes).into_iter().collect();
    assert_eq!(served, [1; 30]);
    // At the second of two more arrivals, 11 s have passed since the last look.
    let step = Duration::from_secs(if trims { 11 } else { 1 });
    for nth in 1..=2 {
        let now = begin + nth * step;
        let id = queued(room.arrive(&capacity, ticket(now), 0, now, &mut wakes));
        room.set_waker(id, 0).unwrap();
    }
    for _ in 0..20 {
        let pool = capacity.release(0);
        room.on_release(&capacity, pool, begin + 2 * step, &mut wakes);
    }
    wakes.into_iter().collect()
}

#[test]
fn giving_memory_back_keeps_the_order() {
    assert_eq!(lanes_on_pool_0(true), lanes_on_pool_0(false));
}

/// What 30 of 2,000 tenants have in a queue, in order, with or without memory given back while it waited.
fn left_of_many_tenants(trims: bool) -> Vec<u32> {
    let begin = Instant::now();
    let config =
        config(|c| (c.max_size, c.discipline, c.max_wait) = (1 << 20, Discipline::Fair, None));
    let mut queue = WaitQueue::new(config, begin);
    let push = |queue: &mut WaitQueue<(), u32>, nth: u32, now| {
        let tenant = (nth % 2_000).to_string();
        let ticket = Ticket::new(Priority::HIGHEST, now).tenant(tenant.into());
        queue.push(ticket, (), now, |_| nth).unwrap().id
    };
    let burst: Vec<WaiterId> = (0..4_000).map(|nth| push(&mut queue, nth, begin)).collect();
    for (nth, &id) in burst.iter().enumerate() {
        if nth % 2_000 < 1_970 {
            queue.remove(id);
        }
    }
    // At the second of two more arrivals, 11 s have passed since the last look.
    let step = Duration::from_secs(if trims { 11 } else { 1 });
    for nth in 1..=2 {
        push(&mut queue, 4_000 + nth, begin + nth * step);
    }
    // Heads and others of their flows.
    for nth in [1_972, 1_999, 3_980, 3_999] {
        assert!(queue.remove(burst[nth]).is_some());
    }
    std::iter::from_fn(|| queue.peek().and_then(|next| queue.pop(next))).collect()
}

#[test]
fn giving_memory_back_keeps_the_flows() {
    let left = left_of_many_tenants(true);
    assert_eq!((left.len(), left), (58, left_of_many_tenants(false)));
}
