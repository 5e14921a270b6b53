//! A driver of random events, which applies each to the room and to the model, and compares the two.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use tower_triage::admit::{
    AdmitOutcome, Partition, PoolId, TargetWait, Tenant, TenantLimits, WaiterId, WaitingRoom,
    WakeList,
};
use tower_triage::{Discipline, Priority, PriorityLevels, Ticket, WaitingRoomConfig};

use super::model::{Answer, Arrival, Model, Number, Time};
use super::pools::{Serves, TestCapacity, TestPool, TestPools, TestSlot};

pub(crate) const TENANTS: [&str; 3] = ["", "ann", "bob"];
const LEVELS: [(&[&str], &str); 4] = [
    (&["high", "normal"], "normal"),
    (&["high", "normal", "low"], "normal"),
    (&["low", "HIGH", "other"], "other"),
    (&["normal"], "normal"),
];
/// The time at which a run begins, in seconds. Requests may have arrived elsewhere before.
const BEGIN: Time = 100;

/// A ticket and a lane.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) priority: u8,
    pub(crate) tenant: usize,
    pub(crate) lane: usize,
    pub(crate) cost: u32,
    /// How many seconds ago it arrived, if its ticket says so.
    pub(crate) ago: Option<Time>,
    pub(crate) within: Option<Time>,
    pub(crate) requeued: bool,
    pub(crate) patient: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Arrive(Asked),
    /// A waiter gets another ticket.
    SetTicket(Index, Asked),
    Release(Index),
    /// A slot is free again, but the room is not told before the next event that is no arrival.
    ReleaseUntold(Index),
    Cancel(Index),
    TakeOutcome(Index),
    Advance(Time),
    Reconfigure(RoomOptions),
    SetSlots {
        pool: usize,
        slots: usize,
    },
    SetServes {
        lane: usize,
        serves: Serves,
    },
    /// A lane moves to another partition.
    Move {
        lane: usize,
        partition: usize,
    },
    /// A partition gets another bound or another discipline.
    SetPartition(Partition),
    Reserve,
    Unreserve,
    Close,
}

/// How many partitions there are.
const PARTITIONS: usize = 3;
pub(crate) type Partitions = [Partition; PARTITIONS];

#[derive(Debug, Clone)]
pub(crate) struct RoomOptions {
    pub(crate) max_size: usize,
    pub(crate) per_tenant: Option<usize>,
    /// The number of requests of the second tenant that may wait.
    pub(crate) of_second: Option<usize>,
    pub(crate) max_wait: Option<Time>,
    pub(crate) discipline: Discipline,
    pub(crate) levels: usize,
    pub(crate) promote_after: Option<Time>,
    pub(crate) displace: bool,
    pub(crate) weights: [u32; 3],
    /// Whether the levels have weights.
    pub(crate) level_weights: bool,
}

impl RoomOptions {
    pub(crate) fn config(&self) -> WaitingRoomConfig {
        let (names, default) = LEVELS[self.levels];
        let mut config = WaitingRoomConfig::default();
        config.max_size = self.max_size;
        config.max_size_per_tenant = self.per_tenant;
        if let Some(most) = self.of_second {
            let limits = TenantLimits::default().max_size(most);
            config = config.tenant_limits(TENANTS[1], limits);
        }
        config.max_wait = self.max_wait.map(Duration::from_secs);
        config.discipline = self.discipline;
        config.levels = PriorityLevels::new(names.iter().copied(), default).unwrap();
        config.promote_after = self.promote_after.map(Duration::from_secs);
        config.displace = self.displace;
        if self.level_weights {
            let weights = names.iter().map(|name| name.to_string()).zip([4, 2]);
            config.level_weights = weights.collect();
        }
        // The model knows no times of service. `overload.rs` is about those.
        config.target_wait = TargetWait::Off;
        config.weights = TENANTS
            .map(Tenant::from)
            .into_iter()
            .zip(self.weights)
            .collect();
        config
    }
}

