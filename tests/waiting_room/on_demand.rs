//! The waits of requests for slots that have to be started.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tower_triage::admit::{
    AdmitOutcome, Capacity, LeaseError, OnDemandCapacity, PoolId, PoolSet, SlotState, SlotUsage,
    WaiterId, WaitingRoom, WakeList,
};
use tower_triage::{Priority, RejectReason, Ticket, WaitingRoomConfig};

const TARGET: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(5);
const POOLS: u32 = 2;
/// One for each pool, and one that all pools serve.
const LANES: u32 = POOLS + 1;

/// A slot of each pool that is never free: a request that waits for it is refused in the end.
#[derive(Default)]
struct Slots(Mutex<[Pool; POOLS as usize]>);

#[derive(Clone, Copy, Default)]
struct Pool {
    state: State,
    /// The time at which the last start ended, from which the slots are ready, in milliseconds.
    load_ended: u64,
    ready_since: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum State {
    #[default]
    Stopped,
    Starting,
    Ready,
}

impl Slots {
    fn set(&self, pool: u32, state: State, now: u64) {
        let pool = &mut self.0.lock().unwrap()[pool as usize];
        if (pool.state, state) != (State::Starting, State::Starting)
            && pool.state == State::Starting
        {
            pool.load_ended = now;
        }
        if pool.state != State::Ready {
            pool.ready_since = now;
        }
        pool.state = state;
    }

    /// What the pools of a lane do, and since when.
    fn of_lane(&self, lane: u32) -> (State, u64) {
        let pools = *self.0.lock().unwrap();
        let lane: Vec<Pool> = pools_of(lane).map(|nth| pools[nth as usize]).collect();
        let ready = lane.iter().filter(|pool| pool.state == State::Ready);
        if let Some(since) = ready.map(|pool| pool.ready_since).min() {
            return (State::Ready, since);
        }
        match lane.iter().any(|pool| pool.state == State::Starting) {
            true => (State::Starting, 0),
            false => (
                State::Stopped,
                lane.iter().map(|pool| pool.load_ended).max().unwrap(),
            ),
        }
    }
}

fn pools_of(lane: u32) -> impl Iterator<Item = u32> {
    (0..POOLS).filter(move |&pool| lane == POOLS || pool == lane)
}

impl Capacity for Slots {
    type Demand = u32;
    type Lease = PoolId;
    type Lane = u32;
    type Unservable = Infallible;

    fn try_lease(&self, _: &u32) -> Result<PoolId, LeaseError<Infallible>> {
        Err(LeaseError::Busy)
    }
    fn release(&self, pool: PoolId) -> PoolId {
        pool
    }
    fn pool(&self, pool: &PoolId) -> PoolId {
        *pool
    }
    fn lane(&self, lane: &u32) -> u32 {
        *lane
    }
    fn pools(&self, lane: &u32) -> PoolSet {
        pools_of(*lane).map(PoolId).collect()
    }
    fn usage(&self) -> SlotUsage {
        SlotUsage {
            slots: POOLS as usize,
            in_use: POOLS as usize,
        }
    }
    fn leased(&self) -> u64 {
        0
    }
    fn on_demand(&self) -> Option<&dyn OnDemandCapacity<PoolId>> {
        Some(self)
    }
}

impl OnDemandCapacity<PoolId> for Slots {
    fn slot_state(&self, PoolId(pool): PoolId) -> SlotState {
        match self.0.lock().unwrap()[pool as usize].state {
            State::Stopped => SlotState::Stopped,
            State::Starting => SlotState::Starting { progress: None },
            State::Ready => SlotState::Ready,
        }
    }
    fn on_lane_heads_changed(&self) {}
    fn on_overtake(&self, _: &PoolId, _: Priority) {}
}

#[derive(Debug, Clone)]
enum Event {
    /// In this lane, with a timeout perhaps.
    Arrive(u32, Option<u64>),
    /// So many milliseconds pass.
    Pass(u64),
    Set(u32, State),
}

fn event() -> impl Strategy<Value = Event> {
    let state = prop_oneof![
        Just(State::Stopped),
        Just(State::Starting),
        Just(State::Ready)
    ];
    prop_oneof![
        4 => (0..LANES, prop::option::weighted(0.1, 100..9_000u64))
            .prop_map(|(lane, timeout)| Event::Arrive(lane, timeout)),
        4 => (0..2_500u64).prop_map(Event::Pass),
        2 => (0..POOLS, state).prop_map(|(pool, state)| Event::Set(pool, state)),
    ]
}

/// A request that waits. Times are in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Waits {
    id: WaiterId,
    lane: u32,
    arrival: u64,
    deadline: u64,
}

