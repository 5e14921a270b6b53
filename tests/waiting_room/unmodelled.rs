//! Random runs with targets and reserves, for which there is no model: what is promised whatever is predicted.

mod pools;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use tower_triage::admit::{
    AdmitOutcome, Capacity, ReservedSlots, ServiceSample, TargetWait, WaiterId, WaitingRoom,
    WakeList,
};
use tower_triage::{Discipline, Priority, PriorityLevels, RejectReason, Ticket, WaitingRoomConfig};

use self::pools::{Demand, Pool, Pools};

const LEVELS: [&str; 3] = ["high", "normal", "low"];
const POOLS: usize = 2;
/// The pools of each lane.
const LANES: [&[usize]; 3] = [&[0], &[1], &[0, 1]];

#[derive(Debug, Clone)]
enum Event {
    Arrive {
        lane: usize,
        level: usize,
        tenant: &'static str,
        /// In how many milliseconds its caller gives up, if it says so.
        within: Option<u64>,
        is_patient: bool,
    },
    /// A waiter gets another lane, level and tenant.
    SetTicket(Index, usize, usize, &'static str),
    /// A request ends; its answer began so early, or its caller gave up before it began.
    End(Index, bool),
    Cancel(Index),
    /// Milliseconds.
    Advance(u64),
    SetSlots {
        pool: usize,
        slots: usize,
    },
    Reconfigure(Options),
}

#[derive(Debug, Clone)]
struct Options {
    discipline: Discipline,
    max_size: usize,
    max_wait: Option<u64>,
    target: TargetWait,
    displace: bool,
    promote_after: Option<u64>,
    reserves: [Option<ReservedSlots>; LEVELS.len()],
}

impl Options {
    fn config(&self) -> WaitingRoomConfig {
        let levels = PriorityLevels::new(LEVELS, "normal").unwrap();
        let config = WaitingRoomConfig::default()
            .levels(levels)
            .discipline(self.discipline)
            .max_size(self.max_size)
            .max_wait(self.max_wait.map(Duration::from_millis))
            .target_wait(self.target)
            .displace(self.displace)
            .promote_after(self.promote_after.map(Duration::from_millis));
        let reserves = LEVELS.into_iter().zip(self.reserves);
        reserves.fold(config, |config, (level, reserve)| match reserve {
            Some(reserve) => config.reserve(level, reserve),
            None => config,
        })
    }
}

#[derive(Debug)]
struct Waiting {
    id: WaiterId,
    demand: Demand,
    is_patient: bool,
}

#[derive(Debug)]
struct Running {
    pool: usize,
    served: ServiceSample,
}

struct Driver<const ONE: bool> {
    room: WaitingRoom<Pools<ONE>, usize>,
    pools: Pools<ONE>,
    options: Options,
    now: Instant,
    tickets: Vec<(Ticket, Demand)>,
    waiting: BTreeMap<usize, Waiting>,
    running: BTreeMap<usize, Running>,
    served: usize,
    rejected: [usize; LEVELS.len()],
    cancelled: usize,
}

impl<const ONE: bool> Driver<ONE> {
    fn new(options: Options, slots: [usize; POOLS]) -> Self {
        let begin = Instant::now();
        let pools = Pools::default();
        pools.0.lock().unwrap().pools = slots.map(|slots| Pool { slots, taken: 0 });
        Self {
            room: WaitingRoom::new(options.config(), begin),
            pools,
            options,
            now: begin,
            tickets: Vec::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            served: 0,
            rejected: [0; LEVELS.len()],
            cancelled: 0,
        }
    }

    /// Tells the capacity how many slots each level has to leave free now.
    fn update_kept(&mut self) {
        let mut state = self.pools.0.lock().unwrap();
        let interval = self.options.promote_after.map(Duration::from_millis);
        state.promotions = interval.map(|interval| (self.now, interval));
        for level in 0..LEVELS.len() {
            let (mut slots, mut share) = (0.0, 0.0);
            for above in 0..level {
                match self.options.reserves[above] {
                    Some(ReservedSlots::Slots(kept)) => slots += f64::from(kept),
                    Some(ReservedSlots::Share(kept)) => share += kept,
                    _ => {}
                }
            }
            for pool in 0..POOLS {
                let limit = state.pools[pool].slots;
                let kept = slots + (share * limit as f64 - 1e-6).ceil();
                state.kept[level][pool] = (kept as usize).min(limit.saturating_sub(1));
            }
        }
    }

