//! Scenarios in front of one slot, which is busy.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tower_triage::admit::{AdmitOutcome, Capacity, PoolId, Slot, WaiterId, WaitingRoom, WakeList};
use tower_triage::{Discipline, Priority, PriorityLevels, RejectReason, SlotPool};
use tower_triage::{Ticket, WaitingRoomConfig};

pub(crate) const HIGH: u8 = 0;
pub(crate) const NORMAL: u8 = 1;
pub(crate) const LOW: u8 = 2;

/// A room in front of a service with one slot. Waiters have names.
pub(crate) struct Room {
    pub(crate) room: WaitingRoom<SlotPool, &'static str>,
    slots: SlotPool,
    running: Option<Slot>,
    begin: Instant,
    ids: HashMap<&'static str, WaiterId>,
}

impl Room {
    pub(crate) fn new(config: WaitingRoomConfig) -> Self {
        let slots = SlotPool::new(1);
        let begin = Instant::now();
        Self {
            room: WaitingRoom::new(config, begin),
            running: slots.try_lease(&()).ok(),
            slots,
            begin,
            ids: HashMap::new(),
        }
    }

    pub(crate) fn at(&self, seconds: u64) -> Instant {
        self.begin + Duration::from_secs(seconds)
    }

    /// A request arrives after so many seconds. Returns the waiters that were woken, or the reason for its rejection.
    pub(crate) fn arrive(
        &mut self,
        name: &'static str,
        seconds: u64,
        ticket: impl FnOnce(Ticket) -> Ticket,
    ) -> Result<Vec<&'static str>, RejectReason> {
        let now = self.at(seconds);
        let mut wakes = WakeList::new();
        let ticket = ticket(Ticket::new(Priority(NORMAL), now));
        match self.room.arrive(&self.slots, ticket, (), now, &mut wakes) {
            AdmitOutcome::Queued(id) => {
                self.room.set_waker(id, name).unwrap();
                self.ids.insert(name, id);
                Ok(wakes.into_iter().collect())
            }
            AdmitOutcome::Rejected(why) => Err(why),
            AdmitOutcome::Leased(_) => panic!("{name} found a slot"),
        }
    }

    pub(crate) fn waits(&mut self, name: &'static str, ticket: impl FnOnce(Ticket) -> Ticket) {
        assert_eq!(self.arrive(name, 0, ticket), Ok(vec![]));
    }

    pub(crate) fn all_wait(&mut self, names: &[&'static str], tenant: &'static str) {
        for name in names {
            self.waits(name, |t| t.tenant(tenant.into()));
        }
    }

    /// Releases the slot. Returns the waiter that gets it.
    pub(crate) fn next(&mut self, seconds: u64) -> Option<&'static str> {
        let now = self.at(seconds);
        if let Some(slot) = self.running.take() {
            self.slots.release(slot);
        }
        let mut wakes = WakeList::new();
        self.room
            .on_release(&self.slots, PoolId(0), now, &mut wakes);
        let mut wakes = wakes.into_iter();
        let name = wakes.next()?;
        self.running = self.room.take_outcome(self.ids[name]).unwrap().ok();
        assert_eq!(wakes.next(), None, "one slot, one grant");
        Some(name)
    }

    /// All waiters, in the order in which they are served.
    pub(crate) fn served(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.next(0)).collect()
    }

    pub(crate) fn cancel(&mut self, name: &'static str) {
        self.room.cancel(self.ids[name], self.begin);
    }

    pub(crate) fn reconfigure(
        &mut self,
        config: WaitingRoomConfig,
    ) -> Vec<(&'static str, RejectReason)> {
        let mut wakes = WakeList::new();
        let now = self.begin;
        self.room.reconfigure(&self.slots, config, now, &mut wakes);
        let answer = |name| {
            (
                name,
                self.room.take_outcome(self.ids[name]).unwrap().unwrap_err(),
            )
        };
        wakes.into_iter().map(answer).collect()
    }

    pub(crate) fn outcome(&mut self, name: &str) -> Option<Result<Slot, RejectReason>> {
        self.room.take_outcome(self.ids[name])
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.room.position(self.ids[name])
    }
}

