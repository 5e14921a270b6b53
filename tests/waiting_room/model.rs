//! A model of the waiting room: one list of waiters, searched from end to end, by the rules of the documentation.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tower_triage::admit::Partition;
use tower_triage::{Discipline, RejectReason, WaitingRoomConfig};

use super::pools::{Serves, TestPool, choose};

/// The number of a request, in the order of arrival.
pub(crate) type Number = usize;
pub(crate) type Why = RejectReason<&'static str>;
/// Seconds.
pub(crate) type Time = u64;

#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) number: Number,
    pub(crate) priority: u8,
    pub(crate) tenant: &'static str,
    pub(crate) lane: usize,
    pub(crate) cost: u32,
    pub(crate) arrival: Time,
    pub(crate) deadline: Option<Time>,
    pub(crate) requeued: bool,
    pub(crate) patient: bool,
}

#[derive(Debug, Clone)]
struct Waiter {
    request: Arrival,
    /// Its arrival for the order: raised to that of the waiter queued before it, unless it is requeued.
    since: Time,
    /// Its level, promotions included.
    level: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Slot(usize),
    Rejected(Why),
}

/// Names a flow: lane, level and tenant.
type FlowKey = (usize, u8, &'static str);

#[derive(Debug, Clone, Copy)]
struct Flow {
    /// The virtual time at which its head's service begins.
    start: u64,
    /// The number of the dispatch since which its head is the head. Decides between equal starts.
    since_dispatch: u64,
}

/// Virtual time per unit of cost. A multiple of all weights in the tests, of a level times a tenant.
const SHARE: u64 = 16;

/// Waiters that share a bounded number of places, and the discipline by which they do.
type Places = (Vec<usize>, Discipline);

/// Names a virtual time: pools, discipline and level, 0 for all where levels have weights.
type ClockKey = (Serves, Discipline, u8);

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) config: WaitingRoomConfig,
    pub(crate) pools: Vec<TestPool>,
    pub(crate) lanes: Vec<Serves>,
    /// By lane.
    pub(crate) partitions: Vec<Partition>,
    pub(crate) now: Time,
    pub(crate) closed: bool,
    pub(crate) reserved: usize,
    /// The latest arrival of a request that was queued, requeued ones aside.
    latest: Time,
    /// In the order of arrival.
    waiting: Vec<Waiter>,
    flows: BTreeMap<FlowKey, Flow>,
    /// The virtual times.
    clocks: HashMap<ClockKey, u64>,
    dispatches: u64,
    /// The waiters that were answered in the present step, in order.
    pub(crate) answered: Vec<(Number, Answer)>,
}

impl Model {
    pub(crate) fn new(
        config: WaitingRoomConfig,
        pools: Vec<TestPool>,
        lanes: Vec<Serves>,
        now: Time,
    ) -> Self {
        Self {
            config,
            pools,
            partitions: vec![Partition::default(); lanes.len()],
            lanes,
            now,
            closed: false,
            reserved: 0,
            latest: 0,
            waiting: Vec::new(),
            flows: BTreeMap::new(),
            clocks: HashMap::new(),
            dispatches: 0,
            answered: Vec::new(),
        }
    }

    // Events.

    pub(crate) fn advance_to(&mut self, now: Time) {
        self.now = now;
        self.advance();
    }