/// A room, and the model of it.
pub(crate) struct Driver<C: TestCapacity = TestPools> {
    room: WaitingRoom<C, Number>,
    pools: C,
    model: Model,
    partitions: Partitions,
    /// By lane: the index of its partition.
    partition_of: Vec<usize>,
    begin: Instant,
    /// Requests that wait, or have an outcome to be taken.
    ids: HashMap<Number, WaiterId>,
    /// Outcomes that have not been taken.
    answers: HashMap<Number, Answer>,
    running: Vec<TestSlot>,
    /// The pool of a slot that is free without the room having been told.
    untold: Option<usize>,
    /// A ticket was changed since the bounds were last enforced: no waiter loses its place for that.
    has_changed: bool,
    /// The requests that may wait above the bounds, because so many came back.
    came_back: usize,
    arrived: usize,
    served: usize,
    rejected: usize,
    cancelled: usize,
    checks: usize,
}

/// With more waiters than this, positions are compared after every 32nd event only.
const MANY: usize = 20;

impl<C: TestCapacity> Driver<C> {
    pub(crate) fn new(
        options: &RoomOptions,
        partitions: Partitions,
        slots: &[usize],
        lanes: &[Serves],
    ) -> Self {
        let begin = Instant::now();
        let pools = slots
            .iter()
            .map(|&slots| TestPool { slots, taken: 0 })
            .collect();
        let mut driver = Self {
            room: WaitingRoom::new(options.config(), begin),
            pools: C::from(TestPools::new(slots, lanes)),
            model: Model::new(options.config(), pools, lanes.to_vec(), BEGIN),
            partitions,
            partition_of: (0..lanes.len()).map(|lane| lane % PARTITIONS).collect(),
            begin,
            ids: HashMap::new(),
            answers: HashMap::new(),
            running: Vec::new(),
            untold: None,
            has_changed: false,
            came_back: 0,
            arrived: 0,
            served: 0,
            rejected: 0,
            cancelled: 0,
            checks: 0,
        };
        driver.update_partitions(&mut WakeList::new());
        driver
    }

    /// Applies an event to both, and compares them.
    pub(crate) fn apply(&mut self, event: Event) {
        // Between tenants, the order depends on whether a newcomer joins before or after the slot is given away.
        let event = match event {
            Event::ReleaseUntold(which) if self.model.has_flows(0) => Event::Release(which),
            other => other,
        };
        // Elsewhere the model gives each free slot away, and the room only those that it was told of.
        if !matches!(event, Event::Arrive(_) | Event::TakeOutcome(_)) {
            self.tell_release();
        }
        let now = self.now();
        let mut wakes = WakeList::new();
        match event {
            Event::Arrive(asked) => {
                let (request, ticket) = self.request(self.arrived, asked);
                self.arrive(request, ticket, &mut wakes);
            }
            Event::SetTicket(which, asked) => {
                if let Some((number, id)) = self.pick(which) {
                    let (request, ticket) = self.request(number, asked);
                    let mut lane = request.lane;
                    let is_changed =
                        self.room
                            .set_ticket(&self.pools, id, ticket, &mut lane, now, &mut wakes);
                    let asked = request.lane;
                    let old_lane = self.model.set_ticket(request);
                    assert_eq!(is_changed, old_lane.is_some());
                    self.has_changed |= is_changed;
                    assert_eq!(
                        lane,
                        old_lane.unwrap_or(asked),
                        "it gets back the other one"
                    );
                }
            }
            Event::Release(which) if !self.running.is_empty() => {
                let slot = self.running.swap_remove(which.index(self.running.len()));
                self.give_back(slot, &mut wakes);
            }
            Event::ReleaseUntold(which) if !self.running.is_empty() => {
                let slot = self.running.swap_remove(which.index(self.running.len()));
                self.model.pools[slot.0].taken -= 1;
                self.untold = Some(slot.0);
                self.pools.release(slot);
            }
            Event::Cancel(which) => {
                if let Some((number, id)) = self.pick(which) {
                    self.cancel(number, id, &mut wakes);
                }
            }
            Event::TakeOutcome(which) => {
                if let Some((number, id)) = self.pick(which) {
                    self.take_outcome(number, id);
                }
            }
            Event::Advance(seconds) => {
                self.model.advance_to(self.model.now + seconds);
                self.room.advance(self.now(), &mut wakes);
            }
            Event::Reconfigure(options) => {
                (self.has_changed, self.came_back) = (false, 0);
                self.model.reconfigure(options.config());
                self.room
                    .reconfigure(&self.pools, options.config(), now, &mut wakes);
            }
            Event::SetSlots { pool, slots } => {
                self.model.set_slots(pool, slots);
                self.pools.as_ref().set_slots(pool, slots);
                self.room.on_capacity_grown(&self.pools, now, &mut wakes);
            }
            Event::SetServes { lane, serves } => {
                self.model.set_serves(lane, serves.clone());
                self.pools.as_ref().set_serves(lane, serves);
                self.room.on_capacity_changed(&self.pools, now, &mut wakes);
            }
            Event::Move { lane, partition } => {
                self.partition_of[lane] = partition;
                self.update_partitions(&mut wakes);
            }
            Event::SetPartition(partition) => {
                self.partitions[partition.id as usize] = partition;
                self.update_partitions(&mut wakes);
            }
            Event::Reserve => {
                let free =
                    self.model.placed().count() + self.model.reserved < self.model.config.max_size;
                assert_eq!(self.room.reserve(), free);
                self.model.reserved += usize::from(free);
            }
            Event::Unreserve if self.model.reserved > 0 => {
                self.model.reserved -= 1;
                self.room.unreserve();
            }
            Event::Close => {
                self.model.close();
                self.room.close(&mut wakes);
            }
            Event::Release(_) | Event::ReleaseUntold(_) | Event::Unreserve => {}
        }
        self.check_answers(wakes);
        self.check();
    }