pub(crate) fn config(change: impl FnOnce(&mut WaitingRoomConfig)) -> WaitingRoomConfig {
    let mut config = WaitingRoomConfig::default();
    config.max_wait = None;
    config.levels = PriorityLevels::new(["high", "normal", "low"], "normal").unwrap();
    change(&mut config);
    config
}

pub(crate) fn level(level: u8) -> impl FnOnce(Ticket) -> Ticket {
    move |mut ticket| {
        ticket.priority = Priority(level);
        ticket
    }
}

#[test]
fn high_is_served_before_earlier_normal() {
    let mut room = Room::new(config(|_| {}));
    room.waits("n1", level(NORMAL));
    room.waits("h", level(HIGH));
    room.waits("n2", level(NORMAL));
    assert_eq!(room.position("n2"), Some(3));
    assert_eq!(room.served(), ["h", "n1", "n2"]);
}

#[test]
fn full_room_rejects_any_level_without_displacement() {
    let mut room = Room::new(config(|c| (c.max_size, c.displace) = (2, false)));
    room.waits("a", level(LOW));
    room.waits("b", level(LOW));
    assert_eq!(room.arrive("c", 0, level(HIGH)), Err(RejectReason::Full));
    assert_eq!(room.room.len(), 2);
}

#[test]
fn reserved_place_is_not_given_to_another() {
    let mut room = Room::new(config(|c| c.max_size = 1));
    assert!(room.room.reserve());
    assert!(!room.room.reserve());
    assert_eq!(room.arrive("a", 0, level(HIGH)), Err(RejectReason::Full));
    room.room.unreserve();
    room.waits("b", level(NORMAL));
}

#[test]
fn displacement_takes_the_latest_of_a_lower_level() {
    let mut room = Room::new(config(|c| (c.max_size, c.displace) = (3, true)));
    room.waits("low 1", level(LOW));
    room.waits("low 2", level(LOW));
    room.waits("normal", level(NORMAL));
    assert_eq!(room.arrive("high 1", 0, level(HIGH)), Ok(vec!["low 2"]));
    assert_eq!(room.arrive("low 3", 0, level(LOW)), Err(RejectReason::Full));
    assert_eq!(room.arrive("high 2", 0, level(HIGH)), Ok(vec!["low 1"]));
    assert_eq!(room.arrive("high 3", 0, level(HIGH)), Ok(vec!["normal"]));
    assert_eq!(
        room.arrive("high 4", 0, level(HIGH)),
        Err(RejectReason::Full)
    );
    assert_eq!(room.served(), ["high 1", "high 2", "high 3"]);
}

#[test]
fn waiter_is_promoted_at_each_interval_and_not_before() {
    let ten = Some(Duration::from_secs(10));
    for (seconds, first) in [(19, "high"), (20, "low")] {
        let mut room = Room::new(config(|c| c.promote_after = ten));
        room.waits("low", level(LOW));
        room.arrive("high", 5, level(HIGH)).unwrap();
        assert_eq!(room.next(seconds), Some(first), "after {seconds} s");
    }
    for (seconds, first) in [(9, "normal"), (10, "low")] {
        let mut room = Room::new(config(|c| c.promote_after = ten));
        room.waits("low", level(LOW));
        room.arrive("normal", 1, level(NORMAL)).unwrap();
        assert_eq!(room.next(seconds), Some(first), "after {seconds} s");
    }
}

#[test]
fn zero_interval_promotes_no_waiter() {
    let mut room = Room::new(config(|c| c.promote_after = Some(Duration::ZERO)));
    room.waits("low", level(LOW));
    room.waits("normal", level(NORMAL));
    assert_eq!(room.next(100), Some("normal"));
}

#[test]
fn promoted_waiters_keep_the_order_of_arrival() {
    let mut room = Room::new(config(|c| c.promote_after = Some(Duration::from_secs(10))));
    let begin = room.at(0);
    room.arrive("first", 5, level(NORMAL)).unwrap();
    let arrived_earlier = |mut t: Ticket| {
        t.arrival = Some(begin);
        t
    };
    room.arrive("second", 6, arrived_earlier).unwrap();
    room.arrive("third", 16, level(HIGH)).unwrap();
    assert_eq!(room.position("first"), Some(1));
    let served = [room.next(16), room.next(16), room.next(16)];
    assert_eq!(served, [Some("first"), Some("second"), Some("third")]);
}

