//! Fair shares of tenants.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use proptest::prelude::*;
use proptest::sample::Index;
use tower_triage::admit::{AdmitOutcome, Capacity, WaiterId, WaitingRoom, WakeList};
use tower_triage::{Discipline, Priority, RejectReason, Ticket, WaitingRoomConfig};

use super::pools::{Serves, TestPools, TestSlot};
use super::scenarios::{Room, config};

fn fair() -> Room {
    Room::new(config(|c| {
        (c.max_size, c.discipline) = (200, Discipline::Fair)
    }))
}

#[test]
fn tenant_with_one_request_is_second_behind_a_hundred() {
    let mut room = fair();
    room.all_wait(&["a"; 100], "a");
    room.all_wait(&["b"], "b");
    assert_eq!(room.position("b"), Some(2));
}

#[test]
fn weight_three_gets_three_slots_in_four() {
    let mut room = Room::new(config(|c| {
        c.discipline = Discipline::Fair;
        c.weights.insert("a".into(), 3);
    }));
    room.all_wait(&["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"], "a");
    room.all_wait(&["b1", "b2", "b3"], "b");
    let served = room.served();
    for round in served.chunks(4) {
        let of_b = round.iter().filter(|name| name.starts_with('b'));
        assert_eq!(of_b.count(), 1, "{served:?}");
    }
}

#[test]
fn dearer_requests_are_served_less_often() {
    let mut room = fair();
    for name in ["a1", "a2"] {
        room.waits(name, |t| t.tenant("a".into()).cost(3));
    }
    room.all_wait(&["b1", "b2", "b3", "b4", "b5", "b6"], "b");
    let served = room.served();
    assert_eq!(served, ["b1", "b2", "a1", "b3", "b4", "b5", "a2", "b6"]);
}

#[test]
fn cancelled_request_costs_its_tenant_nothing() {
    let mut room = fair();
    room.all_wait(&["a1", "a2", "a3"], "a");
    room.all_wait(&["b1", "b2"], "b");
    room.cancel("a1");
    assert_eq!(room.served(), ["a2", "b1", "a3", "b2"]);
}

/// A room in front of several pools and lanes. Requests are numbered in the order of arrival.
pub(crate) struct LaneRoom {
    pub(crate) inner: WaitingRoom<TestPools, usize>,
    pub(crate) pools: TestPools,
    pub(crate) begin: Instant,
    pub(crate) ids: HashMap<usize, WaiterId>,
    pub(crate) requests: Vec<(usize, &'static str)>,
}

impl LaneRoom {
    fn new(slots: &[usize], lanes: &[Serves]) -> Self {
        let config = config(|c| {
            (c.discipline, c.max_size) = (Discipline::Fair, usize::MAX);
        });
        Self::with_config(config, slots, lanes)
    }

    pub(crate) fn with_config(
        config: WaitingRoomConfig,
        slots: &[usize],
        lanes: &[Serves],
    ) -> Self {
        let begin = Instant::now();
        Self {
            inner: WaitingRoom::new(config, begin),
            pools: TestPools::new(slots, lanes),
            begin,
            ids: HashMap::new(),
            requests: Vec::new(),
        }
    }

    /// A request arrives. Returns its slot; `None` if it waits.
    pub(crate) fn arrive(&mut self, lane: usize, tenant: &'static str) -> Option<TestSlot> {
        self.arrive_at(Priority::HIGHEST, lane, tenant).unwrap().0
    }

    /// A request arrives. Returns its slot, if it got one, and the waiters that were woken; or the reason for its rejection.
    pub(crate) fn arrive_at(
        &mut self,
        level: Priority,
        lane: usize,
        tenant: &'static str,
    ) -> Result<(Option<TestSlot>, Vec<usize>), RejectReason<&'static str>> {
        let number = self.requests.len();
        self.requests.push((lane, tenant));
        let ticket = Ticket::new(level, self.begin).tenant(tenant.into());
        let mut wakes = WakeList::new();
        let outcome = self
            .inner
            .arrive(&self.pools, ticket, lane, self.begin, &mut wakes);
        let wakes = wakes.into_iter().collect();
        match outcome {
            AdmitOutcome::Leased(slot) => Ok((Some(slot), wakes)),
            AdmitOutcome::Queued(id) => {
                self.inner.set_waker(id, number).unwrap();
                self.ids.insert(number, id);
                Ok((None, wakes))
            }
            AdmitOutcome::Rejected(why) => Err(why),
        }
    }

