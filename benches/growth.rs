//! Enqueue, grant and cancel with 100 and with 100,000 waiting.

mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use support::{Subject, measure, subject};
use tower_triage::admit::{
    AdmitOutcome, Capacity, Slot, SlotPool, WaiterId, WaitingRoom, WakeList,
};
use tower_triage::{Discipline, Priority, PriorityLevels, Ticket, WaitingRoomConfig};

/// A room that always has the same number of waiters, and one slot that goes from one to the next.
struct Room {
    permits: SlotPool,
    /// Who waits leaves its own key, to be told by.
    room: WaitingRoom<SlotPool, WaiterId>,
    lease: Option<Slot>,
    random: fastrand::Rng,
    start: Instant,
    traffic: Traffic,
}

/// Who comes.
#[derive(Debug, Clone, Copy)]
enum Traffic {
    /// Requests of eight tenants, who wait for so long.
    Tenants(Discipline),
    /// Work of three priorities, which waits for as long as it takes.
    Work,
}

impl Room {
    fn new(waiting: usize, traffic: Traffic) -> (Self, Vec<WaiterId>) {
        let mut config = WaitingRoomConfig::default();
        config.max_size = waiting + 10;
        match traffic {
            Traffic::Tenants(discipline) => config.discipline = discipline,
            Traffic::Work => {
                config.max_wait = None;
                config.levels = PriorityLevels::new(["high", "normal", "low"], "normal").unwrap();
            }
        }
        let permits = SlotPool::new(1);
        let start = Instant::now();
        let mut room = Self {
            lease: permits.try_lease(&()).ok(),
            room: WaitingRoom::new(config, start),
            permits,
            random: fastrand::Rng::with_seed(7),
            start,
            traffic,
        };
        let keys = (0..waiting).map(|_| room.enqueue()).collect();
        (room, keys)
    }

    fn enqueue(&mut self) -> WaiterId {
        self.start += Duration::from_nanos(200);
        let random = self.random.usize(..8);
        let ticket = match self.traffic {
            Traffic::Tenants(_) => {
                let tenant = ["a", "b", "c", "d", "e", "f", "g", "h"][random];
                Ticket::new(Priority(1), self.start).tenant(tenant.into())
            }
            Traffic::Work => Ticket::new(Priority(random as u8 % 3), self.start),
        };
        let mut woken = WakeList::new();
        match self
            .room
            .arrive(&self.permits, ticket, (), self.start, &mut woken)
        {
            AdmitOutcome::Queued(key) => {
                let _ = self.room.set_waker(key, key);
                key
            }
            other => panic!("{other:?}"),
        }
    }

    /// One arrives, one is served.
    fn turn(&mut self) {
        self.enqueue();
        let lease = self.lease.take().unwrap();
        let pool = self.permits.release(lease);
        let mut woken = WakeList::new();
        self.room
            .on_release(&self.permits, pool, self.start, &mut woken);
        let served = woken.into_iter().next().unwrap();
        self.lease = self.room.take_outcome(served).unwrap().ok();
    }

    /// One arrives, one of those in the middle leaves.
    fn leave(&mut self, keys: &mut [WaiterId]) {
        let (leaves, key) = pick(&mut self.random, keys);
        *leaves = self.enqueue();
        self.room.cancel(key);
    }
}

/// One of all who wait. Its key is fetched before anything else is done, for that is not the room's work.
fn pick<'a>(random: &mut fastrand::Rng, keys: &'a mut [WaiterId]) -> (&'a mut WaiterId, WaiterId) {
    let one = &mut keys[random.usize(..keys.len())];
    let key = *one;
    (one, key)
}

/// Picking one who leaves, and that one leaving.
fn leaving<'a>(name: &'a str, (mut room, mut keys): (Room, Vec<WaiterId>)) -> [Subject<'a>; 2] {
    let (mut random, mut picked) = (fastrand::Rng::with_seed(8), keys.clone());
    [
        subject(name, move |n| {
            for i in 0..n as usize {
                let new = picked[i % picked.len()];
                let (leaves, key) = pick(&mut random, &mut picked);
                black_box(key);
                *leaves = new;
            }
        }),
        subject(name, move |n| (0..n).for_each(|_| room.leave(&mut keys))),
    ]
}

fn main() {
    for traffic in [
        Traffic::Work,
        Traffic::Tenants(Discipline::Fifo),
        Traffic::Tenants(Discipline::Fair),
        Traffic::Tenants(Discipline::Deadline),
    ] {
        let rooms = |waiting| (Room::new(waiting, traffic), Room::new(waiting, traffic));
        let ((mut few, few_leave), (mut many, many_leave)) = (rooms(100), rooms(100_000));
        let [picks_few, leaves_few] = leaving("few", few_leave);
        let [picks_many, leaves_many] = leaving("many", many_leave);
        let mut subjects = [
            subject("few", move |n| (0..n).for_each(|_| few.0.turn())),
            subject("many", move |n| (0..n).for_each(|_| many.0.turn())),
            leaves_few,
            leaves_many,
            picks_few,
            picks_many,
        ];
        // Long passes, so that each has its share of what is done once in a while.
        let times = measure(&mut subjects, 11, 100_000);
        println!("\n{traffic:?}, 100 → 100,000 waiting  (goal: ≤ 1.5×)");
        for (what, at) in [
            ("enqueue + grant", 0),
            ("enqueue + cancel in the middle", 2),
        ] {
            // Finding the key of one in the middle is not the room's work.
            let pick = |i: usize| if at == 2 { times[4 + i] } else { 0.0 };
            let (few, many) = (times[at] - pick(0), times[at + 1] - pick(1));
            println!(
                "  {what:<32} {few:>6.0} ns → {many:>6.0} ns   {:.2}×",
                many / few
            );
        }
    }
}