    fn apply(&mut self, event: Event) {
        let mut wakes = WakeList::new();
        match event {
            Event::Arrive {
                lane,
                level,
                tenant,
                within,
                is_patient,
            } => {
                let arrival = self.now;
                let demand = Demand {
                    lane,
                    level,
                    arrival,
                };
                self.arrive(demand, (tenant, within, is_patient), &mut wakes);
            }
            Event::SetTicket(which, lane, level, tenant) => {
                if let Some(number) = pick(&self.waiting, which) {
                    let arrival = self.now;
                    let demand = Demand {
                        lane,
                        level,
                        arrival,
                    };
                    self.set_ticket(number, demand, tenant, &mut wakes);
                }
            }
            Event::End(which, is_answered) => {
                if let Some(number) = pick(&self.running, which) {
                    let Running { pool, served } = self.running.remove(&number).unwrap();
                    if is_answered {
                        self.room.on_answered(&served, self.now);
                    }
                    self.update_kept();
                    let pool = self.pools.release(pool);
                    self.room
                        .on_release(&self.pools, pool, self.now, &mut wakes);
                }
            }
            Event::Cancel(which) => {
                if let Some(number) = pick(&self.waiting, which) {
                    let Waiting { id, .. } = self.waiting.remove(&number).unwrap();
                    let (lease, waker) = self.room.cancel(id, self.now);
                    assert_eq!((lease, waker), (None, Some(number)));
                    self.cancelled += 1;
                }
            }
            Event::Advance(millis) => {
                self.now += Duration::from_millis(millis);
                self.update_kept();
                self.advance(&mut wakes);
            }
            Event::SetSlots { pool, slots } => {
                self.pools.0.lock().unwrap().pools[pool].slots = slots;
                self.update_kept();
                self.room
                    .on_capacity_grown(&self.pools, self.now, &mut wakes);
            }
            Event::Reconfigure(options) => {
                self.options = options;
                self.update_kept();
                let config = self.options.config();
                self.room
                    .reconfigure(&self.pools, config, self.now, &mut wakes);
            }
        }
        self.take(wakes);
        self.check();
    }

    fn advance(&mut self, wakes: &mut WakeList<usize>) {
        if self.room.advance(self.now, wakes) {
            self.room.on_capacity_grown(&self.pools, self.now, wakes);
        }
    }