    /// Ends the run: all slots are released until no request is left, and each has ended once.
    pub(crate) fn finish(mut self) {
        for pool in 0..self.model.pools.len() {
            self.apply(Event::SetSlots { pool, slots: 1 });
        }
        while !self.running.is_empty() || !self.ids.is_empty() {
            if let Some(slot) = self.running.pop() {
                let mut wakes = WakeList::new();
                self.give_back(slot, &mut wakes);
                self.check_answers(wakes);
                self.check();
            }
            let answered: Vec<Number> = self.answers.keys().copied().collect();
            for number in answered {
                self.take_outcome(number, self.ids[&number]);
            }
        }
        self.check();
        let ended = self.served + self.rejected + self.cancelled;
        assert_eq!(ended, self.arrived, "each request ends once");
        assert_eq!(self.pools.usage().in_use, 0);
        assert!(self.room.is_empty() && self.room.head().is_none());
    }

    fn now(&self) -> Instant {
        self.at(self.model.now)
    }

    fn at(&self, time: Time) -> Instant {
        self.begin + Duration::from_secs(time)
    }

    /// One of the requests in `ids`.
    fn pick(&self, which: Index) -> Option<(Number, WaiterId)> {
        let mut numbers: Vec<Number> = self.ids.keys().copied().collect();
        numbers.sort_unstable();
        let number = *numbers.get(which.index(numbers.len().max(1)))?;
        Some((number, self.ids[&number]))
    }

    /// A request, and its ticket.
    fn request(&self, number: Number, asked: Asked) -> (Arrival, Ticket) {
        let Asked { ago, requeued, .. } = asked;
        let arrival = self.model.now - ago.unwrap_or(0);
        let request = Arrival {
            number,
            priority: asked.priority,
            tenant: TENANTS[asked.tenant],
            lane: asked.lane,
            cost: asked.cost,
            arrival,
            deadline: asked.within.map(|within| arrival + within),
            // Only a ticket that says when it arrived keeps its place.
            requeued: requeued && ago.is_some(),
            patient: asked.patient,
        };
        let mut ticket = self.ticket(&request);
        ticket.requeued = requeued;
        if ago.is_none() {
            ticket.arrival = None;
        }
        (request, ticket)
    }

    fn ticket(&self, request: &Arrival) -> Ticket {
        let mut ticket = Ticket::new(Priority(request.priority), self.at(request.arrival))
            .tenant(request.tenant.into())
            .cost(request.cost);
        ticket.deadline = request.deadline.map(|end| self.at(end));
        ticket.patient = request.patient;
        ticket
    }

