//! Random events, applied to the room and to the model, and all that must hold after each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use tower_triage::admit::{AdmitOutcome, WaiterId, WaitingRoom, WakeList};
use tower_triage::admit::{Partition, Tenant};
use tower_triage::{Discipline, Priority, PriorityLevels, Ticket, WaitingRoomConfig};

use super::model::{Answer, Arrival, Id, Model, Time};
use super::wards::{Bed, TestCapacity, Treats, Ward, Wards};

pub(crate) const TENANTS: [&str; 3] = ["", "ann", "bob"];
const LEVELS: [(&[&str], &str); 4] = [
    (&["high", "normal"], "normal"),
    (&["high", "normal", "low"], "normal"),
    (&["low", "HIGH", "other"], "other"),
    (&["normal"], "normal"),
];
/// When a run begins; requests may have arrived elsewhere before.
const BEGIN: Time = 100;

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Arrive {
        priority: u8,
        tenant: usize,
        lane: usize,
        cost: u32,
        /// How long ago its ticket says that it arrived, if it does.
        ago: Option<Time>,
        within: Option<Time>,
        returning: bool,
    },
    Release(Index),
    Leave(Index),
    Collect(Index),
    TimePasses(Time),
    Reconfigure(Furniture),
    SetBeds {
        ward: usize,
        beds: usize,
    },
    SetTreats {
        lane: usize,
        treats: Treats,
    },
    /// A lane waits in another section from now on.
    Move {
        lane: usize,
        section: usize,
    },
    /// A section has other chairs, or another order.
    Furnish(Partition),
    Reserve,
    Unreserve,
    Close,
}

/// How many sections the lanes can be in.
const SECTIONS: usize = 3;
pub(crate) type Sections = [Partition; SECTIONS];

#[derive(Debug, Clone)]
pub(crate) struct Furniture {
    pub(crate) max_size: usize,
    pub(crate) per_tenant: Option<usize>,
    pub(crate) max_wait: Option<Time>,
    pub(crate) discipline: Discipline,
    pub(crate) levels: usize,
    pub(crate) promote_after: Option<Time>,
    pub(crate) displace: bool,
    pub(crate) weights: [u32; 3],
}

impl Furniture {
    pub(crate) fn config(&self) -> WaitingRoomConfig {
        let (names, default) = LEVELS[self.levels];
        let mut config = WaitingRoomConfig::default();
        config.max_size = self.max_size;
        config.max_size_per_tenant = self.per_tenant;
        config.max_wait = self.max_wait.map(Duration::from_secs);
        config.discipline = self.discipline;
        config.levels = PriorityLevels::new(names.iter().copied(), default).unwrap();
        config.promote_after = self.promote_after.map(Duration::from_secs);
        config.displace = self.displace;
        config.weights = TENANTS
            .map(Tenant::from)
            .into_iter()
            .zip(self.weights)
            .collect();
        config
    }
}

pub(crate) struct Driver<C: TestCapacity = Wards> {
    room: WaitingRoom<C, Id>,
    wards: C,
    model: Model,
    sections: Sections,
    /// The section of each lane.
    section_of: Vec<usize>,
    begin: Instant,
    keys: HashMap<Id, WaiterId>,
    /// Answered and not collected.
    answers: HashMap<Id, Answer>,
    running: Vec<Bed>,
    arrived: usize,
    served: usize,
    rejected: usize,
    cancelled: usize,
    checks: usize,
}

/// Comparing the positions of many takes long.
const MANY: usize = 20;

