//! Newest first, while the queue stands.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tower_triage::admit::{AdmitOutcome, Capacity, Slot, WaiterId, WaitingRoom, WakeList};
use tower_triage::{Discipline, Priority, SlotPool, Ticket, WaitingRoomConfig};

use super::scenarios::{HIGH, NORMAL, config};

const TARGET: u64 = 3_000;
/// For so many seconds, the slot is never idle before a test begins.
const BUSY: u64 = 2_000;

type Name = String;

/// A room in front of one slot, which was never idle for long, at a time in milliseconds.
struct BusyRoom {
    room: WaitingRoom<SlotPool, Name>,
    slots: SlotPool,
    running: Option<Slot>,
    begin: Instant,
    now: u64,
    ids: HashMap<Name, WaiterId>,
}

impl BusyRoom {
    fn new(config: WaitingRoomConfig) -> Self {
        let begin = Instant::now();
        let slots = SlotPool::new(1);
        let mut room = Self {
            room: WaitingRoom::new(config, begin),
            running: slots.try_lease(&()).ok(),
            slots,
            begin,
            now: 0,
            ids: HashMap::new(),
        };
        for second in 0..BUSY {
            assert!(room.arrives(&second.to_string(), NORMAL));
            room.now += 1_000;
            assert_eq!(room.release().unwrap(), second.to_string());
        }
        room
    }

    fn instant(&self, ms: u64) -> Instant {
        self.begin + Duration::from_millis(ms)
    }

    fn ticket(&self, level: u8) -> Ticket {
        Ticket::new(Priority(level), self.instant(self.now))
    }

    fn arrives(&mut self, name: &str, level: u8) -> bool {
        self.arrives_as(name, self.ticket(level))
    }

    /// Whether it waits; otherwise it was refused.
    fn arrives_as(&mut self, name: &str, ticket: Ticket) -> bool {
        let (now, mut wakes) = (self.instant(self.now), WakeList::new());
        let outcome = self.room.arrive(&self.slots, ticket, (), now, &mut wakes);
        match outcome {
            AdmitOutcome::Queued(id) => {
                self.room.set_waker(id, name.to_owned()).unwrap();
                self.ids.insert(name.to_owned(), id);
            }
            AdmitOutcome::Rejected(_) => {}
            AdmitOutcome::Leased(_) => panic!("{name} found a slot"),
        }
        self.forget_rejected(wakes);
        self.ids.contains_key(name)
    }

    /// Those that were rejected wait no more.
    fn forget_rejected(&mut self, wakes: WakeList<Name>) {
        for name in wakes {
            let id = self.ids.remove(&name).unwrap();
            self.room.take_outcome(id).unwrap().unwrap_err();
        }
    }

    fn advance(&mut self) {
        let (now, mut wakes) = (self.instant(self.now), WakeList::new());
        self.room.advance(now, &mut wakes);
        self.forget_rejected(wakes);
    }

    /// Releases the slot. Returns the waiter that gets it.
    fn release(&mut self) -> Option<Name> {
        self.advance();
        let now = self.instant(self.now);
        let mut wakes = WakeList::new();
        let pool = self.slots.release(self.running.take()?);
        self.room.on_release(&self.slots, pool, now, &mut wakes);
        let mut wakes = wakes.into_iter();
        let Some(name) = wakes.next() else {
            self.running = self.slots.try_lease(&()).ok();
            return None;
        };
        assert_eq!(wakes.next(), None, "one slot, one grant");
        let id = self.ids.remove(&name).unwrap();
        self.running = self.room.take_outcome(id).unwrap().ok();
        Some(name)
    }

    /// All waiters, in the order in which they would be served now.
    fn order(&self) -> Vec<Name> {
        let position = |name: &Name| self.room.position(self.ids[name]).unwrap();
        let mut order: Vec<Name> = self.ids.keys().cloned().collect();
        order.sort_by_key(position);
        let positions: Vec<_> = order.iter().map(position).collect();
        assert!(positions.into_iter().eq(1..=order.len()));
        order
    }

    /// All waiters, in the order in which they are served, at this time.
    fn served(&mut self) -> Vec<Name> {
        std::iter::from_fn(|| self.release()).collect()
    }
}

fn standing() -> WaitingRoomConfig {
    config(|c| c.max_wait = Some(Duration::from_secs(10)))
        .target_wait(Duration::from_millis(TARGET))
        .lifo_when_standing(true)
}

/// Of the plain room, and of the full one.
fn rooms() -> [WaitingRoomConfig; 4] {
    [
        standing(),
        standing().promote_after(Duration::from_secs(86_400)),
        standing().discipline(Discipline::Fair),
        standing().level_weight("normal", 1),
    ]
}