    /// The capacity has changed. Returns the waiters that were rejected, and the reasons.
    pub(crate) fn on_capacity_changed(&mut self) -> Vec<(usize, RejectReason<&'static str>)> {
        let mut wakes = WakeList::new();
        self.inner
            .on_capacity_changed(&self.pools, self.begin, &mut wakes);
        let answer = |number| {
            let answer = self
                .inner
                .take_outcome(self.ids.remove(&number).unwrap())
                .unwrap();
            (number, answer.unwrap_err())
        };
        wakes.into_iter().map(answer).collect()
    }

    /// All waiters, in the order in which this slot serves them.
    pub(crate) fn served(&mut self, mut slot: TestSlot) -> Vec<usize> {
        let mut served = Vec::new();
        while let Some((next, again)) = self.release(slot) {
            served.push(next);
            slot = again;
        }
        served
    }

    /// Releases a slot. Returns the waiter that gets it, and the slot.
    pub(crate) fn release(&mut self, slot: TestSlot) -> Option<(usize, TestSlot)> {
        let mut wakes = WakeList::new();
        let pool = self.pools.release(slot);
        self.inner
            .on_release(&self.pools, pool, self.begin, &mut wakes);
        let next = wakes.into_iter().next()?;
        let slot = self
            .inner
            .take_outcome(self.ids.remove(&next)?)
            .unwrap()
            .unwrap();
        Some((next, slot))
    }
}

#[test]
fn cheaper_request_behind_a_cancelled_one_goes_first() {
    let mut room = LaneRoom::new(&[1], &[vec![0], vec![0]]);
    let slot = room.arrive(0, "a").unwrap();
    for (lane, tenant, cost) in [(0, "a", 10), (0, "a", 1), (0, "b", 5), (1, "c", 3)] {
        let number = room.requests.len();
        room.requests.push((lane, tenant));
        let ticket = Ticket::new(Priority::HIGHEST, room.begin);
        let ticket = ticket.tenant(tenant.into()).cost(cost);
        let begin = room.begin;
        let mut wakes = WakeList::new();
        let outcome = room
            .inner
            .arrive(&room.pools, ticket, lane, begin, &mut wakes);
        let AdmitOutcome::Queued(id) = outcome else {
            panic!("{outcome:?}");
        };
        room.inner.set_waker(id, number).unwrap();
        room.ids.insert(number, id);
    }
    let dear = room.ids.remove(&1).unwrap();
    room.inner.cancel(dear, room.begin);
    assert_eq!(room.served(slot), [2, 4, 3]);
}

#[test]
fn busy_lane_does_not_delay_newcomers_of_a_slow_lane() {
    let mut room = LaneRoom::new(&[1, 1], &[vec![0], vec![1]]);
    let slow = room.arrive(0, "x").unwrap();
    let mut fast = room.arrive(1, "x").unwrap();
    for _ in 0..100 {
        room.arrive(0, "noisy");
        room.arrive(1, "busy");
    }
    for _ in 0..100 {
        fast = room.release(fast).unwrap().1;
    }
    room.arrive(0, "quiet");
    let (first, slow) = room.release(slow).unwrap();
    assert_eq!(room.requests[first].1, "noisy");
    let (second, _) = room.release(slow).unwrap();
    assert_eq!(room.requests[second].1, "quiet");
}

#[test]
fn new_lane_alternates_with_an_old_one_at_once() {
    let mut room = LaneRoom::new(&[1], &[vec![0], vec![0]]);
    let mut slot = room.arrive(0, "x").unwrap();
    for _ in 0..100 {
        room.arrive(0, "old");
    }
    for _ in 0..50 {
        slot = room.release(slot).unwrap().1;
    }
    for _ in 0..4 {
        room.arrive(1, "new");
    }
    let mut served = Vec::new();
    for _ in 0..8 {
        let (next, again) = room.release(slot).unwrap();
        served.push(room.requests[next].1);
        slot = again;
    }
    assert_eq!(served, ["old", "new"].repeat(4));
}