    /// A request arrives. `None`: it waits.
    pub(crate) fn arrive(&mut self, mut request: Arrival) -> Option<Answer> {
        self.advance();
        if self.closed {
            return Some(Answer::Rejected(RejectReason::ShuttingDown));
        }
        request.priority = request.priority.min(self.lowest_level());
        let (number, tenant, lane) = (request.number, request.tenant, request.lane);
        let (is_patient, is_requeued) = (request.patient, request.requeued);
        let end = self.end(&request);
        let level = self.level_of(&request);
        let since = if request.requeued {
            request.arrival
        } else {
            self.latest.max(request.arrival)
        };
        // Only requests that are queued count for the order of those that arrive later.
        let latest = if request.requeued { self.latest } else { since };
        let arrived_before = |w: &&Waiter| w.since <= since;
        let place = self.waiting.iter().filter(arrived_before).count();
        self.waiting.insert(
            place,
            Waiter {
                request,
                since,
                level,
            },
        );
        self.join(place, None);
        self.pump();
        if let Some(i) = self
            .answered
            .iter()
            .position(|(request, _)| *request == number)
        {
            return Some(self.answered.remove(i).1);
        }
        let tenants = self.placed().filter(|w| w.tenant == tenant).count();
        let why = if self.config.max_size == 0 && !is_patient {
            RejectReason::Disabled
        } else if end.is_some_and(|(end, _)| end <= self.now) {
            end.unwrap().1
        } else if is_patient || is_requeued {
            self.latest = latest;
            return None;
        } else if self.most_of(tenant).is_some_and(|most| tenants > most) {
            RejectReason::TenantFull
        } else {
            let places = if self.overfull(lane) {
                self.places_of_partition(lane)
            } else if self.placed().count() + self.reserved > self.config.max_size {
                self.places()
            } else {
                self.latest = latest;
                return None;
            };
            let newcomer = self.waiting.iter().position(|w| w.request.number == number);
            if let Some(displaced) = self.displaced_by(newcomer.unwrap(), &places) {
                self.answer(displaced, Answer::Rejected(RejectReason::Displaced));
                self.latest = latest;
                return None;
            }
            RejectReason::Full
        };
        self.cancel(number);
        Some(Answer::Rejected(why))
    }

    pub(crate) fn on_release(&mut self, pool: usize) {
        self.pools[pool].taken -= 1;
        self.advance();
        self.pump();
    }

    pub(crate) fn cancel(&mut self, number: Number) {
        let i = self
            .waiting
            .iter()
            .position(|w| w.request.number == number)
            .unwrap();
        self.remove(i);
    }

    /// A waiter gets another ticket. Returns the lane that it had; `None` if it does not wait.
    pub(crate) fn set_ticket(&mut self, mut request: Arrival) -> Option<usize> {
        self.advance();
        let number = request.number;
        let mut all = self.waiting.iter();
        let i = all.position(|w| w.request.number == number)?;
        let (old_lane, old_key) = (self.waiting[i].request.lane, self.flow_of(i));
        let old_flow = self.flows[&old_key];
        self.remove(i);
        request.priority = request.priority.min(self.lowest_level());
        let (level, since) = (self.level_of(&request), request.arrival);
        let is_before = |w: &&Waiter| (w.since, w.request.number) < (since, number);
        let place = self.waiting.iter().filter(is_before).count();
        let waiter = Waiter {
            request,
            since,
            level,
        };
        self.waiting.insert(place, waiter);
        let stays = self.flow_of(place) == old_key;
        self.join(place, stays.then_some(old_flow));
        self.advance();
        self.pump();
        Some(old_lane)
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        while !self.waiting.is_empty() {
            self.answer(0, Answer::Rejected(RejectReason::ShuttingDown));
        }
    }

    pub(crate) fn set_slots(&mut self, pool: usize, slots: usize) {
        self.pools[pool].slots = slots;
        self.advance();
        self.pump();
    }

    pub(crate) fn set_serves(&mut self, lane: usize, serves: Serves) {
        self.advance();
        let before = self.clone();
        self.lanes[lane] = serves;
        self.rebuild(&before, self.config.clone());
        self.evict_from_partitions(|id| before.above(id));
        self.pump();
    }

    pub(crate) fn set_partitions(&mut self, partitions: Vec<Partition>) {
        self.advance();
        let before = self.clone();
        self.partitions = partitions;
        self.rebuild(&before, self.config.clone());
        self.evict_from_partitions(|id| before.above(id));
        self.pump();
    }

    pub(crate) fn reconfigure(&mut self, config: WaitingRoomConfig) {
        self.advance();
        let before = self.clone();
        self.rebuild(&before, config);
        self.advance();
        for number in self.latest_first() {
            let i = self
                .waiting
                .iter()
                .position(|w| w.request.number == number)
                .unwrap();
            let tenant = self.waiting[i].request.tenant;
            let placed = self.placed().filter(|w| w.tenant == tenant).count();
            if self.most_of(tenant).is_some_and(|most| placed > most)
                && !self.waiting[i].request.patient
            {
                self.answer(i, Answer::Rejected(RejectReason::TenantFull));
            }
        }
        self.evict_from_partitions(|_| 0);
        while self.placed().count() > self.config.max_size {
            let why = if self.config.max_size == 0 {
                RejectReason::Disabled
            } else {
                RejectReason::Full
            };
            let last = self.evicted_first(&self.places());
            self.answer(last.unwrap(), Answer::Rejected(why));
        }
        self.pump();
    }

