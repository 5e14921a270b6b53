//! Tenants take turns.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use proptest::prelude::*;
use proptest::sample::Index;
use tower_triage::admit::Capacity;
use tower_triage::admit::{AdmitOutcome, WaiterId, WaitingRoom, WakeList};
use tower_triage::{Discipline, Priority, RejectReason, Ticket, WaitingRoomConfig};

use super::scenarios::{Room, config};
use super::wards::{Bed, Treats, Wards};

fn fair() -> Room {
    Room::new(config(|c| {
        (c.max_size, c.discipline) = (200, Discipline::Fair)
    }))
}

#[test]
fn who_sends_one_is_served_second_whoever_sends_a_hundred() {
    let mut room = fair();
    room.all_wait(&["a"; 100], "a");
    room.all_wait(&["b"], "b");
    assert_eq!(room.position("b"), Some(2));
}

#[test]
fn three_to_one() {
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
fn who_costs_more_is_served_less() {
    let mut room = fair();
    for name in ["a1", "a2"] {
        room.waits(name, |t| t.tenant("a".into()).cost(3));
    }
    room.all_wait(&["b1", "b2", "b3", "b4", "b5", "b6"], "b");
    let served = room.served();
    assert_eq!(served, ["b1", "b2", "a1", "b3", "b4", "b5", "a2", "b6"]);
}

#[test]
fn who_leaves_pays_nothing() {
    let mut room = fair();
    room.all_wait(&["a1", "a2", "a3"], "a");
    room.all_wait(&["b1", "b2"], "b");
    room.cancel("a1");
    assert_eq!(room.served(), ["a2", "b1", "a3", "b2"]);
}

/// Lanes, tenants and beds; who waits is told by its number.
pub(crate) struct Hall {
    pub(crate) room: WaitingRoom<Wards, usize>,
    pub(crate) wards: Wards,
    pub(crate) begin: Instant,
    pub(crate) keys: HashMap<usize, WaiterId>,
    pub(crate) who: Vec<(usize, &'static str)>,
}

impl Hall {
    fn new(beds: &[usize], lanes: &[Treats]) -> Self {
        let config = config(|c| {
            (c.discipline, c.max_size) = (Discipline::Fair, usize::MAX);
        });
        Self::furnished(config, beds, lanes)
    }

    pub(crate) fn furnished(config: WaitingRoomConfig, beds: &[usize], lanes: &[Treats]) -> Self {
        let begin = Instant::now();
        Self {
            room: WaitingRoom::new(config, begin),
            wards: Wards::new(beds, lanes),
            begin,
            keys: HashMap::new(),
            who: Vec::new(),
        }
    }

    /// Its bed, or it waits.
    pub(crate) fn arrive(&mut self, lane: usize, tenant: &'static str) -> Option<Bed> {
        self.arrive_at(Priority::HIGHEST, lane, tenant).unwrap().0
    }

    /// Its bed, or it waits; and those who had to get up. Or its own reason.
    pub(crate) fn arrive_at(
        &mut self,
        level: Priority,
        lane: usize,
        tenant: &'static str,
    ) -> Result<(Option<Bed>, Vec<usize>), RejectReason<&'static str>> {
        let id = self.who.len();
        self.who.push((lane, tenant));
        let ticket = Ticket::new(level, self.begin).tenant(tenant.into());
        let mut woken = WakeList::new();
        let outcome = self
            .room
            .arrive(&self.wards, ticket, lane, self.begin, &mut woken);
        let woken = woken.into_iter().collect();
        match outcome {
            AdmitOutcome::Leased(bed) => Ok((Some(bed), woken)),
            AdmitOutcome::Queued(key) => {
                self.room.set_waker(key, id).unwrap();
                self.keys.insert(id, key);
                Ok((None, woken))
            }
            AdmitOutcome::Rejected(why) => Err(why),
        }
    }

    /// The capacity has changed: who was answered, and what?
    pub(crate) fn rearrange(&mut self) -> Vec<(usize, RejectReason<&'static str>)> {
        let mut woken = WakeList::new();
        self.room
            .on_capacity_changed(&self.wards, self.begin, &mut woken);
        let answer = |id| {
            let answer = self
                .room
                .take_outcome(self.keys.remove(&id).unwrap())
                .unwrap();
            (id, answer.unwrap_err())
        };
        woken.into_iter().map(answer).collect()
    }

    /// Everyone who waits, in the order in which one bed serves them.
    pub(crate) fn served(&mut self, mut bed: Bed) -> Vec<usize> {
        let mut served = Vec::new();
        while let Some((next, again)) = self.release(bed) {
            served.push(next);
            bed = again;
        }
        served
    }

    /// A bed comes back: who gets it?
    pub(crate) fn release(&mut self, bed: Bed) -> Option<(usize, Bed)> {
        let mut woken = WakeList::new();
        let pool = self.wards.release(bed);
        self.room
            .on_release(&self.wards, pool, self.begin, &mut woken);
        let next = woken.into_iter().next()?;
        let bed = self
            .room
            .take_outcome(self.keys.remove(&next)?)
            .unwrap()
            .unwrap();
        Some((next, bed))
    }
}

#[test]
fn who_leaves_before_a_cheaper_one_puts_it_before_everybody() {
    let mut hall = Hall::new(&[1], &[vec![0], vec![0]]);
    let bed = hall.arrive(0, "a").unwrap();
    for (lane, tenant, cost) in [(0, "a", 10), (0, "a", 1), (0, "b", 5), (1, "c", 3)] {
        let id = hall.who.len();
        hall.who.push((lane, tenant));
        let ticket = Ticket::new(Priority::HIGHEST, hall.begin);
        let ticket = ticket.tenant(tenant.into()).cost(cost);
        let begin = hall.begin;
        let mut woken = WakeList::new();
        let outcome = hall
            .room
            .arrive(&hall.wards, ticket, lane, begin, &mut woken);
        let AdmitOutcome::Queued(key) = outcome else {
            panic!("{outcome:?}");
        };
        hall.room.set_waker(key, id).unwrap();
        hall.keys.insert(id, key);
    }
    let dear = hall.keys.remove(&1).unwrap();
    hall.room.cancel(dear);
    assert_eq!(hall.served(bed), [2, 4, 3]);
}

#[test]
fn a_busy_lane_does_not_put_off_the_newcomers_of_a_slow_one() {
    let mut hall = Hall::new(&[1, 1], &[vec![0], vec![1]]);
    let slow = hall.arrive(0, "x").unwrap();
    let mut fast = hall.arrive(1, "x").unwrap();
    for _ in 0..100 {
        hall.arrive(0, "noisy");
        hall.arrive(1, "busy");
    }
    for _ in 0..100 {
        fast = hall.release(fast).unwrap().1;
    }
    hall.arrive(0, "quiet");
    let (first, slow) = hall.release(slow).unwrap();
    assert_eq!(hall.who[first].1, "noisy");
    let (second, _) = hall.release(slow).unwrap();
    assert_eq!(hall.who[second].1, "quiet");
}

#[test]
fn a_new_lane_neither_overtakes_an_old_one_for_long_nor_waits_for_it() {
    let mut hall = Hall::new(&[1], &[vec![0], vec![0]]);
    let mut bed = hall.arrive(0, "x").unwrap();
    for _ in 0..100 {
        hall.arrive(0, "old");
    }
    for _ in 0..50 {
        bed = hall.release(bed).unwrap().1;
    }
    for _ in 0..4 {
        hall.arrive(1, "new");
    }
    let mut served = Vec::new();
    for _ in 0..8 {
        let (next, again) = hall.release(bed).unwrap();
        served.push(hall.who[next].1);
        bed = again;
    }
    assert_eq!(served, ["old", "new"].repeat(4));
}

#[test]
fn a_new_lane_that_shares_one_ward_of_an_old_one_begins_where_that_is() {
    let mut hall = Hall::new(&[1, 1], &[vec![0], vec![0, 1]]);
    let mut shared = hall.arrive(0, "x").unwrap();
    let mut other = hall.arrive(1, "x").unwrap();
    for _ in 0..100 {
        hall.arrive(1, "old");
    }
    for _ in 0..50 {
        other = hall.release(other).unwrap().1;
    }
    for _ in 0..3 {
        hall.arrive(0, "new");
    }
    let mut served = Vec::new();
    for _ in 0..6 {
        let (next, again) = hall.release(shared).unwrap();
        served.push(hall.who[next].1);
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

    /// With one lane and equal shares it is a round: the first tenant is served, and goes to its end if more
    /// of its requests wait.
    #[test]
    fn equal_tenants_go_round_and_round(events in events(1)) {
        let mut hall = Hall::new(&[1], &[vec![0]]);
        let mut running = None;
        let mut round: VecDeque<(&str, VecDeque<usize>)> = VecDeque::new();
        for event in events {
            match event {
                Event::Arrive(lane, tenant) => {
                    let id = hall.who.len();
                    if let Some(bed) = hall.arrive(lane, TENANTS[tenant]) {
                        prop_assert!(running.replace(bed).is_none());
                    } else if let Some(turn) = round.iter_mut().find(|t| t.0 == TENANTS[tenant]) {
                        turn.1.push_back(id);
                    } else {
                        round.push_back((TENANTS[tenant], [id].into()));
                    }
                }
                Event::Release(_) => {
                    let Some(bed) = running.take() else { continue };
                    let next = hall.release(bed);
                    let mut turn = round.pop_front();
                    let expected = turn.as_mut().and_then(|turn| turn.1.pop_front());
                    prop_assert_eq!(next.as_ref().map(|next| next.0), expected);
                    round.extend(turn.filter(|turn| !turn.1.is_empty()));
                    running = next.map(|next| next.1);
                }
            }
        }
    }

    /// Whatever wards its lane shares with others.
    #[test]
    fn nobody_of_a_lane_is_overtaken_twice_by_one_tenant(
        beds in prop::array::uniform3(0usize..3),
        lanes in prop::collection::vec(prop::sample::subsequence(vec![0, 1, 2], 1..=3), 4),
        events in events(4),
    ) {
        let mut hall = Hall::new(&beds, &lanes);
        let mut running = Vec::new();
        let mut waiting: Vec<usize> = Vec::new();
        // How often a tenant was served in a lane while another one's first there waited.
        let mut overtaken: BTreeMap<(usize, &str, &str), usize> = BTreeMap::new();
        for event in events {
            match event {
                Event::Arrive(lane, tenant) => {
                    let id = hall.who.len();
                    match hall.arrive(lane, TENANTS[tenant]) {
                        Some(bed) => running.push(bed),
                        None => waiting.push(id),
                    }
                }
                Event::Release(which) if !running.is_empty() => {
                    let bed = running.swap_remove(which.index(running.len()));
                    let Some((next, bed)) = hall.release(bed) else { continue };
                    running.push(bed);
                    let (lane, tenant) = hall.who[next];
                    waiting.retain(|&id| id != next);
                    overtaken.retain(|key, _| (key.0, key.1) != (lane, tenant));
                    let others = waiting.iter().map(|&id| hall.who[id]);
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