impl<C: TestCapacity> Driver<C> {
    pub(crate) fn new(
        furniture: &Furniture,
        sections: Sections,
        beds: &[usize],
        lanes: &[Treats],
    ) -> Self {
        let begin = Instant::now();
        let wards = beds.iter().map(|&beds| Ward { beds, taken: 0 }).collect();
        let mut driver = Self {
            room: WaitingRoom::new(furniture.config(), begin),
            wards: C::from(Wards::new(beds, lanes)),
            model: Model::new(furniture.config(), wards, lanes.to_vec(), BEGIN),
            sections,
            section_of: (0..lanes.len()).map(|lane| lane % SECTIONS).collect(),
            begin,
            keys: HashMap::new(),
            answers: HashMap::new(),
            running: Vec::new(),
            arrived: 0,
            served: 0,
            rejected: 0,
            cancelled: 0,
            checks: 0,
        };
        driver.arrange_sections(&mut WakeList::new());
        driver
    }

    pub(crate) fn apply(&mut self, event: Event) {
        let now = self.now();
        let mut woken = WakeList::new();
        match event {
            Event::Arrive {
                priority,
                tenant,
                lane,
                cost,
                ago,
                within,
                returning,
            } => {
                let arrival = self.model.now - ago.unwrap_or(0);
                let who = Arrival {
                    id: self.arrived,
                    priority,
                    tenant: TENANTS[tenant],
                    lane,
                    cost,
                    arrival,
                    deadline: within.map(|within| arrival + within),
                    // It has to say since when.
                    returning: returning && ago.is_some(),
                };
                let mut ticket = self.ticket(&who);
                ticket.requeued = returning;
                if ago.is_none() {
                    ticket.arrival = None;
                }
                self.arrive(who, ticket, &mut woken);
            }
            Event::Release(which) if !self.running.is_empty() => {
                let bed = self.running.swap_remove(which.index(self.running.len()));
                self.give_back(bed, &mut woken);
            }
            Event::Leave(which) => {
                if let Some((id, key)) = self.pick(which) {
                    self.leave(id, key, &mut woken);
                }
            }
            Event::Collect(which) => {
                if let Some((id, key)) = self.pick(which) {
                    self.take_outcome(id, key);
                }
            }
            Event::TimePasses(seconds) => {
                self.model.time_passes(self.model.now + seconds);
                self.room.advance(self.now(), &mut woken);
            }
            Event::Reconfigure(furniture) => {
                self.model.reconfigure(furniture.config());
                self.room
                    .reconfigure(&self.wards, furniture.config(), now, &mut woken);
            }
            Event::SetBeds { ward, beds } => {
                self.model.set_beds(ward, beds);
                self.wards.as_ref().set_beds(ward, beds);
                self.room.on_capacity_grown(&self.wards, now, &mut woken);
            }
            Event::SetTreats { lane, treats } => {
                self.model.set_treats(lane, treats.clone());
                self.wards.as_ref().set_treats(lane, treats);
                self.room.on_capacity_changed(&self.wards, now, &mut woken);
            }
            Event::Move { lane, section } => {
                self.section_of[lane] = section;
                self.arrange_sections(&mut woken);
            }
            Event::Furnish(section) => {
                self.sections[section.id as usize] = section;
                self.arrange_sections(&mut woken);
            }
            Event::Reserve => {
                let free =
                    self.model.waiting().count() + self.model.reserved < self.model.config.max_size;
                assert_eq!(self.room.reserve(), free);
                self.model.reserved += usize::from(free);
            }
            Event::Unreserve if self.model.reserved > 0 => {
                self.model.reserved -= 1;
                self.room.unreserve();
            }
            Event::Close => {
                self.model.close();
                self.room.close(&mut woken);
            }
            Event::Release(_) | Event::Unreserve => {}
        }
        self.same_answers(woken);
        self.check();
    }

    /// Everyone who runs ends, and everyone who waits is served or can never be.
    pub(crate) fn everyone_goes(mut self) {
        for ward in 0..self.model.wards.len() {
            self.apply(Event::SetBeds { ward, beds: 1 });
        }
        while !self.running.is_empty() || !self.keys.is_empty() {
            if let Some(bed) = self.running.pop() {
                let mut woken = WakeList::new();
                self.give_back(bed, &mut woken);
                self.same_answers(woken);
                self.check();
            }
            let answered: Vec<Id> = self.answers.keys().copied().collect();
            for id in answered {
                self.take_outcome(id, self.keys[&id]);
            }
        }
        self.check();
        let ended = self.served + self.rejected + self.cancelled;
        assert_eq!(ended, self.arrived, "everyone ends once");
        assert_eq!(self.wards.in_use(), 0);
        assert!(self.room.is_empty() && self.room.head().is_none());
    }