    /// Waiters that came back to a partition stay above its bound.
    fn evict_from_partitions(&mut self, above: impl Fn(u32) -> usize) {
        for lane in 0..self.lanes.len() {
            let above = above(self.partitions[lane].id);
            while self.exceeds_partition(lane, above) {
                let last = self.evicted_first(&self.places_of_partition(lane));
                self.answer(last.unwrap(), Answer::Rejected(RejectReason::Full));
            }
        }
    }

    // Places.

    fn places(&self) -> Places {
        let waiters = (0..self.waiting.len()).filter(|&i| !self.waiting[i].request.patient);
        (waiters.collect(), self.config.discipline)
    }

    fn places_of_partition(&self, lane: usize) -> Places {
        let id = |lane: usize| self.partitions[lane].id;
        let (waiters, _) = self.places();
        let waiters = waiters.into_iter();
        let inside = waiters.filter(|&i| id(self.waiting[i].request.lane) == id(lane));
        (inside.collect(), self.discipline(lane))
    }

    /// The flow of a waiter among those that share places: its strict level, then level and tenant, as far as they matter.
    fn sharer(&self, i: usize, discipline: Discipline) -> (u8, u8, &'static str) {
        let Waiter { request, level, .. } = &self.waiting[i];
        match (discipline, self.is_weighted()) {
            (Discipline::Fair, true) => (0, *level, request.tenant),
            (Discipline::Fair, false) => (*level, 0, request.tenant),
            (Discipline::Fifo, true) => (0, *level, ""),
            _ => (*level, 0, ""),
        }
    }