    fn arrive(&mut self, request: Arrival, ticket: Ticket, wakes: &mut WakeList<Number>) {
        let (number, lane, now) = (request.number, request.lane, self.now());
        self.arrived += 1;
        self.came_back += usize::from(request.requeued);
        let outcome = self.room.arrive(&self.pools, ticket, lane, now, wakes);
        match (outcome, self.model.arrive(request)) {
            (AdmitOutcome::Queued(id), None) => {
                assert_eq!(self.room.set_waker(id, number), Ok(None));
                self.ids.insert(number, id);
            }
            (AdmitOutcome::Leased(slot), Some(Answer::Slot(pool))) => {
                assert_eq!(slot, TestSlot(pool));
                self.running.push(slot);
                self.served += 1;
            }
            (AdmitOutcome::Rejected(why), Some(Answer::Rejected(expected))) => {
                assert_eq!(why, expected);
                self.rejected += 1;
            }
            (outcome, expected) => panic!("{outcome:?} instead of {expected:?}"),
        }
    }

    fn update_partitions(&mut self, wakes: &mut WakeList<Number>) {
        let partitions = self.partition_of.iter().map(|&id| self.partitions[id]);
        let partitions: Vec<Partition> = partitions.collect();
        for (lane, &partition) in partitions.iter().enumerate() {
            self.pools.as_ref().set_partition(lane, partition);
        }
        self.model.set_partitions(partitions);
        self.room
            .on_capacity_changed(&self.pools, self.now(), wakes);
    }

    /// Tells the room of a slot that has been free for a while.
    fn tell_release(&mut self) {
        if let Some(pool) = self.untold.take() {
            self.model.pump();
            let mut wakes = WakeList::new();
            let pool = PoolId(pool as u32);
            self.room
                .on_release(&self.pools, pool, self.now(), &mut wakes);
            self.check_answers(wakes);
            self.check();
        }
    }

    fn give_back(&mut self, slot: TestSlot, wakes: &mut WakeList<Number>) {
        self.model.on_release(slot.0);
        let pool = self.pools.release(slot);
        self.room.on_release(&self.pools, pool, self.now(), wakes);
    }

    fn cancel(&mut self, number: Number, id: WaiterId, wakes: &mut WakeList<Number>) {
        self.ids.remove(&number);
        let (lease, waker) = self.room.cancel(id, self.now());
        match self.answers.remove(&number) {
            None => {
                self.model.cancel(number);
                assert_eq!((lease, waker), (None, Some(number)));
                self.cancelled += 1;
            }
            Some(Answer::Slot(pool)) => {
                assert_eq!((lease, waker), (Some(TestSlot(pool)), None));
                self.give_back(TestSlot(pool), wakes);
                self.cancelled += 1;
            }
            Some(Answer::Rejected(_)) => {
                assert_eq!((lease, waker), (None, None));
                self.rejected += 1;
            }
        }
    }

    fn take_outcome(&mut self, number: Number, id: WaiterId) {
        let answer = self.room.take_outcome(id);
        match self.answers.remove(&number) {
            None => return assert!(answer.is_none(), "{number} waits"),
            Some(Answer::Slot(pool)) => {
                assert_eq!(answer, Some(Ok(TestSlot(pool))));
                self.running.push(TestSlot(pool));
                self.served += 1;
            }
            Some(Answer::Rejected(why)) => {
                assert_eq!(answer, Some(Err(why)));
                self.rejected += 1;
            }
        }
        self.ids.remove(&number);
    }

    /// Compares the waiters that were woken with those that the model answered. Grants are compared in order.
    fn check_answers(&mut self, wakes: WakeList<Number>) {
        let expected = std::mem::take(&mut self.model.answered);
        let granted = |numbers: &mut dyn Iterator<Item = Number>, is_granted: bool| {
            let is_one = |number: &Number| {
                let answer = expected.iter().find(|(other, _)| other == number);
                matches!(answer, Some((_, Answer::Slot(_)))) == is_granted
            };
            numbers.filter(is_one).collect::<Vec<Number>>()
        };
        let wakes: Vec<Number> = wakes.into_iter().collect();
        let answered: Vec<Number> = expected.iter().map(|(number, _)| *number).collect();
        for is_granted in [true, false] {
            let mut wakes = granted(&mut wakes.iter().copied(), is_granted);
            let mut answered = granted(&mut answered.iter().copied(), is_granted);
            // The order of rejections is not promised.
            if !is_granted {
                wakes.sort_unstable();
                answered.sort_unstable();
            }
            assert_eq!(wakes, answered, "granted: {is_granted}");
        }
        self.answers.extend(expected);
    }