    fn now(&self) -> Instant {
        self.at(self.model.now)
    }

    fn at(&self, time: Time) -> Instant {
        self.begin + Duration::from_secs(time)
    }

    fn pick(&self, which: Index) -> Option<(Id, WaiterId)> {
        let mut ids: Vec<Id> = self.keys.keys().copied().collect();
        ids.sort_unstable();
        let id = *ids.get(which.index(ids.len().max(1)))?;
        Some((id, self.keys[&id]))
    }

    fn ticket(&self, who: &Arrival) -> Ticket {
        let mut ticket = Ticket::new(Priority(who.priority), self.at(who.arrival))
            .tenant(who.tenant.into())
            .cost(who.cost);
        ticket.deadline = who.deadline.map(|end| self.at(end));
        ticket
    }

    fn arrive(&mut self, who: Arrival, ticket: Ticket, woken: &mut WakeList<Id>) {
        let (id, lane, now) = (who.id, who.lane, self.now());
        self.arrived += 1;
        let outcome = self.room.arrive(&self.wards, ticket, lane, now, woken);
        match (outcome, self.model.arrive(who)) {
            (AdmitOutcome::Queued(key), None) => {
                assert_eq!(self.room.set_waker(key, id), Ok(None));
                self.keys.insert(id, key);
            }
            (AdmitOutcome::Leased(bed), Some(Answer::Bed(ward))) => {
                assert_eq!(bed, Bed(ward));
                self.running.push(bed);
                self.served += 1;
            }
            (AdmitOutcome::Rejected(why), Some(Answer::Not(expected))) => {
                assert_eq!(why, expected);
                self.rejected += 1;
            }
            (outcome, expected) => panic!("{outcome:?} instead of {expected:?}"),
        }
    }

    fn arrange_sections(&mut self, woken: &mut WakeList<Id>) {
        let sections = self.section_of.iter().map(|&id| self.sections[id]);
        let sections: Vec<Partition> = sections.collect();
        for (lane, &section) in sections.iter().enumerate() {
            self.wards.as_ref().set_section(lane, section);
        }
        self.model.set_sections(sections);
        self.room
            .on_capacity_changed(&self.wards, self.now(), woken);
    }

    fn give_back(&mut self, bed: Bed, woken: &mut WakeList<Id>) {
        self.model.bed_is_back(bed.0);
        let pool = self.wards.release(bed);
        self.room.on_release(&self.wards, pool, self.now(), woken);
    }

    fn leave(&mut self, id: Id, key: WaiterId, woken: &mut WakeList<Id>) {
        self.keys.remove(&id);
        let (lease, note) = self.room.cancel(key);
        match self.answers.remove(&id) {
            None => {
                self.model.leave(id);
                assert_eq!((lease, note), (None, Some(id)));
                self.cancelled += 1;
            }
            Some(Answer::Bed(ward)) => {
                assert_eq!((lease, note), (Some(Bed(ward)), None));
                self.give_back(Bed(ward), woken);
                self.cancelled += 1;
            }
            Some(Answer::Not(_)) => {
                assert_eq!((lease, note), (None, None));
                self.rejected += 1;
            }
        }
    }

    fn take_outcome(&mut self, id: Id, key: WaiterId) {
        let answer = self.room.take_outcome(key);
        match self.answers.remove(&id) {
            None => return assert!(answer.is_none(), "{id} waits"),
            Some(Answer::Bed(ward)) => {
                assert_eq!(answer, Some(Ok(Bed(ward))));
                self.running.push(Bed(ward));
                self.served += 1;
            }
            Some(Answer::Not(why)) => {
                assert_eq!(answer, Some(Err(why)));
                self.rejected += 1;
            }
        }
        self.keys.remove(&id);
    }

