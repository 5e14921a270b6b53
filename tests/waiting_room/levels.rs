//! What a room says of each of its levels.

use std::time::{Duration, Instant};

use tower_triage::admit::{
    AdmitOutcome, Capacity, LevelStatus, PoolId, Slot, TargetWait, WaiterId, WaitingRoom, WakeList,
};
use tower_triage::{Discipline, Priority, PriorityLevels, SlotPool, Ticket, WaitingRoomConfig};

use super::scenarios::{HIGH, LOW, NORMAL, config};

/// A room in front of one slot.
struct SlotRoom {
    room: WaitingRoom<SlotPool, WaiterId>,
    slots: SlotPool,
    begin: Instant,
    seconds: u64,
    running: Vec<Slot>,
}

impl SlotRoom {
    fn new(config: WaitingRoomConfig) -> Self {
        let begin = Instant::now();
        Self {
            room: WaitingRoom::new(config, begin),
            slots: SlotPool::new(1),
            begin,
            seconds: 0,
            running: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.begin + Duration::from_secs(self.seconds)
    }

    /// A request arrives. `None` unless it waits.
    fn arrives(&mut self, level: u8) -> Option<WaiterId> {
        let now = self.now();
        let ticket = Ticket::new(Priority(level), now);
        let mut wakes = WakeList::new();
        let outcome = self.room.arrive(&self.slots, ticket, (), now, &mut wakes);
        for displaced in wakes {
            assert!(self.room.take_outcome(displaced).unwrap().is_err());
        }
        match outcome {
            AdmitOutcome::Leased(slot) => self.running.push(slot),
            AdmitOutcome::Queued(id) => {
                self.room.set_waker(id, id).unwrap();
                return Some(id);
            }
            AdmitOutcome::Rejected(_) => {}
        }
        None
    }

    /// The running request ends, a second later, and the next begins.
    fn ends(&mut self) {
        self.seconds += 1;
        let now = self.now();
        self.slots.release(self.running.pop().unwrap());
        let mut wakes = WakeList::new();
        self.room
            .on_release(&self.slots, PoolId(0), now, &mut wakes);
        for granted in wakes {
            let slot = self.room.take_outcome(granted).unwrap().unwrap();
            self.running.push(slot);
        }
    }

    fn levels(&mut self) -> Vec<LevelStatus> {
        let now = self.now();
        self.room.levels(&self.slots, now)
    }

    fn estimates(&mut self) -> Vec<Option<f64>> {
        let levels = self.levels().into_iter();
        let estimates = levels.map(|level| level.estimated_wait);
        estimates
            .map(|wait| wait.map(|wait| (wait.as_secs_f64() * 10.0).round() / 10.0))
            .collect()
    }
}

const DISCIPLINES: [Discipline; 3] = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];

/// In a plain room, and in full rooms.
fn each(change: impl Fn(&mut WaitingRoomConfig), act: impl Fn(SlotRoom)) {
    for discipline in DISCIPLINES {
        act(SlotRoom::new(config(|config| {
            config.discipline = discipline;
            change(config);
        })));
    }
}

#[test]
fn waiters_and_refusals_are_counted_by_level() {
    each(
        |config| {
            config.max_size = 2;
            config.displace = true;
        },
        |mut room| {
            assert_eq!(room.arrives(LOW), None);
            room.arrives(LOW).unwrap();
            room.arrives(LOW).unwrap();
            assert_eq!(room.arrives(LOW), None);
            room.arrives(NORMAL).unwrap();
            let high = room.arrives(HIGH).unwrap();
            assert_eq!(room.arrives(NORMAL), None);
            let levels = room.levels();
            let names: Vec<_> = levels.iter().map(|level| &*level.name).collect();
            assert_eq!(names, ["high", "normal", "low"]);
            let waiting = levels.iter().map(|level| level.waiting);
            assert_eq!(waiting.collect::<Vec<_>>(), [1, 1, 0]);
            let full = levels.iter().map(|level| level.stats.full);
            assert_eq!(full.collect::<Vec<_>>(), [0, 1, 1]);
            let displaced = levels.iter().map(|level| level.stats.displaced);
            assert_eq!(displaced.collect::<Vec<_>>(), [0, 0, 2]);
            let now = room.now();
            room.room.cancel(high, now);
            let levels = room.levels();
            assert_eq!(levels[0].stats.cancelled, 1);
            let rejected = levels.iter().map(|level| level.stats.rejected());
            assert_eq!(rejected.sum::<u64>(), room.room.stats().rejected());
        },
    );
}

#[test]
fn a_level_keeps_its_counts_by_name() {
    each(
        |config| config.max_size = 0,
        |mut room| {
            assert_eq!(room.arrives(LOW), None);
            for level in [LOW, LOW, HIGH] {
                assert_eq!(room.arrives(level), None);
            }
            let levels = PriorityLevels::new(["LOW", "new", "high"], "new").unwrap();
            let config = config(|config| config.levels = levels.clone());
            let now = room.now();
            let mut wakes = WakeList::new();
            room.room.reconfigure(&room.slots, config, now, &mut wakes);
            let levels = room.levels().into_iter();
            let disabled = levels.map(|level| level.stats.disabled);
            assert_eq!(disabled.collect::<Vec<_>>(), [2, 0, 1]);
            assert_eq!(room.room.stats().disabled, 3);
        },
    );
}

#[test]
fn an_estimate_is_the_wait_behind_a_level_and_those_above() {
    each(
        |config| config.target_wait = TargetWait::After(Duration::from_secs(1_000)),
        |mut room| {
            assert_eq!(room.estimates(), [Some(0.0); 3]);
            assert_eq!(room.arrives(LOW), None);
            assert_eq!(room.estimates(), [None; 3]);
            for _ in 0..12 {
                room.arrives(NORMAL).unwrap();
            }
            for _ in 0..10 {
                room.ends();
            }
            // One slot comes back per second, and two of the normal level wait.
            assert_eq!(room.estimates(), [1.0, 3.0, 3.0].map(Some));
            room.arrives(LOW).unwrap();
            room.arrives(HIGH).unwrap();
            assert_eq!(room.estimates(), [2.0, 4.0, 5.0].map(Some));
        },
    );
}

#[test]
fn a_target_is_there_unless_it_is_off() {
    each(
        |config| config.target_wait = TargetWait::Off,
        |mut room| {
            assert!(
                room.levels()
                    .iter()
                    .all(|level| level.target_wait.is_none())
            )
        },
    );
    each(
        |config| config.target_wait = Duration::from_secs(2).into(),
        |mut room| {
            let two = Some(Duration::from_secs(2));
            assert!(room.levels().iter().all(|level| level.target_wait == two));
        },
    );
}