    fn weight(&self, (_, level, tenant): (u8, u8, &'static str), discipline: Discipline) -> u64 {
        let level = match self.is_weighted() {
            true => self.level_weight(level),
            false => 1,
        };
        let tenant = match discipline {
            Discipline::Fair => self.config.weights.get(tenant.as_bytes()).copied(),
            _ => None,
        };
        level * u64::from(tenant.unwrap_or(1).max(1))
    }

    /// Returns the flows that have places of a level, with their weights and their places.
    fn sharers(
        &self,
        strict_level: u8,
        (waiters, discipline): &Places,
    ) -> BTreeMap<(u8, u8, &'static str), (u64, u64)> {
        let mut sharers = BTreeMap::new();
        for &i in waiters {
            let flow = self.sharer(i, *discipline);
            if flow.0 == strict_level {
                sharers
                    .entry(flow)
                    .or_insert((self.weight(flow, *discipline), 0))
                    .1 += 1;
            }
        }
        sharers
    }

    /// The latest waiter of the flow of the lowest level that has the most places for its weight.
    fn evicted_first(&self, places: &Places) -> Option<usize> {
        places
            .0
            .iter()
            .copied()
            .max_by_key(|&i| (self.claim(i, places), i))
    }

    fn claim(&self, i: usize, places: &Places) -> (u8, u64) {
        let flow = self.sharer(i, places.1);
        if !self.has_flows_by(places.1) {
            return (flow.0, 0);
        }
        let (weight, own) = self.sharers(flow.0, places)[&flow];
        (flow.0, own * SHARE / weight)
    }

    /// The waiter that loses its place to a newcomer, which is one of these waiters already. Checks what is promised of
    /// shares.
    fn displaced_by(&self, newcomer: usize, places: &Places) -> Option<usize> {
        let last = self.evicted_first(places)?;
        let displaces =
            self.config.displace && self.claim(last, places) > self.claim(newcomer, places);
        let own = self.sharer(newcomer, places.1);
        let level = self.sharer(last, places.1).0;
        if self.config.displace && self.has_flows_by(places.1) && level == own.0 {
            let sharers = self.sharers(level, places);
            let weights: u64 = sharers.values().map(|(weight, _)| weight).sum();
            let all: u64 = sharers.values().map(|(_, places)| places).sum();
            // Of the places without that of the newcomer.
            let is_within_share = |flow| {
                let (weight, places) = sharers[&flow];
                places * weights <= weight * (all - 1)
            };
            assert!(
                displaces || !is_within_share(own),
                "a flow below its share finds a place"
            );
            let loser = self.sharer(last, places.1);
            assert!(
                !displaces || !is_within_share(loser),
                "no flow within its share loses a place"
            );
        }
        displaces.then_some(last)
    }

    // Getters.

    /// By how many requests a partition exceeds its bound.
    fn above(&self, id: u32) -> usize {
        let mut lanes = (0..self.lanes.len()).filter(|&lane| self.partitions[lane].id == id);
        let exceeds = |lane| (0..).find(|&above| !self.exceeds_partition(lane, above));
        lanes.next().and_then(exceeds).unwrap_or(0)
    }

    fn overfull(&self, lane: usize) -> bool {
        self.exceeds_partition(lane, 0)
    }

    /// Returns `true` if more requests wait in the lane's partition than its bound allows, with so many above it.
    pub(crate) fn exceeds_partition(&self, lane: usize, above: usize) -> bool {
        let partition = self.partitions[lane];
        let inside = self
            .placed()
            .filter(|w| self.partitions[w.lane].id == partition.id);
        partition
            .max_size
            .is_some_and(|max_size| inside.count() > max_size + above)
    }

    pub(crate) fn discipline(&self, lane: usize) -> Discipline {
        let own = self.partitions[lane].discipline;
        own.unwrap_or(self.config.discipline)
    }

    /// Whether the lane's waiters share the slots as flows.
    pub(crate) fn has_flows(&self, lane: usize) -> bool {
        self.has_flows_by(self.discipline(lane))
    }

    fn has_flows_by(&self, discipline: Discipline) -> bool {
        match discipline {
            Discipline::Fair => true,
            Discipline::Fifo => self.is_weighted(),
            _ => false,
        }
    }

    fn is_weighted(&self) -> bool {
        !self.config.level_weights.is_empty()
    }

    /// A level, as far as a more urgent one goes first in the lane.
    fn strict_level(&self, lane: usize, level: u8) -> u8 {
        match self.is_weighted() && self.has_flows(lane) {
            true => 0,
            false => level,
        }
    }

    fn clock_key(&self, (lane, level, _): FlowKey) -> ClockKey {
        let level = self.strict_level(lane, level);
        (self.lanes[lane].clone(), self.discipline(lane), level)
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Arrival> {
        self.waiting.iter().map(|w| &w.request)
    }

    /// The waiters that take a place: those that are not patient.
    pub(crate) fn placed(&self) -> impl Iterator<Item = &Arrival> {
        self.waiting().filter(|w| !w.patient)
    }

    /// Returns the number of requests of this tenant that may wait, if that is bounded.
    pub(crate) fn most_of(&self, tenant: &str) -> Option<usize> {
        let own = self.config.tenant_limits.get(tenant.as_bytes());
        let most = own.and_then(|own| own.max_size);
        most.or(self.config.max_size_per_tenant)
    }

    pub(crate) fn tenants(&self) -> BTreeMap<&'static str, usize> {
        let mut tenants = BTreeMap::new();
        self.placed()
            .for_each(|w| *tenants.entry(w.tenant).or_default() += 1);
        tenants
    }

    pub(crate) fn next_end(&self) -> Option<Time> {
        self.waiting().filter_map(|w| Some(self.end(w)?.0)).min()
    }

    pub(crate) fn first(&self) -> Option<Number> {
        let best = self.best(|_| true)?;
        Some(self.waiting[best].request.number)
    }

    /// The waiters that these pools serve, in the order in which they would be served now.
    pub(crate) fn order_for(&self, serves: &Serves) -> Vec<Number> {
        let mut model = self.clone();
        let mut order = Vec::new();
        while let Some(best) = model.best(|w| model.lanes[w.lane] == *serves) {
            order.push(model.waiting[best].request.number);
            model.pay(best);
            model.remove(best);
        }
        order
    }

    // The order.

    /// Of the best waiter of each discipline, that of the highest level; of equal levels, or if levels have weights, the
    /// first to arrive.
    fn best(&self, among: impl Fn(&Arrival) -> bool) -> Option<usize> {
        let best_of = |discipline| {
            let waiting = (0..self.waiting.len()).filter(|&i| among(&self.waiting[i].request));
            waiting
                .filter(|&i| self.discipline(self.waiting[i].request.lane) == discipline)
                .min_by_key(|&i| self.rank(i))
        };
        let disciplines = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];
        let bests = disciplines.into_iter().filter_map(best_of);
        let level = |i: usize| match self.is_weighted() {
            true => 0,
            false => self.waiting[i].level,
        };
        bests.min_by_key(|&i| (level(i), i))
    }