impl Waits {
    /// When its wait ends if nothing changes, and whether by its deadline, `max_wait` or the target.
    fn ends(&self, slots: &Slots, is_next: bool) -> [u64; 3] {
        let (max_wait, target) = match slots.of_lane(self.lane) {
            (State::Starting, _) => (u64::MAX, u64::MAX),
            (State::Stopped, since) => (self.arrival.max(since) + 5_000, u64::MAX),
            (State::Ready, since) => {
                let from = self.arrival.max(since);
                (from + 5_000, if is_next { u64::MAX } else { from + 2_000 })
            }
        };
        [self.deadline, max_wait, target]
    }
}

proptest! {
    #[test]
    fn waits_count_from_the_end_of_a_load(events in prop::collection::vec(event(), 1..150)) {
        let begin = Instant::now();
        let slots = Slots::default();
        let config = WaitingRoomConfig::default().target_wait(TARGET).max_wait(MAX_WAIT);
        let mut room: WaitingRoom<Slots, ()> = WaitingRoom::new(config, begin);
        let mut wakes = WakeList::new();
        let mut waiting: Vec<Waits> = Vec::new();
        let mut now = 0;
        for event in events {
            let at = |millis| begin + Duration::from_millis(millis);
            let mut until = now;
            match event {
                Event::Arrive(lane, timeout) => {
                    let mut ticket = Ticket::new(Priority::HIGHEST, at(now));
                    if let Some(timeout) = timeout {
                        ticket = ticket.timeout(Duration::from_millis(timeout));
                    }
                    let deadline = timeout.map_or(u64::MAX, |timeout| now + timeout);
                    match room.arrive(&slots, ticket, lane, at(now), &mut wakes) {
                        AdmitOutcome::Queued(id) => waiting.push(Waits { id, lane, arrival: now, deadline }),
                        other => panic!("{other:?}"),
                    }
                }
                Event::Pass(millis) => until += millis,
                Event::Set(pool, state) => {
                    slots.set(pool, state, now);
                    room.on_capacity_changed(&slots, at(now), &mut wakes);
                }
            }
            loop {
                room.advance(at(now), &mut wakes);
                let next = room.next_timeout();
                assert!(next.is_none_or(|next| next > at(now)), "the timer would not rest");
                let before = waiting.clone();
                let is_next = |it: &Waits| before.iter().find(|other| other.lane == it.lane).unwrap().id == it.id;
                let mut next_of_lane = [None; LANES as usize];
                waiting.retain(|it| {
                    let outcome = room.take_outcome(it.id);
                    if outcome.is_none() {
                        let is_first = next_of_lane[it.lane as usize].replace(()).is_none();
                        let ends = it.ends(&slots, is_first);
                        assert!(ends.iter().all(|&end| end > now), "{it:?} waits at {now}, {ends:?}");
                        return true;
                    }
                    let ends = it.ends(&slots, is_next(it));
                    let over = match &outcome {
                        Some(Err(RejectReason::DeadlinePassed)) => ends[0],
                        Some(Err(RejectReason::TimedOut)) => ends[1],
                        Some(Err(RejectReason::Overloaded { .. })) => ends[2],
                        other => panic!("{other:?}"),
                    };
                    assert!(over <= now, "{it:?} at {now}, {ends:?}: {outcome:?}");
                    false
                });
                let step = next.map_or(u64::MAX, |next| (next - begin).as_millis() as u64);
                if now == until {
                    break;
                }
                now = until.min(step);
            }
        }
    }
}