#[test]
fn promoted_waiter_competes_by_discipline_at_its_new_level() {
    let orders = [
        (Discipline::Deadline, ["high 1", "high 2", "high 3", "low"]),
        (Discipline::Fair, ["high 1", "low", "high 2", "high 3"]),
        (Discipline::Fifo, ["low", "high 1", "high 2", "high 3"]),
    ];
    for (discipline, order) in orders {
        let mut room = Room::new(config(|c| {
            (c.discipline, c.promote_after) = (discipline, Some(Duration::from_secs(10)));
        }));
        let soon = |t: Ticket| level(HIGH)(t.tenant("b".into()).timeout(Duration::from_secs(30)));
        let late = |t: Ticket| level(LOW)(t.tenant("a".into()).timeout(Duration::from_secs(90)));
        room.waits("low", late);
        for name in ["high 1", "high 2", "high 3"] {
            room.arrive(name, 19, soon).unwrap();
        }
        let served = [20; 4].map(|seconds| room.next(seconds).unwrap());
        assert_eq!(served, order, "{discipline:?}");
    }
}

#[test]
fn smaller_room_evicts_the_lowest_level_latest_first() {
    let names: Vec<&'static str> = (0..20).map(|i| &*format!("{i}").leak()).collect();
    let mut room = Room::new(config(|_| {}));
    for (i, name) in names.iter().enumerate() {
        room.waits(name, level([NORMAL, NORMAL, HIGH, LOW][i % 4]));
    }
    let by_level = |levels: &[usize]| {
        let of = |level: usize| (0..20).filter(move |i| i % 4 == level);
        let mut all: Vec<usize> = levels.iter().flat_map(|&level| of(level)).collect();
        all.sort_unstable();
        all
    };
    let lowest_first = [by_level(&[3]), by_level(&[0, 1]), by_level(&[2])];
    let rejected = lowest_first.iter().flat_map(|level| level.iter().rev());
    let rejected: Vec<_> = rejected
        .take(15)
        .map(|&i| (names[i], RejectReason::Full))
        .collect();
    assert_eq!(room.reconfigure(config(|c| c.max_size = 5)), rejected);
    assert_eq!(room.served(), ["2", "6", "10", "14", "18"]);
}

#[test]
fn levels_keep_their_waiters_by_name() {
    let mut room = Room::new(config(|_| {}));
    room.waits("low", level(LOW));
    room.waits("normal", level(NORMAL));
    room.waits("high", level(HIGH));
    let turned = PriorityLevels::new(["LOW", "vip", "normal"], "vip").unwrap();
    assert_eq!(room.reconfigure(config(|c| c.levels = turned)), []);
    assert_eq!(room.served(), ["low", "high", "normal"]);
}

#[test]
fn tenant_bound_holds_through_cancel_and_reconfigure() {
    let mut room = Room::new(config(|c| c.max_size_per_tenant = Some(2)));
    let of = |tenant: &'static str| move |t: Ticket| t.tenant(tenant.into());
    room.all_wait(&["a1", "a2"], "a");
    assert_eq!(room.arrive("a3", 0, of("a")), Err(RejectReason::TenantFull));
    room.waits("b1", of("b"));
    room.cancel("a1");
    room.waits("a4", of("a"));
    assert_eq!(room.next(0), Some("a2"));
    room.waits("a5", of("a"));
    let one = config(|c| c.max_size_per_tenant = Some(1));
    assert_eq!(room.reconfigure(one), [("a5", RejectReason::TenantFull)]);
    assert_eq!(room.served(), ["b1", "a4"]);
}

#[test]
fn expired_waiter_frees_its_place_before_the_timer() {
    let mut room = Room::new(config(|c| c.max_size = 1));
    room.waits("gone", |t| t.timeout(Duration::from_secs(1)));
    assert_eq!(room.arrive("here", 1, level(NORMAL)), Ok(vec!["gone"]));
}

#[test]
fn closed_room_rejects_waiters_and_arrivals() {
    let mut room = Room::new(config(|_| {}));
    room.all_wait(&["a", "b"], "");
    let mut wakes = WakeList::new();
    room.room.close(&mut wakes);
    assert_eq!(wakes.into_iter().collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(
        room.arrive("c", 0, level(HIGH)),
        Err(RejectReason::ShuttingDown)
    );
    assert_eq!(room.next(0), None);
}