    /// The order within a discipline: the least rank goes first.
    fn rank(&self, i: usize) -> (u8, u64, u64, usize) {
        let Waiter { request, level, .. } = &self.waiting[i];
        let (first, second) = match self.discipline(request.lane) {
            Discipline::Deadline => (self.end(request).map_or(u64::MAX, |(end, _)| end), 0),
            _ if self.has_flows(request.lane) => {
                let key = self.flow_of(i);
                let flow = self.flows[&key];
                let head = (0..=i).find(|&other| self.flow_of(other) == key).unwrap();
                (flow.start + self.price(head), flow.since_dispatch)
            }
            _ => (0, 0),
        };
        (self.strict_level(request.lane, *level), first, second, i)
    }

    fn level_weight(&self, level: u8) -> u64 {
        let name = self.config.levels.name(tower_triage::Priority(level));
        let mut weights = self.config.level_weights.iter();
        let weight = weights.find(|(other, _)| other.eq_ignore_ascii_case(name));
        weight.map_or(1, |(_, &weight)| weight.into())
    }

    fn price(&self, i: usize) -> u64 {
        let Waiter { request, level, .. } = &self.waiting[i];
        let share = SHARE / self.level_weight(*level);
        if self.discipline(request.lane) == Discipline::Fifo {
            return share;
        }
        let weight = self.config.weights.get(request.tenant.as_bytes()).copied();
        u64::from(request.cost.max(1)) * share / u64::from(weight.unwrap_or(1).max(1))
    }

    pub(crate) fn pump(&mut self) {
        loop {
            let never = |w: &Waiter| self.lanes[w.request.lane].is_empty();
            if let Some(i) = self.waiting.iter().position(never) {
                self.answer(i, Answer::Rejected(RejectReason::Unservable("no pool")));
                continue;
            }
            let fits = |request: &Arrival| choose(&self.pools, &self.lanes[request.lane]);
            let Some(best) = self.best(|request| fits(request).is_some()) else {
                return;
            };
            let pool = fits(&self.waiting[best].request).unwrap();
            self.pools[pool].taken += 1;
            self.pay(best);
            self.answer(best, Answer::Slot(pool));
        }
    }

    fn pay(&mut self, i: usize) {
        let (key, price) = (self.flow_of(i), self.price(i));
        if !self.has_flows(key.0) {
            return;
        }
        let clock = self.clock_key(key);
        self.dispatches += 1;
        let flow = self.flows.get_mut(&key).unwrap();
        flow.start += price;
        flow.since_dispatch = self.dispatches;
        let clock = self.clocks.entry(clock).or_default();
        *clock = flow.start.max(*clock);
    }

    // Flows, and the list of waiters.

    fn flow_of(&self, i: usize) -> FlowKey {
        let Waiter { request, level, .. } = &self.waiting[i];
        let tenant = match self.discipline(request.lane) {
            Discipline::Fair => request.tenant,
            _ => "",
        };
        (request.lane, *level, tenant)
    }

    fn join(&mut self, i: usize, old_flow: Option<Flow>) {
        let key = self.flow_of(i);
        let clock = self.clock_key(key);
        let start = *self.clocks.entry(clock).or_default();
        self.dispatches += 1;
        let since_dispatch = self.dispatches;
        self.flows.entry(key).or_insert(old_flow.unwrap_or(Flow {
            start,
            since_dispatch,
        }));
    }

    fn remove(&mut self, i: usize) {
        let key = self.flow_of(i);
        self.waiting.remove(i);
        if !(0..self.waiting.len()).any(|i| self.flow_of(i) == key) {
            self.flows.remove(&key);
        }
    }

    fn answer(&mut self, i: usize, answer: Answer) {
        self.answered.push((self.waiting[i].request.number, answer));
        self.remove(i);
    }

