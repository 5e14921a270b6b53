//! The plain and the full room cannot be told apart where both apply, nor a room that changes from one to the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use tower_triage::Discipline::{self, Deadline, Fair, Fifo};
use tower_triage::admit::{AdmitOutcome, WaiterId, WaitingRoom, WakeList};
use tower_triage::{Priority, Ticket};

use super::driver::{Event, Furniture, TENANTS, furniture, one_lane_events};
use super::wards::{Bed, OneLane, TestCapacity, Wards};

/// A room in front of a capacity.
struct Subject<C: TestCapacity> {
    room: WaitingRoom<C, usize>,
    wards: C,
    keys: BTreeMap<usize, WaiterId>,
    running: Vec<Bed>,
    reserved: usize,
    came: usize,
    now: Instant,
}

impl<C: TestCapacity> Subject<C> {
    fn new(begin: Instant, furniture: &Furniture, beds: &[usize]) -> Self {
        Self {
            room: WaitingRoom::new(furniture.config(), begin),
            wards: C::from(Wards::new(beds, &[vec![0, 1]])),
            keys: BTreeMap::new(),
            running: Vec::new(),
            reserved: 0,
            came: 0,
            now: begin + Duration::from_secs(100),
        }
    }

    /// What is seen of it.
    fn apply(&mut self, event: Event) -> String {
        let mut woken = WakeList::new();
        let seen = self.happens(event, &mut woken);
        let woken: Vec<usize> = woken.into_iter().collect();
        format!("{seen} {woken:?}")
    }

    fn happens(&mut self, event: Event, woken: &mut WakeList<usize>) -> String {
        let Self {
            room, wards, now, ..
        } = self;
        match event {
            Event::Arrive { .. } => return self.arrive(event, woken),
            Event::Release(which) if !self.running.is_empty() => {
                let bed = self.running.swap_remove(which.index(self.running.len()));
                let pool = wards.release(bed);
                room.on_release(wards, pool, *now, woken);
            }
            Event::Leave(which) => return self.leave(which, woken),
            Event::Collect(which) => return self.take_outcome(which),
            Event::TimePasses(seconds) => {
                *now += Duration::from_secs(seconds);
                room.advance(*now, woken);
            }
            Event::Reconfigure(furniture) => {
                room.reconfigure(wards, furniture.config(), *now, woken);
            }
            Event::SetBeds { ward, beds } => {
                wards.as_ref().set_beds(ward, beds);
                room.on_capacity_grown(wards, *now, woken);
            }
            Event::SetTreats { lane, treats } => {
                wards.as_ref().set_treats(lane, treats);
                room.on_capacity_changed(wards, *now, woken);
            }
            Event::Move { .. } | Event::Furnish(_) => {}
            Event::Reserve => self.reserved += usize::from(room.reserve()),
            Event::Unreserve if self.reserved > 0 => {
                self.reserved -= 1;
                room.unreserve();
            }
            Event::Close => room.close(woken),
            Event::Release(_) | Event::Unreserve => {}
        }
        String::new()
    }

    fn arrive(&mut self, event: Event, woken: &mut WakeList<usize>) -> String {
        let Event::Arrive {
            priority,
            tenant,
            lane,
            ago,
            within,
            returning,
            ..
        } = event
        else {
            unreachable!("it is an arrival")
        };
        let mut ticket = Ticket::from(Priority(priority))
            .tenant(TENANTS[tenant].into())
            .cost(1);
        ticket.arrival = ago.map(|ago| self.now - Duration::from_secs(ago));
        let arrival = ticket.arrival.unwrap_or(self.now);
        ticket.deadline = within.map(|within| arrival + Duration::from_secs(within));
        ticket.requeued = returning;
        let id = self.came;
        self.came += 1;
        match self.room.arrive(&self.wards, ticket, lane, self.now, woken) {
            AdmitOutcome::Queued(key) => {
                self.keys.insert(id, key);
                format!("queued {:?}", self.room.set_waker(key, id))
            }
            AdmitOutcome::Leased(bed) => {
                self.running.push(bed);
                format!("leased {:?}", self.running.last())
            }
            AdmitOutcome::Rejected(why) => format!("rejected {why:?}"),
        }
    }

    fn pick(&self, which: Index) -> Option<(usize, WaiterId)> {
        let nth = which.index(self.keys.len().max(1));
        self.keys.iter().nth(nth).map(|(&id, &key)| (id, key))
    }

    fn leave(&mut self, which: Index, woken: &mut WakeList<usize>) -> String {
        let Some((id, key)) = self.pick(which) else {
            return String::new();
        };
        self.keys.remove(&id);
        let (bed, note) = self.room.cancel(key);
        let seen = format!("{bed:?} {note:?}");
        if let Some(bed) = bed {
            let pool = self.wards.release(bed);
            self.room.on_release(&self.wards, pool, self.now, woken);
        }
        seen
    }

    fn take_outcome(&mut self, which: Index) -> String {
        let Some((id, key)) = self.pick(which) else {
            return String::new();
        };
        let answer = self.room.take_outcome(key);
        let seen = format!("{answer:?}");
        if answer.is_some() {
            self.keys.remove(&id);
        }
        self.running.extend(answer.and_then(Result::ok));
        seen
    }

    /// All that can be asked.
    fn look(&self) -> String {
        let Self {
            room, keys, wards, ..
        } = self;
        let stands = |(&id, &key): (&usize, &WaiterId)| {
            let (note, position) = (room.waker(key), room.position(key));
            (
                id,
                room.waits(key),
                room.may_wait(key),
                note.copied(),
                position,
            )
        };
        let stand: Vec<_> = keys.iter().map(stands).collect();
        let head = room.head().map(|head| room.waker(head));
        let (counts, len) = (room.stats(), (room.len(), room.has_room()));
        let times = (room.next_timeout(), room.estimated_wait(7));
        format!(
            "{counts:?} {len:?} {times:?} {head:?} {stand:?} {:?}",
            wards.as_ref().taken()
        )
    }
}

const ORDERS: &[Discipline] = &[Fifo, Deadline, Fair];

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn plain_and_full_room_cannot_be_told_apart(
        furniture in furniture(ORDERS),
        beds in prop::array::uniform2(0usize..3),
        events in one_lane_events(ORDERS),
    ) {
        let begin = Instant::now();
        let mut one = Subject::<OneLane>::new(begin, &furniture, &beds);
        let mut other = Subject::<Wards>::new(begin, &furniture, &beds);
        for event in events {
            assert_eq!(one.apply(event.clone()), other.apply(event.clone()), "{event:?}");
            let look = (one.look(), other.look());
            assert_eq!(look.0, look.1, "after {event:?}");
        }
    }
}
