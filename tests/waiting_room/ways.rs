//! Where nothing counts but who came first, a ticket that says nothing special may take a shorter way in and out
//! than one that does. Nobody can tell which it was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use tower_triage::Discipline::{self, Deadline, Fifo};
use tower_triage::admit::Capacity;
use tower_triage::admit::{AdmitOutcome, WaiterId, WaitingRoom, WakeList};
use tower_triage::{Priority, Ticket, WaitingRoomConfig};

use super::driver::{Event, Furniture, Sections, TENANTS, events, furniture, sections};
use super::wards::{Bed, Treats, Wards};

/// A room, all of whose tickets say that they cost as much.
struct Way {
    cost: u32,
    room: WaitingRoom<Wards, usize>,
    wards: Wards,
    sections: Sections,
    section_of: Vec<usize>,
    keys: BTreeMap<usize, WaiterId>,
    running: Vec<Bed>,
    reserved: usize,
    came: usize,
    now: Instant,
}

impl Way {
    fn new(
        cost: u32,
        begin: Instant,
        furniture: &Furniture,
        sections: Sections,
        beds: &[usize],
        lanes: &[Treats],
    ) -> Self {
        let mut way = Self {
            cost,
            room: WaitingRoom::new(furniture.config(), begin),
            wards: Wards::new(beds, lanes),
            sections,
            section_of: (0..lanes.len()).map(|lane| lane % sections.len()).collect(),
            keys: BTreeMap::new(),
            running: Vec::new(),
            reserved: 0,
            came: 0,
            now: begin + Duration::from_secs(100),
        };
        if furniture.tracks_oldest {
            way.room.track_oldest();
        }
        way.arrange_sections(&mut WakeList::new());
        way
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
                room.expire(*now, woken);
            }
            Event::Reconfigure(furniture) => {
                room.reconfigure(wards, furniture.config(), *now, woken);
            }
            Event::SetBeds { ward, beds } => {
                wards.set_beds(ward, beds);
                room.on_capacity_grown(wards, *now, woken);
            }
            Event::SetTreats { lane, treats } => {
                wards.set_treats(lane, treats);
                room.on_capacity_changed(wards, *now, woken);
            }
            Event::Move { lane, section } => {
                self.section_of[lane] = section;
                self.arrange_sections(woken);
            }
            Event::Furnish(section) => {
                self.sections[section.id as usize] = section;
                self.arrange_sections(woken);
            }
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

    fn arrange_sections(&mut self, woken: &mut WakeList<usize>) {
        for (lane, &section) in self.section_of.iter().enumerate() {
            self.wards.set_section(lane, self.sections[section]);
        }
        self.room.on_capacity_changed(&self.wards, self.now, woken);
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
            .cost(self.cost);
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
            let (note, position) = (room.note(key), room.position(key));
            (
                id,
                room.waits(key),
                room.may_wait(key),
                note.copied(),
                position,
            )
        };
        let stand: Vec<_> = keys.iter().map(stands).collect();
        let head = room.head().map(|head| room.note(head));
        let order: Vec<_> = room.in_order().iter().map(|&key| room.note(key)).collect();
        let (counts, len) = (room.stats(), (room.len(), room.has_chair()));
        let times = (
            room.next_end(),
            room.is_timed(),
            room.oldest(),
            room.estimated_wait(7),
        );
        format!(
            "{counts:?} {len:?} {times:?} {head:?} {order:?} {stand:?} {:?}",
            wards.taken()
        )
    }
}

fn run(
    (furniture, sections): (Furniture, Sections),
    beds: &[usize],
    lanes: &[Treats],
    events: Vec<Event>,
) {
    let begin = Instant::now();
    let mut ways = [1, 2].map(|cost| Way::new(cost, begin, &furniture, sections, beds, lanes));
    for event in events {
        let [short, long] = ways.each_mut().map(|way| way.apply(event.clone()));
        assert_eq!(short, long, "{event:?}");
        let [short, long] = ways.each_ref().map(Way::look);
        assert_eq!(short, long, "after {event:?}");
    }
}

#[test]
fn who_came_first_is_known_where_others_waited_before_it_was_to_be() {
    let (begin, wards) = (Instant::now(), Wards::new(&[0], &[vec![0]]));
    let mut room: WaitingRoom<Wards, ()> = WaitingRoom::new(WaitingRoomConfig::default(), begin);
    let arrive = |room: &mut WaitingRoom<Wards, ()>| {
        let ticket = Ticket::new(Priority::HIGHEST, begin);
        match room.arrive(&wards, ticket, 0, begin, &mut WakeList::new()) {
            AdmitOutcome::Queued(key) => key,
            other => panic!("{other:?}"),
        }
    };
    let before = arrive(&mut room);
    room.cancel(before);
    room.track_oldest();
    arrive(&mut room);
    assert_eq!(room.oldest(), Some(begin));
}

/// In no order in which it counts what a ticket costs.
const ORDERS: &[Discipline] = &[Fifo, Deadline];

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nobody_can_tell_by_which_way_others_came(
        start in (furniture(ORDERS), sections(ORDERS)),
        beds in prop::array::uniform2(0usize..3),
        events in events(ORDERS, 2, 3, prop::sample::subsequence(vec![0, 1], 0..=2)),
    ) {
        let lanes = [vec![0], vec![0, 1], vec![1]];
        run(start, &beds, &lanes, events);
    }
}
