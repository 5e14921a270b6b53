//! Slots that are kept for a level.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tower_triage::admit::{
    AdmitOutcome, Capacity, ReservedSlots, Slot, WaiterId, WaitingRoom, WakeList,
};
use tower_triage::{Discipline, Priority, SlotPool, Ticket, WaitingRoomConfig};

use super::scenarios::{HIGH, LOW, NORMAL, config};

/// A room in front of some slots. Requests have names.
struct SlotRoom {
    room: WaitingRoom<SlotPool, &'static str>,
    slots: SlotPool,
    begin: Instant,
    waiting: HashMap<&'static str, WaiterId>,
    running: HashMap<&'static str, Slot>,
}

impl SlotRoom {
    fn new(slots: usize, config: WaitingRoomConfig) -> Self {
        let begin = Instant::now();
        Self {
            room: WaitingRoom::new(config, begin),
            slots: SlotPool::new(slots),
            begin,
            waiting: HashMap::new(),
            running: HashMap::new(),
        }
    }

    /// Whether a request that arrives after so many seconds gets a slot at once; otherwise it waits.
    fn arrives(&mut self, name: &'static str, second: u64, level: u8) -> bool {
        let now = self.begin + Duration::from_secs(second);
        let ticket = Ticket::new(Priority(level), now);
        let mut wakes = WakeList::new();
        let outcome = self.room.arrive(&self.slots, ticket, (), now, &mut wakes);
        assert!(wakes.is_empty());
        match outcome {
            AdmitOutcome::Leased(slot) => self.running.insert(name, slot).is_none(),
            AdmitOutcome::Queued(id) => {
                self.room.set_waker(id, name).unwrap();
                self.waiting.insert(name, id);
                false
            }
            AdmitOutcome::Rejected(why) => panic!("{name}: {why}"),
        }
    }

    /// A request ends. Returns those that get a slot.
    fn ends(&mut self, name: &str, second: u64) -> Vec<&'static str> {
        let now = self.begin + Duration::from_secs(second);
        let pool = self.slots.release(self.running.remove(name).unwrap());
        let mut wakes = WakeList::new();
        self.room.on_release(&self.slots, pool, now, &mut wakes);
        self.started(wakes)
    }

    fn reconfigures(&mut self, config: WaitingRoomConfig, second: u64) -> Vec<&'static str> {
        let now = self.begin + Duration::from_secs(second);
        let mut wakes = WakeList::new();
        self.room.reconfigure(&self.slots, config, now, &mut wakes);
        self.started(wakes)
    }

    /// How many slots are kept for the highest level, and how many of them lower levels have.
    fn reserved_and_lent(&mut self, second: u64) -> (usize, usize) {
        let now = self.begin + Duration::from_secs(second);
        let levels = self.room.levels(&self.slots, now);
        let lower = &levels[1..];
        assert!(
            lower
                .iter()
                .all(|level| (level.reserved, level.lent) == (0, 0))
        );
        (levels[0].reserved, levels[0].lent)
    }

    fn started(&mut self, wakes: WakeList<&'static str>) -> Vec<&'static str> {
        let names: Vec<_> = wakes.into_iter().collect();
        for &name in &names {
            let id = self.waiting.remove(name).unwrap();
            let slot = self.room.take_outcome(id).unwrap().unwrap();
            self.running.insert(name, slot);
        }
        names
    }
}

const DISCIPLINES: [Discipline; 3] = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];

fn each(change: impl Fn(WaitingRoomConfig) -> WaitingRoomConfig, act: impl Fn(SlotRoom)) {
    for discipline in DISCIPLINES {
        let config = config(|config| config.discipline = discipline);
        act(SlotRoom::new(2, change(config)));
    }
}

#[test]
fn kept_slots_are_for_their_level_and_those_above() {
    each(
        |config| config.reserve("normal", ReservedSlots::Slots(1)),
        |mut room| {
            assert!(room.arrives("low 1", 0, LOW));
            assert!(!room.arrives("low 2", 0, LOW));
            assert!(room.arrives("normal", 0, NORMAL));
            assert!(!room.arrives("high", 0, HIGH));
            assert_eq!(room.ends("normal", 1), ["high"]);
            assert_eq!(room.ends("high", 2), [""; 0]);
            assert_eq!(room.ends("low 1", 3), ["low 2"]);
            assert!(room.arrives("high 2", 4, HIGH));
        },
    );
}