    /// Compares the room with the model.
    fn check(&mut self) {
        self.check_bounds();
        self.check_stats();
        self.checks += 1;
        // Neither holds while a slot is free that the room was not told of.
        if self.untold.is_none() {
            self.check_free_slots();
            if self.room.len() < MANY || self.checks.is_multiple_of(32) {
                self.check_positions();
            }
        }
        let next_end = self.model.next_end().map(|end| self.at(end));
        if let Some(end) = next_end {
            assert!(
                self.room
                    .next_timeout()
                    .is_some_and(|timeout| timeout <= end)
            );
        }
    }

    /// Returns `true` if so many requests at most wait above each bound.
    fn is_within_bounds(&self, above: usize) -> bool {
        let model = &self.model;
        let is_kept = |(tenant, waiting)| {
            let most = model.most_of(tenant);
            most.is_none_or(|most| waiting <= most + above)
        };
        let mut lanes = 0..model.lanes.len();
        model.placed().count() <= model.config.max_size + above
            && model.tenants().into_iter().all(is_kept)
            && !lanes.any(|lane| model.exceeds_partition(lane, above))
    }

    /// The room's, the tenants' and the partitions' bounds hold, and so do the counts of slots.
    fn check_bounds(&mut self) {
        assert!(self.has_changed || self.is_within_bounds(self.came_back));
        while self.came_back > 0 && self.is_within_bounds(self.came_back - 1) {
            self.came_back -= 1;
        }
        let (room, model) = (&self.room, &self.model);
        let waiting = model.waiting().count();
        assert_eq!((room.len(), room.is_empty()), (waiting, waiting == 0));
        let placed = model.placed().count();
        assert_eq!(room.is_closed(), model.closed);
        assert_eq!(
            room.has_room(),
            placed + model.reserved < model.config.max_size
        );
        let taken: Vec<usize> = model.pools.iter().map(|pool| pool.taken).collect();
        assert_eq!(self.pools.as_ref().taken(), taken);
        let granted = self
            .answers
            .values()
            .filter(|a| matches!(a, Answer::Slot(_)));
        assert_eq!(
            self.pools.usage().in_use,
            self.running.len() + granted.count()
        );
    }

    /// No slot is free that serves a waiter.
    fn check_free_slots(&self) {
        let fits = self
            .model
            .waiting()
            .find(|w| self.pools.as_ref().fits(w.lane));
        assert!(fits.is_none(), "{fits:?} fits a free slot");
    }

    /// The counters add up: each request was leased a slot, rejected or cancelled once.
    fn check_stats(&self) {
        let counts = self.room.stats();
        let answered = |is_granted: bool| {
            let is_one = |a: &&Answer| matches!(a, Answer::Slot(_)) == is_granted;
            self.answers.values().filter(is_one).count()
        };
        let leased = (self.pools.leased() - counts.unclaimed) as usize;
        assert_eq!(leased, self.served + answered(true));
        assert_eq!(counts.rejected() as usize, self.rejected + answered(false));
        assert_eq!(counts.cancelled as usize, self.cancelled);
    }

    /// Positions are the order of service, and asking the capacity again grants nothing.
    fn check_positions(&mut self) {
        let mut wakes = WakeList::new();
        self.room
            .on_capacity_grown(&self.pools, self.now(), &mut wakes);
        assert!(wakes.is_empty(), "nothing changed");
        let lanes = self.model.lanes.clone();
        for serves in &lanes {
            let order = self.model.order_for(serves);
            let mut found = order.clone();
            found.sort_by_key(|number| self.room.position(self.ids[number]));
            assert_eq!(found, order, "for the pools {serves:?}");
            let first = order
                .first()
                .map(|number| self.room.position(self.ids[number]));
            assert!(first.is_none_or(|first| first == Some(1)));
        }
        let mut lanes = 0..self.model.lanes.len();
        if !lanes.any(|lane| self.model.has_flows(lane)) {
            let first = self.model.first().map(|number| self.ids[&number]);
            assert_eq!(self.room.head(), first);
        }
        let mut gone = self.answers.keys().map(|number| self.ids[number]);
        assert!(gone.all(|id| self.room.position(id).is_none()));
    }
}