    fn latest_first(&self) -> Vec<Number> {
        let mut all: Vec<usize> = (0..self.waiting.len()).collect();
        all.sort_by_key(|&i| std::cmp::Reverse((self.waiting[i].level, i)));
        all.into_iter()
            .map(|i| self.waiting[i].request.number)
            .collect()
    }

    /// A reconfiguration: each waiter keeps its level by name, its order, and how far its flow is behind.
    fn rebuild(&mut self, before: &Self, config: WaitingRoomConfig) {
        let base = self.clocks.values().copied().max().unwrap_or(0);
        let old_flow: Vec<Option<Flow>> = (0..self.waiting.len())
            .map(|i| {
                let key = before.flow_of(i);
                let Flow {
                    start,
                    since_dispatch,
                } = self.flows[&key];
                if !before.has_flows(key.0) {
                    return None;
                }
                let behind = self.clocks[&before.clock_key(key)] - start;
                let start = base - behind;
                Some(Flow {
                    start,
                    since_dispatch,
                })
            })
            .collect();
        let old = std::mem::replace(&mut self.config, config).levels;
        self.flows.clear();
        for level in 0..32 {
            for discipline in [Discipline::Fifo, Discipline::Fair] {
                let all = self.lanes.iter();
                let all = all.map(|lane| ((lane.clone(), discipline, level), base));
                self.clocks.extend(all);
            }
        }
        for i in 0..self.waiting.len() {
            let name = old.name(tower_triage::Priority(self.waiting[i].request.priority));
            let named = self
                .config
                .levels
                .names()
                .position(|n| n.eq_ignore_ascii_case(name));
            let default = self.config.levels.default_priority().0;
            self.waiting[i].request.priority = named.map_or(default, |n| n as u8);
            self.waiting[i].level = self.level_of(&self.waiting[i].request);
        }
        let may_split = before.is_weighted() || self.is_weighted();
        let mut ranks = BTreeSet::new();
        for (i, mut old_flow) in old_flow.into_iter().enumerate() {
            if let Some(flow) = &mut old_flow
                && may_split
                && !ranks.insert(flow.since_dispatch)
            {
                // Only one part keeps its place among equals.
                flow.since_dispatch = self.dispatches + 1;
            }
            self.join(i, old_flow);
        }
    }

    // Time.

    fn lowest_level(&self) -> u8 {
        self.config.levels.count() as u8 - 1
    }

    fn level_of(&self, request: &Arrival) -> u8 {
        let waited = self.now.saturating_sub(request.arrival);
        let promotions = self
            .config
            .promote_after
            .map_or(0, |every| waited / every.as_secs());
        request.priority.saturating_sub(promotions.min(32) as u8)
    }

    fn end(&self, request: &Arrival) -> Option<(Time, Why)> {
        let max_wait = self.config.max_wait.filter(|_| !request.patient);
        let longest = max_wait.map(|wait| request.arrival + wait.as_secs());
        let own = request
            .deadline
            .map(|end| (end, 0, RejectReason::DeadlinePassed));
        let rooms = longest.map(|end| (end, 1, RejectReason::TimedOut));
        let first = own
            .into_iter()
            .chain(rooms)
            .min_by_key(|&(end, nth, _)| (end, nth));
        first.map(|(end, _, why)| (end, why))
    }

    fn advance(&mut self) {
        while let Some((i, (_, why))) = (0..self.waiting.len())
            .filter_map(|i| Some((i, self.end(&self.waiting[i].request)?)))
            .filter(|(_, (end, _))| *end <= self.now)
            .min_by_key(|(i, (end, _))| (*end, *i))
        {
            self.answer(i, Answer::Rejected(why));
        }
        let Some(every) = self.config.promote_after else {
            return;
        };
        let promotion = |w: &Waiter| {
            w.request.arrival + every.as_secs() * u64::from(w.request.priority - w.level + 1)
        };
        while let Some(i) = (0..self.waiting.len())
            .filter(|&i| self.waiting[i].level > 0 && promotion(&self.waiting[i]) <= self.now)
            .min_by_key(|&i| (promotion(&self.waiting[i]), self.waiting[i].request.number))
        {
            let key = self.flow_of(i);
            self.waiting[i].level -= 1;
            if !(0..self.waiting.len()).any(|i| self.flow_of(i) == key) {
                self.flows.remove(&key);
            }
            self.join(i, None);
        }
    }
}