#[test]
fn new_lane_on_a_shared_pool_alternates_with_the_old_one() {
    let mut room = LaneRoom::new(&[1, 1], &[vec![0], vec![0, 1]]);
    let mut shared = room.arrive(0, "x").unwrap();
    let mut other = room.arrive(1, "x").unwrap();
    for _ in 0..100 {
        room.arrive(1, "old");
    }
    for _ in 0..50 {
        other = room.release(other).unwrap().1;
    }
    for _ in 0..3 {
        room.arrive(0, "new");
    }
    let mut served = Vec::new();
    for _ in 0..6 {
        let (next, again) = room.release(shared).unwrap();
        served.push(room.requests[next].1);
        shared = again;
    }
    assert_eq!(served, ["old", "new"].repeat(3));
}

const TENANTS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Debug, Clone)]
enum Event {
    Arrive(usize, usize),
    Release(Index),
}

fn events(lanes: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..lanes, 0..TENANTS.len()).prop_map(|(lane, tenant)| Event::Arrive(lane, tenant)),
        any::<Index>().prop_map(Event::Release),
    ];
    prop::collection::vec(event, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// With one lane and equal weights, the first tenant of a list is served, and goes to its end if more of its requests
    /// wait.
    #[test]
    fn equal_tenants_are_served_round_robin(events in events(1)) {
        let mut room = LaneRoom::new(&[1], &[vec![0]]);
        let mut running = None;
        let mut round: VecDeque<(&str, VecDeque<usize>)> = VecDeque::new();
        for event in events {
            match event {
                Event::Arrive(lane, tenant) => {
                    let number = room.requests.len();
                    if let Some(slot) = room.arrive(lane, TENANTS[tenant]) {
                        prop_assert!(running.replace(slot).is_none());
                    } else if let Some(flow) = round.iter_mut().find(|t| t.0 == TENANTS[tenant]) {
                        flow.1.push_back(number);
                    } else {
                        round.push_back((TENANTS[tenant], [number].into()));
                    }
                }
                Event::Release(_) => {
                    let Some(slot) = running.take() else { continue };
                    let next = room.release(slot);
                    let mut flow = round.pop_front();
                    let expected = flow.as_mut().and_then(|flow| flow.1.pop_front());
                    prop_assert_eq!(next.as_ref().map(|next| next.0), expected);
                    round.extend(flow.filter(|flow| !flow.1.is_empty()));
                    running = next.map(|next| next.1);
                }
            }
        }
    }

    /// Whatever pools the lane shares with others.
    #[test]
    fn no_tenant_overtakes_another_twice_in_a_lane(
        slots in prop::array::uniform3(0usize..3),
        lanes in prop::collection::vec(prop::sample::subsequence(vec![0, 1, 2], 1..=3), 4),
        events in events(4),
    ) {
        let mut room = LaneRoom::new(&slots, &lanes);
        let mut running = Vec::new();
        let mut waiting: Vec<usize> = Vec::new();
        // By lane, waiting tenant and served tenant: how often the one was overtaken by the other.
        let mut overtaken: BTreeMap<(usize, &str, &str), usize> = BTreeMap::new();
        for event in events {
            match event {
                Event::Arrive(lane, tenant) => {
                    let number = room.requests.len();
                    match room.arrive(lane, TENANTS[tenant]) {
                        Some(slot) => running.push(slot),
                        None => waiting.push(number),
                    }
                }
                Event::Release(which) if !running.is_empty() => {
                    let slot = running.swap_remove(which.index(running.len()));
                    let Some((next, slot)) = room.release(slot) else { continue };
                    running.push(slot);
                    let (lane, tenant) = room.requests[next];
                    waiting.retain(|&number| number != next);
                    overtaken.retain(|id, _| (id.0, id.1) != (lane, tenant));
                    let others = waiting.iter().map(|&number| room.requests[number]);
                    let mut others: Vec<&str> = others.filter(|o| o.0 == lane).map(|o| o.1).collect();
                    others.sort_unstable();
                    others.dedup();
                    for other in others.into_iter().filter(|&other| other != tenant) {
                        let times = overtaken.entry((lane, other, tenant)).or_default();
                        *times += 1;
                        prop_assert!(*times <= 1, "{tenant} overtook {other} in lane {lane} again");
                    }
                }
                Event::Release(_) => {}
            }
        }
    }
}