pub(crate) fn room_options(
    disciplines: &'static [Discipline],
) -> impl Strategy<Value = RoomOptions> {
    use prop::option::weighted;
    (
        prop_oneof![1 => Just(0usize), 9 => 1usize..9],
        (weighted(0.2, 0usize..4), weighted(0.2, 0usize..4)),
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
        // Of flows, the model does not know which of two groups began first.
        weighted_levels(disciplines.contains(&Discipline::Fair)),
    )
        .prop_map(
            |(
                max_size,
                (per_tenant, of_second),
                max_wait,
                discipline,
                levels,
                promote_after,
                displace,
                weights,
                is_plain,
                level_weights,
            )| {
                let options = RoomOptions {
                    max_size,
                    per_tenant,
                    of_second,
                    max_wait,
                    discipline,
                    levels,
                    promote_after,
                    displace,
                    weights,
                    level_weights,
                };
                match is_plain {
                    true => options.plain(disciplines[0]),
                    false => options,
                }
            },
        )
}

fn weighted_levels(are_allowed: bool) -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.3).prop_map(move |are_weighted| are_weighted && are_allowed)
}

impl RoomOptions {
    /// Returns these options, changed so that one lane is ordered by level.
    pub(crate) fn plain(self, discipline: Discipline) -> Self {
        Self {
            per_tenant: None,
            of_second: None,
            discipline,
            promote_after: None,
            level_weights: false,
            ..self
        }
    }

    /// Returns these options with bounds `times` as large.
    pub(crate) fn times(mut self, times: usize) -> Self {
        self.max_size *= times;
        for most in [&mut self.per_tenant, &mut self.of_second] {
            *most = most.map(|max_size| max_size * times);
        }
        self
    }
}

/// Events for one lane, which any of two pools serves, or none.
pub(crate) fn one_lane_events(
    disciplines: &'static [Discipline],
) -> impl Strategy<Value = Vec<Event>> {
    let serves = prop::sample::select(vec![vec![0, 1], vec![0], vec![1], vec![]]);
    events(disciplines, 2, 1, serves).prop_map(|events| {
        let late = |event| match event {
            Event::Release(which) if which.index(2) == 0 => Event::ReleaseUntold(which),
            other => other,
        };
        without_partitions(events).map(late).collect()
    })
}

fn without_partitions(events: Vec<Event>) -> impl Iterator<Item = Event> {
    let bounds = |event: &Event| matches!(event, Event::Move { .. } | Event::SetPartition(_));
    events.into_iter().filter(move |event| !bounds(event))
}

/// Events with configurations and partitions in which one lane is ordered by level.
pub(crate) fn in_levels(events: Vec<Event>) -> Vec<Event> {
    let plain = |event| match event {
        Event::Reconfigure(new) => Event::Reconfigure(new.plain(Discipline::Fifo)),
        other => other,
    };
    without_partitions(events).map(plain).collect()
}

/// Events for one lane, with configurations in which that is ordered by level.
pub(crate) fn plain_events(
    disciplines: &'static [Discipline],
) -> impl Strategy<Value = Vec<Event>> {
    one_lane_events(disciplines).prop_map(in_levels)
}

/// An arrival. Half of the tickets have a priority only, and perhaps an arrival.
pub(crate) fn arrival(lanes: usize) -> impl Strategy<Value = Event> {
    let is_dated = prop::bool::weighted(0.6);
    let plain = (0u8..4, 0..lanes, is_dated).prop_map(|(priority, lane, is_dated)| Asked {
        priority,
        tenant: 0,
        lane,
        cost: 1,
        ago: is_dated.then_some(0),
        within: None,
        requeued: false,
        patient: false,
    });
    prop_oneof![plain, any_asked(lanes)].prop_map(Event::Arrive)
}