    fn arrive(
        &mut self,
        demand: Demand,
        (tenant, within, is_patient): (&'static str, Option<u64>, bool),
        wakes: &mut WakeList<usize>,
    ) {
        let number = self.tickets.len();
        let mut ticket = Ticket::new(Priority(demand.level as u8), self.now).tenant(tenant.into());
        if let Some(within) = within {
            ticket = ticket.timeout(Duration::from_millis(within));
        }
        ticket.patient = is_patient;
        self.tickets.push((ticket.clone(), demand));
        self.update_kept();
        let pools = LANES[Pools::<ONE>::lane_of(&demand)];
        let was_free = {
            let state = self.pools.0.lock().unwrap();
            pools.iter().any(|&pool| state.may_take(&demand, pool))
        };
        let is_before = |other: &Waiting| {
            let (lane, other_lane) = [demand, other.demand]
                .map(|it| Pools::<ONE>::lane_of(&it))
                .into();
            lane == other_lane && self.level(&other.demand) <= demand.level
        };
        let is_first = !self.waiting.values().any(is_before);
        let outcome = self
            .room
            .arrive(&self.pools, ticket, demand, self.now, wakes);
        match outcome {
            AdmitOutcome::Leased(pool) => self.start(number, pool),
            AdmitOutcome::Queued(id) => {
                self.room.set_waker(id, number).unwrap();
                let waiting = Waiting {
                    id,
                    demand,
                    is_patient,
                };
                self.waiting.insert(number, waiting);
            }
            AdmitOutcome::Rejected(why) => {
                assert!(!is_patient, "{why:?}");
                if let RejectReason::Overloaded { retry_after } = why {
                    assert!(!was_free, "a slot was free");
                    assert!(!is_first || within.is_some(), "none went before it");
                    assert!(
                        retry_after < Duration::from_secs(100_000),
                        "{retry_after:?}"
                    );
                    assert!(self.options.target != TargetWait::Off);
                }
                self.rejected[demand.level] += 1;
            }
        }
    }

    fn set_ticket(
        &mut self,
        number: usize,
        demand: Demand,
        tenant: &'static str,
        wakes: &mut WakeList<usize>,
    ) {
        let mut ticket = Ticket::new(Priority(demand.level as u8), self.now).tenant(tenant.into());
        let waiting = &self.waiting[&number];
        ticket.patient = waiting.is_patient;
        self.update_kept();
        let (id, mut given) = (self.waiting[&number].id, demand);
        let (pools, now) = (&self.pools, self.now);
        let is_changed = self
            .room
            .set_ticket(pools, id, ticket.clone(), &mut given, now, wakes);
        // Its wait may be over by now.
        if is_changed {
            self.waiting.get_mut(&number).unwrap().demand = demand;
            self.tickets[number] = (ticket, demand);
        }
    }

    fn level(&self, demand: &Demand) -> usize {
        self.pools.0.lock().unwrap().level(demand)
    }

    fn start(&mut self, number: usize, pool: usize) {
        let (_, demand) = &self.tickets[number];
        let served = self.room.served(&self.pools, demand, self.now);
        let running = Running { pool, served };
        assert!(self.running.insert(number, running).is_none());
        self.served += 1;
    }

    fn take(&mut self, wakes: WakeList<usize>) {
        for number in wakes {
            let Waiting {
                id,
                demand,
                is_patient,
            } = self.waiting.remove(&number).unwrap();
            match self.room.take_outcome(id).unwrap() {
                Ok(pool) => self.start(number, pool),
                Err(why) => {
                    // Nothing but its deadline.
                    assert!(
                        !is_patient || why == RejectReason::DeadlinePassed,
                        "{why:?}"
                    );
                    self.rejected[demand.level] += 1;
                }
            }
        }
    }

    fn check(&mut self) {
        self.update_kept();
        assert_eq!(self.room.len(), self.waiting.len());
        let placed = self.waiting.values().filter(|waiting| !waiting.is_patient);
        assert!(placed.count() <= self.options.max_size);
        assert_eq!(self.pools.usage().in_use, self.running.len());
        {
            let state = self.pools.0.lock().unwrap();
            assert!(state.taken_wrongly.is_none(), "{state:?}");
            for (number, waiting) in &self.waiting {
                let pools = LANES[Pools::<ONE>::lane_of(&waiting.demand)];
                let demand = &waiting.demand;
                let fits = pools.iter().find(|&&pool| state.may_take(demand, pool));
                assert_eq!(
                    fits, None,
                    "{number}, {demand:?}, waits beside it: {state:?}"
                );
            }
        }
        let stats = self.room.stats();
        assert_eq!(
            stats.rejected() as usize,
            self.rejected.iter().sum::<usize>()
        );
        assert_eq!(stats.cancelled as usize, self.cancelled);
        let ended = self.served + self.waiting.len() + self.cancelled;
        assert_eq!(ended + stats.rejected() as usize, self.tickets.len());
        self.check_levels();
    }

    fn check_levels(&mut self) {
        let levels = self.room.levels(&self.pools, self.now);
        for (nth, level) in levels.iter().enumerate() {
            let waiting = self.waiting.values();
            let waiting = waiting.filter(|waiting| self.level(&waiting.demand) == nth);
            assert_eq!(level.waiting, waiting.count());
            assert_eq!(level.stats.rejected() as usize, self.rejected[nth]);
        }
    }

    /// Ends the run: each request ends once.
    fn finish(mut self) {
        for pool in 0..POOLS {
            self.apply(Event::SetSlots { pool, slots: 2 });
        }
        while let Some((&number, _)) = self.running.first_key_value() {
            let Running { pool, .. } = self.running.remove(&number).unwrap();
            self.now += Duration::from_secs(1);
            self.update_kept();
            let mut wakes = WakeList::new();
            self.advance(&mut wakes);
            let pool = self.pools.release(pool);
            self.room
                .on_release(&self.pools, pool, self.now, &mut wakes);
            self.take(wakes);
            self.check();
        }
        assert!(self.room.is_empty() && self.waiting.is_empty());
    }
}

fn pick<T>(all: &BTreeMap<usize, T>, which: Index) -> Option<usize> {
    let nth = (!all.is_empty()).then(|| which.index(all.len()))?;
    all.keys().nth(nth).copied()
}

fn options() -> impl Strategy<Value = Options> {
    let reserve = || {
        prop_oneof![
            3 => Just(None),
            2 => (0u32..3).prop_map(|slots| Some(ReservedSlots::Slots(slots))),
            1 => prop::sample::select(&[0.1, 0.25, 0.5, 1.0][..]).prop_map(|share| Some(ReservedSlots::Share(share))),
        ]
    };
    let target = prop_oneof![
        3 => Just(TargetWait::Auto),
        3 => (0u64..4_000).prop_map(|millis| TargetWait::After(Duration::from_millis(millis))),
        1 => Just(TargetWait::Off),
    ];
    (
        prop::sample::select(&[Discipline::Fifo, Discipline::Fair, Discipline::Deadline][..]),
        prop_oneof![1 => 1usize..4, 3 => 4usize..30],
        prop::option::weighted(0.7, 100u64..20_000),
        target,
        any::<bool>(),
        prop::option::weighted(0.3, 100u64..10_000),
        [reserve(), reserve(), reserve()],
    )
        .prop_map(
            |(discipline, max_size, max_wait, target, displace, promote_after, reserves)| Options {
                discipline,
                max_size,
                max_wait,
                target,
                displace,
                promote_after,
                reserves,
            },
        )
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let arrival = (
        0..LANES.len(),
        prop_oneof![1 => Just(0usize), 2 => Just(1), 2 => Just(2)],
        prop::sample::select(&["", "ann", "bob"][..]),
        prop::option::weighted(0.4, 1u64..10_000),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(lane, level, tenant, within, is_patient)| Event::Arrive {
            lane,
            level,
            tenant,
            within,
            is_patient,
        });
    let change = (
        any::<Index>(),
        0..LANES.len(),
        0..LEVELS.len(),
        prop::sample::select(&["", "ann", "bob"][..]),
    );
    let change = change
        .prop_map(|(which, lane, level, tenant)| Event::SetTicket(which, lane, level, tenant));
    let event = prop_oneof![
        60 => arrival,
        40 => (any::<Index>(), prop::bool::weighted(0.8)).prop_map(|(which, is)| Event::End(which, is)),
        8 => any::<Index>().prop_map(Event::Cancel),
        8 => change,
        30 => prop_oneof![4 => 0u64..1_000, 1 => 1_000u64..15_000].prop_map(Event::Advance),
        2 => (0..POOLS, 0usize..6).prop_map(|(pool, slots)| Event::SetSlots { pool, slots }),
        2 => options().prop_map(Event::Reconfigure),
    ];
    prop::collection::vec(event, 1..200)
}

fn run<const ONE: bool>(options: Options, slots: [usize; POOLS], events: Vec<Event>) {
    let mut driver = Driver::<ONE>::new(options, slots);
    events.into_iter().for_each(|event| driver.apply(event));
    driver.finish();
}

fn slots() -> impl Strategy<Value = [usize; POOLS]> {
    prop::array::uniform2(0usize..6)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn one_lane_keeps_what_is_promised(options in options(), slots in slots(), events in events()) {
        run::<true>(options, slots, events);
    }

    #[test]
    fn lanes_with_pools_in_common_keep_what_is_promised(
        options in options(),
        slots in slots(),
        events in events(),
    ) {
        run::<false>(options, slots, events);
    }
}