    /// Those who were told are those whom the model answered, in the same order.
    fn same_answers(&mut self, woken: WakeList<Id>) {
        let expected = std::mem::take(&mut self.model.answered);
        let seated = |ids: &mut dyn Iterator<Item = Id>, beds: bool| {
            let bed = |id: &Id| {
                let answer = expected.iter().find(|(who, _)| who == id);
                matches!(answer, Some((_, Answer::Bed(_)))) == beds
            };
            ids.filter(bed).collect::<Vec<Id>>()
        };
        let told: Vec<Id> = woken.into_iter().collect();
        let answered: Vec<Id> = expected.iter().map(|(id, _)| *id).collect();
        for beds in [true, false] {
            let mut told = seated(&mut told.iter().copied(), beds);
            let mut answered = seated(&mut answered.iter().copied(), beds);
            if !beds && !told.is_empty() {
                told.sort_unstable();
                answered.sort_unstable();
            }
            assert_eq!(told, answered, "beds: {beds}");
        }
        self.answers.extend(expected);
    }

    fn check(&mut self) {
        self.bounds_hold();
        self.no_free_slot_beside_a_waiter_that_fits();
        self.counts_add_up();
        self.checks += 1;
        if self.room.len() < MANY || self.checks.is_multiple_of(32) {
            self.positions_are_the_order_of_service();
        }
        let next_end = self.model.next_end().map(|end| self.at(end));
        if let Some(end) = next_end {
            assert!(self.room.next_timeout().is_some_and(|alarm| alarm <= end));
        }
    }

    fn bounds_hold(&self) {
        let (room, model) = (&self.room, &self.model);
        let waiting = model.waiting().count();
        assert_eq!((room.len(), room.is_empty()), (waiting, waiting == 0));
        assert!(room.len() <= model.config.max_size);
        assert_eq!(room.is_closed(), model.closed);
        assert_eq!(
            room.has_room(),
            waiting + model.reserved < model.config.max_size
        );
        if let Some(most) = model.config.max_size_per_tenant {
            assert!(model.tenants().values().all(|&waiting| waiting <= most));
        }
        assert!(!(0..model.lanes.len()).any(|lane| model.overfull(lane)));
        let taken: Vec<usize> = model.wards.iter().map(|ward| ward.taken).collect();
        assert_eq!(self.wards.as_ref().taken(), taken);
        let seated = self
            .answers
            .values()
            .filter(|a| matches!(a, Answer::Bed(_)));
        assert_eq!(self.wards.in_use(), self.running.len() + seated.count());
    }

    fn no_free_slot_beside_a_waiter_that_fits(&self) {
        let fits = self
            .model
            .waiting()
            .find(|w| self.wards.as_ref().fits(w.lane));
        assert!(fits.is_none(), "{fits:?} could have a bed");
    }

    fn counts_add_up(&self) {
        let counts = self.room.stats();
        let answered = |beds: bool| {
            let bed = |a: &&Answer| matches!(a, Answer::Bed(_)) == beds;
            self.answers.values().filter(bed).count()
        };
        let leased = (self.wards.leased() - counts.unclaimed) as usize;
        assert_eq!(leased, self.served + answered(true));
        assert_eq!(counts.rejected() as usize, self.rejected + answered(false));
        assert_eq!(counts.cancelled as usize, self.cancelled);
    }