#[test]
fn newest_go_first_once_the_oldest_has_waited_for_longer_than_the_target() {
    for config in rooms() {
        let mut room = BusyRoom::new(config);
        for name in ["a", "b", "c"] {
            assert!(room.arrives(name, NORMAL));
        }
        assert_eq!(room.order(), ["a", "b", "c"]);
        room.now += TARGET;
        assert_eq!(room.release().unwrap(), "a");
        room.now += 500;
        assert_eq!(room.release().unwrap(), "c");
        // It passes the others, so it is not refused for them.
        for name in ["d", "e", "f", "g", "h"] {
            assert!(room.arrives(name, NORMAL), "{name}");
        }
        assert_eq!(room.order(), ["h", "g", "f", "e", "d", "b"]);
        assert_eq!(room.served(), ["h", "g", "f", "e", "d", "b"]);
        for name in ["i", "j"] {
            assert!(room.arrives(name, NORMAL));
        }
        assert_eq!(room.served(), ["i", "j"]);
    }
}

#[test]
fn without_it_the_oldest_go_first_however_long_they_waited() {
    for config in rooms() {
        let mut room = BusyRoom::new(config.lifo_when_standing(false));
        for name in ["a", "b", "c"] {
            assert!(room.arrives(name, NORMAL));
        }
        room.now += 2 * TARGET - 1;
        assert_eq!(room.served(), ["a", "b", "c"]);
    }
}

#[test]
fn levels_and_early_retries_keep_their_rank() {
    for config in &rooms()[..3] {
        let mut room = BusyRoom::new(config.clone());
        for name in ["n1", "n2"] {
            assert!(room.arrives(name, NORMAL));
        }
        for name in ["early 1", "early 2"] {
            let mut ticket = room.ticket(NORMAL);
            ticket.client_retry = true;
            // Requeued, so it is not refused for those that it has to wait for.
            ticket.requeued = true;
            assert!(room.arrives_as(name, ticket), "{name}");
        }
        room.now += TARGET + 500;
        for (name, level) in [("h1", HIGH), ("n3", NORMAL), ("h2", HIGH)] {
            let mut ticket = room.ticket(level);
            ticket.requeued = true;
            assert!(room.arrives_as(name, ticket), "{name}");
        }
        let order = ["h2", "h1", "n3", "n2", "n1", "early 2", "early 1"];
        assert_eq!(room.order(), order);
        assert_eq!(room.served(), order);
    }
}

#[test]
fn tenants_take_turns_with_their_newest() {
    let mut room = BusyRoom::new(standing().discipline(Discipline::Fair));
    let arrives = |room: &mut BusyRoom, name: &str, cost| {
        let tenant = name[..1].to_owned();
        let mut ticket = room.ticket(NORMAL).tenant(tenant.into()).cost(cost);
        ticket.requeued = true;
        assert!(room.arrives_as(name, ticket));
    };
    for (name, cost) in [("a1", 1), ("a2", 1), ("a3", 2), ("b1", 1), ("b2", 1)] {
        arrives(&mut room, name, cost);
    }
    assert_eq!(room.order(), ["a1", "b1", "a2", "b2", "a3"]);
    room.now += TARGET + 500;
    arrives(&mut room, "c", 1);
    assert_eq!(room.order(), ["b2", "c", "a3", "b1", "a2", "a1"]);
    assert_eq!(room.served(), ["b2", "c", "a3", "b1", "a2", "a1"]);
}

#[test]
fn a_reconfiguration_keeps_the_order_of_a_queue_that_stands() {
    for config in rooms() {
        for other in rooms() {
            let mut room = BusyRoom::new(config.clone());
            for name in ["a", "b", "c"] {
                assert!(room.arrives(name, NORMAL));
            }
            room.now += TARGET + 500;
            let mut wakes = WakeList::new();
            let now = room.instant(room.now);
            room.room
                .reconfigure(&room.slots, other.clone(), now, &mut wakes);
            assert_eq!(room.order(), ["c", "b", "a"]);
            let off = other.lifo_when_standing(false);
            room.room.reconfigure(&room.slots, off, now, &mut wakes);
            assert_eq!(room.served(), ["a", "b", "c"]);
        }
    }
}

/// A request that first arrived `ago` milliseconds before it came back.
fn requeued(room: &BusyRoom, ago: u64) -> Ticket {
    let arrival = room.instant(room.now - ago);
    Ticket::new(Priority(NORMAL), arrival).requeued()
}

