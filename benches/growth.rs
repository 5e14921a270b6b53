//! Enqueue, grant and cancel with 100 and with 100,000 waiting.

mod support;

use std::time::{Duration, Instant};

use support::{measure, subject};
use tower_triage::admit::{Capacity, Key, Outcome, Permits, Slot, WaitingRoom, Woken};
use tower_triage::{Discipline, Priority, RoomConfig, Ticket};

/// A room that always has the same number of waiters, and one slot that goes from one to the next.
struct Room {
    permits: Permits,
    room: WaitingRoom<Permits, ()>,
    keys: std::collections::VecDeque<Key>,
    lease: Option<Slot>,
    random: fastrand::Rng,
    start: Instant,
}

impl Room {
    fn new(waiting: usize, discipline: Discipline) -> Self {
        let mut config = RoomConfig::default();
        config.chairs = waiting + 10;
        config.discipline = discipline;
        let permits = Permits::new(1);
        let start = Instant::now();
        let mut room = Self {
            lease: permits.try_lease(&()).ok(),
            room: WaitingRoom::new(config, start),
            permits,
            keys: std::collections::VecDeque::new(),
            random: fastrand::Rng::with_seed(7),
            start,
        };
        for _ in 0..waiting {
            room.enqueue();
        }
        room
    }

    fn enqueue(&mut self) {
        self.start += Duration::from_nanos(200);
        let tenant = ["a", "b", "c", "d", "e", "f", "g", "h"][self.random.usize(..8)];
        let ticket = Ticket::new(Priority(1), self.start).tenant(tenant.into());
        let mut woken = Woken::new();
        match self
            .room
            .arrive(&self.permits, ticket, (), self.start, &mut woken)
        {
            Outcome::Queued(key) => self.keys.push_back(key),
            other => panic!("{other:?}"),
        }
    }

    /// One arrives, one is served.
    fn turn(&mut self) {
        self.enqueue();
        let lease = self.lease.take().unwrap();
        let pool = self.permits.release(lease);
        let mut woken = Woken::new();
        self.room
            .released(&self.permits, pool, self.start, &mut woken);
        // The oldest is served first, or, under `Fair`, one of the oldest.
        let served = (0..self.keys.len())
            .find_map(|i| self.room.collect(self.keys[i]).map(|answer| (i, answer)));
        let (i, answer) = served.unwrap();
        self.keys.remove(i);
        self.lease = answer.ok();
    }

    /// One arrives, one of those in the middle leaves.
    fn leave(&mut self) {
        self.enqueue();
        let i = self.random.usize(..self.keys.len());
        let key = self.keys.swap_remove_back(i).unwrap();
        self.room.cancel(key);
    }
}

fn main() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let rooms = |waiting| {
            (
                Room::new(waiting, discipline),
                Room::new(waiting, discipline),
            )
        };
        let ((mut few, mut few_leave), (mut many, mut many_leave)) = (rooms(100), rooms(100_000));
        let mut subjects = [
            subject("few", move |n| (0..n).for_each(|_| few.turn())),
            subject("many", move |n| (0..n).for_each(|_| many.turn())),
            subject("few", move |n| (0..n).for_each(|_| few_leave.leave())),
            subject("many", move |n| (0..n).for_each(|_| many_leave.leave())),
        ];
        let times = measure(&mut subjects, 101, 1_000);
        println!("\n{discipline:?}, 100 → 100,000 waiting  (goal: ≤ 1.5×)");
        for (what, at) in [
            ("enqueue + grant", 0),
            ("enqueue + cancel in the middle", 2),
        ] {
            let (few, many) = (times[at], times[at + 1]);
            println!(
                "  {what:<32} {few:>6.0} ns → {many:>6.0} ns   {:.2}×",
                many / few
            );
        }
    }
}