    fn positions_are_the_order_of_service(&mut self) {
        let mut woken = WakeList::new();
        self.room
            .on_capacity_grown(&self.wards, self.now(), &mut woken);
        assert!(woken.is_empty(), "nothing changed");
        let lanes = self.model.lanes.clone();
        for treats in &lanes {
            let order = self.model.order_for(treats);
            let mut found = order.clone();
            found.sort_by_key(|id| self.room.position(self.keys[id]));
            assert_eq!(found, order, "for the wards {treats:?}");
            let first = order.first().map(|id| self.room.position(self.keys[id]));
            assert!(first.is_none_or(|first| first == Some(1)));
        }
        let lanes = 0..self.model.lanes.len();
        let disciplines = lanes.map(|lane| self.model.discipline(lane));
        if disciplines.into_iter().all(|own| own != Discipline::Fair) {
            let first = self.model.first().map(|id| self.keys[&id]);
            assert_eq!(self.room.head(), first);
        }
        let mut gone = self.answers.keys().map(|id| self.keys[id]);
        assert!(gone.all(|key| self.room.position(key).is_none()));
    }
}

pub(crate) fn furniture(disciplines: &'static [Discipline]) -> impl Strategy<Value = Furniture> {
    use prop::option::weighted;
    (
        prop_oneof![1 => Just(0usize), 9 => 1usize..9],
        weighted(0.2, 0usize..4),
        weighted(0.5, 1u64..40),
        prop::sample::select(disciplines),
        0..LEVELS.len(),
        weighted(0.4, 1u64..12),
        any::<bool>(),
        [
            prop::sample::select(&[0u32, 1, 2, 4][..]),
            prop::sample::select(&[1u32][..]),
            prop::sample::select(&[1u32, 2, 4][..]),
        ],
        any::<bool>(),
    )
        .prop_map(
            |(
                max_size,
                per_tenant,
                max_wait,
                discipline,
                levels,
                promote_after,
                displace,
                weights,
                is_plain,
            )| {
                let furniture = Furniture {
                    max_size,
                    per_tenant,
                    max_wait,
                    discipline,
                    levels,
                    promote_after,
                    displace,
                    weights,
                };
                match is_plain {
                    true => furniture.plain(disciplines[0]),
                    false => furniture,
                }
            },
        )
}

impl Furniture {
    /// What a plain room serves.
    pub(crate) fn plain(self, discipline: Discipline) -> Self {
        Self {
            per_tenant: None,
            discipline,
            promote_after: None,
            ..self
        }
    }

    /// So many times as many chairs.
    pub(crate) fn times(mut self, times: usize) -> Self {
        self.max_size *= times;
        self.per_tenant = self.per_tenant.map(|max_size| max_size * times);
        self
    }
}

/// Events in front of one lane that any pool serves, or none.
pub(crate) fn one_lane_events(
    disciplines: &'static [Discipline],
) -> impl Strategy<Value = Vec<Event>> {
    let serves = prop::sample::select(vec![vec![0, 1], vec![0], vec![1], vec![]]);
    events(disciplines, 2, 1, serves).prop_map(|events| {
        let bounds = |event: &Event| matches!(event, Event::Move { .. } | Event::Furnish(_));
        events.into_iter().filter(|event| !bounds(event)).collect()
    })
}

/// The same, with configurations that a plain room serves.
pub(crate) fn plain_events(
    disciplines: &'static [Discipline],
) -> impl Strategy<Value = Vec<Event>> {
    one_lane_events(disciplines).prop_map(|events| {
        let plain = |event| match event {
            Event::Reconfigure(new) => Event::Reconfigure(new.plain(Discipline::Fifo)),
            other => other,
        };
        events.into_iter().map(plain).collect()
    })
}

/// Half of those who come say no more than how urgent they are, and perhaps since when.
pub(crate) fn arrival(lanes: usize) -> impl Strategy<Value = Event> {
    let is_dated = prop::bool::weighted(0.6);
    let plain = (0u8..4, 0..lanes, is_dated).prop_map(|(priority, lane, is_dated)| Event::Arrive {
        priority,
        tenant: 0,
        lane,
        cost: 1,
        ago: is_dated.then_some(0),
        within: None,
        returning: false,
    });
    prop_oneof![plain, any_arrival(lanes)]
}