#[test]
fn the_time_before_a_request_came_back_makes_no_queue_stand() {
    for config in rooms() {
        let mut room = BusyRoom::new(config);
        for name in ["a", "b"] {
            assert!(room.arrives(name, NORMAL));
        }
        let back = requeued(&room, TARGET + 500);
        assert!(room.arrives_as("back", back));
        room.advance();
        assert_eq!(room.order(), ["back", "a", "b"]);
        room.now += TARGET;
        room.advance();
        assert_eq!(room.order(), ["back", "a", "b"]);
        room.now += 500;
        room.advance();
        assert_eq!(room.order(), ["b", "a", "back"]);
    }
}

#[test]
fn a_request_that_came_back_hides_no_queue_that_stands() {
    for config in rooms() {
        let mut room = BusyRoom::new(config);
        assert!(room.arrives("a", NORMAL));
        room.now += 1_000;
        assert!(room.arrives("b", NORMAL));
        room.now += TARGET - 500;
        // Before a, and between a and b.
        for (name, ago) in [("back 1", 4_500), ("back 2", 3_000)] {
            let back = requeued(&room, ago);
            assert!(room.arrives_as(name, back), "{name}");
        }
        room.advance();
        assert_eq!(room.order(), ["b", "back 2", "a", "back 1"]);
    }
}

#[derive(Debug, Clone)]
enum Event {
    Arrive {
        level: u8,
        is_retry: bool,
        is_requeued: bool,
        /// How long ago it arrived, in milliseconds.
        ago: u64,
    },
    Release,
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let arrive = (
        0u8..3,
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.3),
        prop_oneof![3 => Just(0), 1 => 0u64..5_000],
    );
    prop_oneof![
        5 => arrive.prop_map(|(level, is_retry, is_requeued, ago)| Event::Arrive {
            level,
            is_retry,
            is_requeued,
            ago,
        }),
        2 => Just(Event::Release),
        2 => (0u64..2_000).prop_map(Event::Pass),
    ]
}

/// A waiter of the model: what orders it.
#[derive(Debug, Clone)]
struct Waiter {
    name: Name,
    level: u8,
    is_retry: bool,
    /// Its arrival, for the order, and its number.
    since: (u64, usize),
    /// When it was queued.
    entered: u64,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn both_rooms_serve_by_age_one_way_or_the_other(events in prop::collection::vec(event(), 1..60)) {
        let [plain, full, ..] = rooms();
        let mut rooms = [plain, full].map(BusyRoom::new);
        let (mut waiters, mut latest) = (Vec::<Waiter>::new(), (BUSY - 1) * 1_000);
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Event::Arrive { level, is_retry, is_requeued, ago } => {
                    let name = format!("w{number}");
                    let now = rooms[0].now;
                    let waits = rooms.each_mut().map(|room| {
                        let mut ticket = Ticket::new(Priority(level), room.instant(now - ago));
                        ticket.requeued = is_requeued;
                        ticket.client_retry = is_retry;
                        room.arrives_as(&name, ticket)
                    });
                    prop_assert_eq!(waits[0], waits[1]);
                    if waits[0] {
                        let arrival = now - ago;
                        let since = if is_requeued { arrival } else { arrival.max(latest) };
                        if !is_requeued && !is_retry {
                            latest = since;
                        }
                        let since = (since, number);
                        waiters.push(Waiter { name, level, is_retry, since, entered: now });
                    }
                }
                Event::Release => {
                    let next = rooms[0].order().into_iter().next();
                    let served = rooms.each_mut().map(BusyRoom::release);
                    prop_assert_eq!(&served[0], &served[1]);
                    prop_assert_eq!(&served[0], &next);
                }
                Event::Pass(ms) => {
                    rooms.iter_mut().for_each(|room| room.now += ms);
                }
            }
            // An event may change what is the oldest.
            rooms.iter_mut().for_each(BusyRoom::advance);
            waiters.retain(|w| rooms[0].ids.contains_key(&w.name));
            let order = rooms[0].order();
            prop_assert_eq!(&order, &rooms[1].order());
            waiters.sort_by_key(|w| (w.level, w.is_retry, w.since));
            let oldest_first: Vec<_> = waiters.iter().map(|w| w.name.clone()).collect();
            // Early retries are behind all others here, too, by their arrivals.
            let by_entry = |w: &&Waiter| match w.is_retry {
                true => (true, w.since),
                false => (false, (w.entered, w.since.1)),
            };
            let first = waiters.iter().min_by_key(by_entry);
            // A queue without a waiter that has waited is not standing.
            if first.is_none_or(|w| rooms[0].now == w.entered) {
                prop_assert_eq!(&order, &oldest_first);
            }
            if order != oldest_first {
                let reversed = |w: &Waiter| std::cmp::Reverse(w.since);
                waiters.sort_by_key(|w| (w.level, w.is_retry, reversed(w)));
                let newest_first: Vec<_> = waiters.iter().map(|w| w.name.clone()).collect();
                prop_assert_eq!(order, newest_first);
            }
        }
    }
}
