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
fn a_kept_slot_stays_free_however_long_its_level_is_silent() {
    each(
        |config| config.reserve("high", ReservedSlots::Slots(1)),
        |mut room| {
            assert!(room.arrives("low 1", 100_000, LOW));
            assert!(!room.arrives("low 2", 200_000, LOW));
            assert_eq!(room.room.next_timeout(), None);
            assert!(room.arrives("high", 300_000, HIGH));
        },
    );
}

#[test]
fn the_reserves_of_several_levels_add_up() {
    let config = config(|_| {})
        .reserve("high", ReservedSlots::Slots(1))
        .reserve("normal", ReservedSlots::Share(0.25));
    let mut room = SlotRoom::new(4, config);
    let levels = room.room.levels(&room.slots, room.begin).into_iter();
    let reserved: Vec<_> = levels.map(|level| level.reserved).collect();
    assert_eq!(reserved, [1, 1, 0]);
    assert!(room.arrives("low 1", 0, LOW) && room.arrives("low 2", 0, LOW));
    assert!(!room.arrives("low 3", 0, LOW));
    assert!(room.arrives("normal 1", 0, NORMAL));
    assert!(!room.arrives("normal 2", 0, NORMAL));
    assert!(room.arrives("high", 0, HIGH));
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
