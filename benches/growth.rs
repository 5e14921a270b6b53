//! Runs operations on a waiting room, for `cache_lines.sh` to count their instructions and cache lines.
//!
//! ```text
//! growth <plain | untimed | fair> <waiting> <grant | cancel | change | pick> <operations>
//! ```
//!
//! It prints nothing, and runs the same operations each time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tower_triage::admit::Tenant;
use tower_triage::admit::{
    AdmitOutcome, Capacity, Slot, SlotPool, TargetWait, WaiterId, WaitingRoom, WakeList,
};
use tower_triage::{Discipline, Priority, Ticket, WaitingRoomConfig};

/// A room that always has the same number of waiters, and one slot that goes from one to the next.
struct Room {
    slots: SlotPool,
    /// In place of a waker, each waiter leaves its own id.
    room: WaitingRoom<SlotPool, WaiterId>,
    lease: Option<Slot>,
    random: fastrand::Rng,
    now: Instant,
    has_tenants: bool,
}

impl Room {
    fn new(config: WaitingRoomConfig, has_tenants: bool) -> Self {
        let now = Instant::now();
        let slots = SlotPool::new(1);
        Self {
            lease: slots.try_lease(&()).ok(),
            room: WaitingRoom::new(config, now),
            slots,
            random: fastrand::Rng::with_seed(7),
            now,
            has_tenants,
        }
    }

    fn enqueue(&mut self) -> WaiterId {
        self.now += Duration::from_nanos(200);
        let random = self.random.usize(..8);
        let mut ticket = Ticket::new(Priority(random as u8 % 2), self.now);
        if self.has_tenants {
            let name = ["a", "b", "c", "d", "e", "f", "g", "h"][random];
            ticket = ticket.tenant(Tenant::from(name));
        }
        let mut wakers = WakeList::new();
        let arrived = self
            .room
            .arrive(&self.slots, ticket, (), self.now, &mut wakers);
        let AdmitOutcome::Queued(id) = arrived else {
            panic!("not queued: {arrived:?}");
        };
        let _ = self.room.set_waker(id, id);
        id
    }

    /// A waiter gets a ticket of another level, which arrived a while ago.
    fn change(&mut self, id: WaiterId) {
        self.now += Duration::from_nanos(200);
        let level = Priority(self.random.u8(..2));
        let ago = Duration::from_nanos(self.random.u64(..20_000));
        let ticket = Ticket::new(level, self.now - ago);
        let mut wakers = WakeList::new();
        let (slots, now) = (&self.slots, self.now);
        let is_changed = self
            .room
            .set_ticket(slots, id, ticket, &mut (), now, &mut wakers);
        assert!(is_changed, "it waits");
    }

    /// One request arrives, the best waiter gets the slot.
    fn grant(&mut self) {
        self.enqueue();
        let lease = self.lease.take().expect("the slot is taken");
        let pool = self.slots.release(lease);
        let mut wakers = WakeList::new();
        self.room
            .on_release(&self.slots, pool, self.now, &mut wakers);
        let served = wakers.into_iter().next().expect("one waiter is served");
        self.lease = self.room.take_outcome(served).expect("it is answered").ok();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [configuration, waiting, operation, operations] = arguments.as_slice() else {
        eprintln!(
            "growth <plain | untimed | fair> <waiting> <grant | cancel | change | pick> <operations>"
        );
        std::process::exit(2);
    };
    let [waiting, operations] =
        [waiting, operations].map(|n| n.parse::<usize>().expect("a number"));
    // With a target, no room gets as full as that.
    let mut config = WaitingRoomConfig::default().target_wait(TargetWait::Off);
    config.max_size = waiting + 1;
    config.discipline = match configuration.as_str() {
        "plain" | "untimed" => Discipline::Fifo,
        "fair" => Discipline::Fair,
        other => panic!("no configuration: {other}"),
    };
    if configuration == "untimed" {
        config.max_wait = None;
    }
    let has_tenants = config.discipline != Discipline::Fifo;
    let mut room = Room::new(config, has_tenants);
    let mut ids: Vec<WaiterId> = (0..waiting).map(|_| room.enqueue()).collect();
    let mut random = fastrand::Rng::with_seed(8);
    for _ in 0..operations {
        if operation == "grant" {
            room.grant();
            continue;
        }
        // The id of one waiter anywhere in the room, replaced by that of a new one.
        let picked = &mut ids[random.usize(..waiting)];
        match operation.as_str() {
            "pick" => _ = black_box(std::mem::replace(picked, black_box(*picked))),
            "change" => {
                let changed = *picked;
                room.change(changed);
            }
            "cancel" => {
                let leaves = std::mem::replace(picked, room.enqueue());
                room.room.cancel(leaves, room.now);
            }
            other => panic!("no operation: {other}"),
        }
    }
    // Freeing the room is not counted.
    std::mem::forget(room);
}