/// Another ticket for a waiter.
fn change(lanes: usize) -> impl Strategy<Value = Event> {
    (any::<Index>(), any_asked(lanes)).prop_map(|(which, asked)| Event::SetTicket(which, asked))
}

fn any_asked(lanes: usize) -> impl Strategy<Value = Asked> {
    use prop::option::weighted;
    (
        0u8..4,
        0..TENANTS.len(),
        0..lanes,
        prop_oneof![3 => Just(1u32), 1 => 0u32..4],
        prop_oneof![2 => Just(None), 6 => Just(Some(0u64)), 2 => (0u64..15).prop_map(Some)],
        weighted(0.4, 0u64..40),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
    )
        .prop_map(
            |(priority, tenant, lane, cost, ago, within, requeued, patient)| Asked {
                priority,
                tenant,
                lane,
                cost,
                ago,
                within,
                requeued,
                patient,
            },
        )
}

pub(crate) fn partitions(disciplines: &'static [Discipline]) -> impl Strategy<Value = Partitions> {
    [0, 1, 2].map(|id| partition(Just(id), disciplines))
}

fn partition(
    id: impl Strategy<Value = u32>,
    disciplines: &'static [Discipline],
) -> impl Strategy<Value = Partition> {
    use prop::option::weighted;
    let asks = (
        weighted(0.6, 0usize..5),
        weighted(0.7, prop::sample::select(disciplines)),
    );
    (id, prop_oneof![Just((None, None)), asks]).prop_map(|(id, (max_size, discipline))| {
        Partition::new(id).max_size(max_size).discipline(discipline)
    })
}

/// Events of which 600 in about 960 are arrivals.
pub(crate) fn bursts(
    disciplines: &'static [Discipline],
    lanes: usize,
    times: usize,
) -> impl Strategy<Value = Vec<Event>> {
    let event = move |occupied| {
        prop_oneof![
            600 => arrival(occupied),
            80 => any::<Index>().prop_map(Event::Release),
            150 => any::<Index>().prop_map(Event::Cancel),
            40 => change(occupied),
            100 => any::<Index>().prop_map(Event::TakeOutcome),
            20 => (0u64..3).prop_map(Event::Advance),
            4 => room_options(disciplines).prop_map(move |new| Event::Reconfigure(new.times(times))),
            4 => (0..lanes, 0..PARTITIONS).prop_map(|(lane, partition)| Event::Move { lane, partition }),
        ]
    };
    occupied(lanes).prop_flat_map(move |occupied| prop::collection::vec(event(occupied), 100..400))
}

/// The number of lanes that get arrivals: in half of the runs one.
fn occupied(lanes: usize) -> impl Strategy<Value = usize> {
    prop::sample::select(vec![1, lanes])
}

/// Events. `disciplines` are those of configurations and partitions, `serves` the pools that may serve a lane.
pub(crate) fn events(
    disciplines: &'static [Discipline],
    pools: usize,
    lanes: usize,
    serves: impl Strategy<Value = Serves> + Clone + 'static,
) -> impl Strategy<Value = Vec<Event>> {
    let event = move |occupied| {
        prop_oneof![
            40 => arrival(occupied),
            20 => any::<Index>().prop_map(Event::Release),
            8 => any::<Index>().prop_map(Event::Cancel),
            10 => change(occupied),
            10 => any::<Index>().prop_map(Event::TakeOutcome),
            12 => (0u64..8).prop_map(Event::Advance),
            3 => room_options(disciplines).prop_map(Event::Reconfigure),
            3 => (0..pools, 0usize..4).prop_map(|(pool, slots)| Event::SetSlots { pool, slots }),
            2 => (0..lanes, serves.clone()).prop_map(|(lane, serves)| Event::SetServes { lane, serves }),
            3 => (0..lanes, 0..PARTITIONS).prop_map(|(lane, partition)| Event::Move { lane, partition }),
            3 => partition(0..PARTITIONS as u32, disciplines).prop_map(Event::SetPartition),
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