fn any_arrival(lanes: usize) -> impl Strategy<Value = Event> {
    use prop::option::weighted;
    (
        0u8..4,
        0..TENANTS.len(),
        0..lanes,
        prop_oneof![3 => Just(1u32), 1 => 0u32..4],
        prop_oneof![2 => Just(None), 6 => Just(Some(0u64)), 2 => (0u64..15).prop_map(Some)],
        weighted(0.4, 0u64..40),
        prop::bool::weighted(0.2),
    )
        .prop_map(
            |(priority, tenant, lane, cost, ago, within, returning)| Event::Arrive {
                priority,
                tenant,
                lane,
                cost,
                ago,
                within,
                returning,
            },
        )
}

pub(crate) fn sections(disciplines: &'static [Discipline]) -> impl Strategy<Value = Sections> {
    [0, 1, 2].map(|id| section(Just(id), disciplines))
}

fn section(
    id: impl Strategy<Value = u32>,
    disciplines: &'static [Discipline],
) -> impl Strategy<Value = Partition> {
    use prop::option::weighted;
    let asks = (
        weighted(0.6, 0usize..5),
        weighted(0.7, prop::sample::select(disciplines)),
    );
    (id, prop_oneof![Just((None, None)), asks]).prop_map(|(id, (max_size, discipline))| Partition {
        id,
        max_size,
        discipline,
    })
}

/// Events of which most are arrivals.
pub(crate) fn crowds(
    disciplines: &'static [Discipline],
    lanes: usize,
    times: usize,
) -> impl Strategy<Value = Vec<Event>> {
    let event = move |occupied| {
        prop_oneof![
            600 => arrival(occupied),
            80 => any::<Index>().prop_map(Event::Release),
            150 => any::<Index>().prop_map(Event::Leave),
            100 => any::<Index>().prop_map(Event::Collect),
            20 => (0u64..3).prop_map(Event::TimePasses),
            4 => furniture(disciplines).prop_map(move |new| Event::Reconfigure(new.times(times))),
            4 => (0..lanes, 0..SECTIONS).prop_map(|(lane, section)| Event::Move { lane, section }),
        ]
    };
    occupied(lanes).prop_flat_map(move |occupied| prop::collection::vec(event(occupied), 100..400))
}

/// Half of the time, all come to one lane.
fn occupied(lanes: usize) -> impl Strategy<Value = usize> {
    prop::sample::select(vec![1, lanes])
}

/// `changes`: the furniture that may come, and the wards that a lane may get.
pub(crate) fn events(
    disciplines: &'static [Discipline],
    wards: usize,
    lanes: usize,
    treats: impl Strategy<Value = Treats> + Clone + 'static,
) -> impl Strategy<Value = Vec<Event>> {
    let event = move |occupied| {
        prop_oneof![
            40 => arrival(occupied),
            20 => any::<Index>().prop_map(Event::Release),
            8 => any::<Index>().prop_map(Event::Leave),
            10 => any::<Index>().prop_map(Event::Collect),
            12 => (0u64..8).prop_map(Event::TimePasses),
            3 => furniture(disciplines).prop_map(Event::Reconfigure),
            3 => (0..wards, 0usize..4).prop_map(|(ward, beds)| Event::SetBeds { ward, beds }),
            2 => (0..lanes, treats.clone()).prop_map(|(lane, treats)| Event::SetTreats { lane, treats }),
            3 => (0..lanes, 0..SECTIONS).prop_map(|(lane, section)| Event::Move { lane, section }),
            3 => section(0..SECTIONS as u32, disciplines).prop_map(Event::Furnish),
            3 => Just(Event::Reserve),
            3 => Just(Event::Unreserve),
        ]
    };
    let closing = prop::option::weighted(0.1, any::<Index>());
    let events = occupied(lanes)
        .prop_flat_map(move |occupied| prop::collection::vec(event(occupied), 1..70));
    (events, closing).prop_map(|(mut events, closing)| {
        if let Some(closing) = closing {
            events.insert(closing.index(events.len()), Event::Close);
        }
        events
    })
}