#[test]
fn the_reserves_of_several_levels_add_up() {
    let config = config(|_| {})
        .reserve("high", ReservedSlots::Slots(1))
        .reserve("normal", ReservedSlots::Share(0.25));
    let mut room = SlotRoom::new(4, config);
    assert!(room.arrives("low 1", 0, LOW) && room.arrives("low 2", 0, LOW));
    assert!(!room.arrives("low 3", 0, LOW));
    assert!(room.arrives("normal 1", 0, NORMAL));
    assert!(!room.arrives("normal 2", 0, NORMAL));
    assert!(room.arrives("high", 0, HIGH));
}

#[test]
fn kept_slots_are_lent_while_their_level_is_silent() {
    each(
        |config| config.reserve("high", ReservedSlots::Slots(1)).lend(true),
        |mut room| {
            // No request of the level has come yet.
            assert!(room.arrives("low 1", 100, LOW) && room.arrives("low 2", 100, LOW));
            assert!(!room.arrives("high", 101, HIGH));
            assert_eq!(room.ends("low 1", 102), ["high"]);
            assert_eq!(room.ends("high", 103), [""; 0]);
            assert!(!room.arrives("low 3", 104, LOW) && !room.arrives("low 4", 104, LOW));
            // One for the slot that is released, one for the slot that was kept.
            assert_eq!(room.ends("low 2", 112), ["low 3", "low 4"]);
        },
    );
}

#[test]
fn lent_slots_are_counted_until_they_come_back() {
    each(
        |config| config.reserve("high", ReservedSlots::Slots(1)).lend(true),
        |mut room| {
            assert!(room.arrives("low 1", 100, LOW));
            assert_eq!(room.reserved_and_lent(100), (1, 0));
            assert!(room.arrives("low 2", 100, LOW));
            assert_eq!(room.reserved_and_lent(100), (1, 1));
            // Its level is silent no more, and waits for what it lent.
            assert!(!room.arrives("high 1", 101, HIGH));
            assert_eq!(room.reserved_and_lent(101), (1, 1));
            assert_eq!(room.ends("low 1", 102), ["high 1"]);
            assert_eq!(room.reserved_and_lent(102), (1, 0));
            assert!(!room.arrives("low 3", 102, LOW));
            assert_eq!(room.ends("high 1", 103), [""; 0]);
            assert_eq!(room.reserved_and_lent(103), (1, 0));
            assert_eq!(room.ends("low 2", 114), ["low 3"]);
            assert!(room.arrives("low 4", 115, LOW));
            assert_eq!(room.reserved_and_lent(115), (1, 1));
            assert_eq!(room.ends("low 3", 116), [""; 0]);
            assert_eq!(room.reserved_and_lent(116), (1, 0));
        },
    );
}

#[test]
fn what_is_kept_for_a_level_is_not_lent_while_a_higher_one_comes() {
    each(
        |config| config.reserve("normal", ReservedSlots::Slots(1)).lend(true),
        |mut room| {
            assert!(room.arrives("high", 0, HIGH));
            assert_eq!(room.ends("high", 1), [""; 0]);
            assert!(room.arrives("low 1", 2, LOW) && !room.arrives("low 2", 2, LOW));
        },
    );
}

#[test]
fn a_level_uses_its_own_slots_and_borrows_none() {
    each(
        |config| config.reserve("high", ReservedSlots::Slots(1)).lend(true),
        |mut room| {
            assert!(room.arrives("high 1", 0, HIGH) && room.arrives("high 2", 0, HIGH));
            assert_eq!(room.reserved_and_lent(0), (1, 0));
        },
    );
}

#[test]
fn a_waiter_is_told_when_a_kept_slot_is_lent() {
    each(
        |config| config.reserve("high", ReservedSlots::Slots(1)).lend(true),
        |mut room| {
            assert!(room.arrives("high", 0, HIGH));
            assert_eq!(room.ends("high", 1), [""; 0]);
            assert!(room.arrives("low 1", 2, LOW) && !room.arrives("low 2", 2, LOW));
            // Nothing else happens.
            let due = room.room.next_timeout().expect("a time at which to look");
            assert!(due <= room.begin + Duration::from_secs(11), "{due:?}");
            let mut wakes = WakeList::new();
            room.room.on_capacity_grown(&room.slots, due, &mut wakes);
            assert_eq!(room.started(wakes), ["low 2"]);
        },
    );
}

#[test]
fn of_several_levels_the_lowest_that_is_silent_lends() {
    let config = config(|_| {})
        .reserve("high", ReservedSlots::Slots(1))
        .reserve("normal", ReservedSlots::Slots(1))
        .lend(true);
    let mut room = SlotRoom::new(4, config);
    let begin = room.begin;
    let lent = |room: &mut SlotRoom, second| {
        let now = begin + Duration::from_secs(second);
        let levels = room.room.levels(&room.slots, now).into_iter();
        levels
            .map(|level| (level.reserved, level.lent))
            .collect::<Vec<_>>()
    };
    assert!(room.arrives("normal", 100, NORMAL));
    assert!(room.arrives("low 1", 101, LOW) && room.arrives("low 2", 101, LOW));
    // Only the highest level was silent.
    assert_eq!(lent(&mut room, 101), [(1, 1), (1, 0), (0, 0)]);
    assert!(!room.arrives("low 3", 102, LOW));
    assert_eq!(room.ends("low 1", 120), ["low 3"]);
    assert!(room.arrives("low 4", 121, LOW));
    assert_eq!(lent(&mut room, 121), [(1, 1), (1, 1), (0, 0)]);
    assert_eq!(room.ends("low 2", 122), [""; 0]);
    assert_eq!(lent(&mut room, 122), [(1, 0), (1, 1), (0, 0)]);
}

#[test]
fn a_reconfiguration_lends_no_slot_of_a_level_that_came_lately() {
    each(
        |config| config.reserve("high", ReservedSlots::Slots(1)).lend(true),
        |mut room| {
            assert!(room.arrives("high", 0, HIGH));
            assert_eq!(room.ends("high", 1), [""; 0]);
            let same = room.room.config().clone().max_size(7);
            assert_eq!(room.reconfigures(same, 2), [""; 0]);
            assert!(room.arrives("low 1", 3, LOW) && !room.arrives("low 2", 3, LOW));
        },
    );
}

#[test]
fn a_reconfiguration_frees_kept_slots() {
    each(
        |config| config.reserve("high", ReservedSlots::Slots(1)),
        |mut room| {
            assert!(room.arrives("low 1", 0, LOW) && !room.arrives("low 2", 0, LOW));
            let without = config(|_| {});
            assert_eq!(room.reconfigures(without, 1), ["low 2"]);
        },
    );
}

#[test]
fn a_slot_is_lent_once_its_level_is_silent_though_none_comes_back() {
    each(
        |config| config.reserve("high", ReservedSlots::Slots(1)).lend(true),
        |mut room| {
            assert!(room.arrives("high", 0, HIGH));
            assert_eq!(room.ends("high", 1), [""; 0]);
            assert!(room.arrives("low 1", 2, LOW) && !room.arrives("low 2", 2, LOW));
            let timeout = room.room.next_timeout().unwrap();
            let silent = room.begin + Duration::from_secs(10);
            assert!(timeout > silent && timeout < silent + Duration::from_millis(1));
            let mut wakes = WakeList::new();
            assert!(!room.room.advance(silent, &mut wakes));
            assert!(room.room.advance(timeout, &mut wakes));
            room.room
                .on_capacity_grown(&room.slots, timeout, &mut wakes);
            assert_eq!(room.started(wakes), ["low 2"]);
            assert_eq!(room.room.next_timeout(), None);
        },
    );
}

#[test]
fn a_reconfiguration_does_not_forget_that_a_level_sent_requests() {
    each(
        |config| config.reserve("high", ReservedSlots::Slots(1)).lend(true),
        |mut room| {
            assert!(room.arrives("high", 100, HIGH));
            assert_eq!(room.ends("high", 101), [""; 0]);
            let larger = room.room.config().clone().max_size(50);
            assert_eq!(room.reconfigures(larger, 102), [""; 0]);
            assert!(room.arrives("low 1", 103, LOW) && !room.arrives("low 2", 103, LOW));
        },
    );
}

#[test]
fn a_promoted_waiter_gets_a_slot_that_is_kept_for_its_new_level() {
    let aging = |config: WaitingRoomConfig| {
        let kept = config.reserve("high", ReservedSlots::Slots(1));
        kept.promote_after(Duration::from_secs(5))
    };
    for another_arrives in [false, true] {
        each(aging, |mut room| {
            assert!(room.arrives("normal 1", 0, NORMAL) && !room.arrives("normal 2", 0, NORMAL));
            let promoted = room.begin + Duration::from_secs(5);
            assert_eq!(room.room.next_timeout(), Some(promoted));
            if another_arrives {
                assert!(!room.arrives("low", 5, LOW));
            }
            let mut wakes = WakeList::new();
            assert!(room.room.advance(promoted, &mut wakes));
            room.room
                .on_capacity_grown(&room.slots, promoted, &mut wakes);
            assert_eq!(room.started(wakes), ["normal 2"]);
            assert!(!room.room.advance(promoted, &mut WakeList::new()));
        });
    }
}

#[test]
fn one_slot_is_for_every_level() {
    let config = config(|_| {}).reserve("high", ReservedSlots::Share(1.0));
    let mut room = SlotRoom::new(1, config);
    assert!(room.arrives("low", 0, LOW));
}
