//! The waiting room as the document words it: one list of everybody, searched from end to end.

use std::collections::BTreeMap;

use tower_triage::admit::Partition;
use tower_triage::{Discipline, RejectReason, WaitingRoomConfig};

use super::wards::{Treats, Ward, choose};

pub(crate) type Id = usize;
pub(crate) type Why = RejectReason<&'static str>;
/// Seconds.
pub(crate) type Time = u64;

#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) id: Id,
    pub(crate) priority: u8,
    pub(crate) tenant: &'static str,
    pub(crate) lane: usize,
    pub(crate) cost: u32,
    pub(crate) arrival: Time,
    pub(crate) deadline: Option<Time>,
    pub(crate) returning: bool,
}

#[derive(Debug, Clone)]
struct Waiter {
    who: Arrival,
    /// When it came; those who do not come back, not before the one before them.
    since: Time,
    /// The level it has risen to.
    level: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Bed(usize),
    Not(Why),
}

/// A tenant's requests of one level in one lane, and how far it has come.
type FlowKey = (usize, u8, &'static str);
#[derive(Debug, Clone, Copy)]
struct Flow {
    begun: u64,
    turn: u64,
}

/// Weights of tests divide it.
const SHARE: u64 = 4;

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) config: WaitingRoomConfig,
    pub(crate) wards: Vec<Ward>,
    pub(crate) lanes: Vec<Treats>,
    /// By lane.
    pub(crate) sections: Vec<Partition>,
    pub(crate) now: Time,
    pub(crate) closed: bool,
    pub(crate) reserved: usize,
    /// When the last one came who found others waiting, or every bed taken, and did not come back.
    latest: Time,
    /// In the order of arrival.
    waiting: Vec<Waiter>,
    flows: BTreeMap<FlowKey, Flow>,
    clocks: BTreeMap<(Treats, u8), u64>,
    turns: u64,
    /// Who was answered in the present step, in order.
    pub(crate) answered: Vec<(Id, Answer)>,
}

impl Model {
    pub(crate) fn new(
        config: WaitingRoomConfig,
        wards: Vec<Ward>,
        lanes: Vec<Treats>,
        now: Time,
    ) -> Self {
        Self {
            config,
            wards,
            sections: vec![Partition::default(); lanes.len()],
            lanes,
            now,
            closed: false,
            reserved: 0,
            latest: 0,
            waiting: Vec::new(),
            flows: BTreeMap::new(),
            clocks: BTreeMap::new(),
            turns: 0,
            answered: Vec::new(),
        }
    }

    // What happens.

    pub(crate) fn time_passes(&mut self, now: Time) {
        self.now = now;
        self.catch_up();
    }

    /// `None`: it waits.
    pub(crate) fn arrive(&mut self, mut who: Arrival) -> Option<Answer> {
        self.catch_up();
        if self.closed {
            return Some(Answer::Not(RejectReason::ShuttingDown));
        }
        who.priority = who.priority.min(self.lowest_level());
        let (id, tenant, lane) = (who.id, who.tenant, who.lane);
        let end = self.end(&who);
        let level = self.risen_to(&who);
        let since = if who.returning {
            who.arrival
        } else {
            self.latest.max(who.arrival)
        };
        // Only requests that are queued count for the order of those that arrive later.
        let latest = if who.returning { self.latest } else { since };
        let came_before = |w: &&Waiter| w.since <= since;
        let place = self.waiting.iter().filter(came_before).count();
        self.waiting.insert(place, Waiter { who, since, level });
        self.join(place, None);
        self.seat_all();
        if let Some(i) = self.answered.iter().position(|(who, _)| *who == id) {
            return Some(self.answered.remove(i).1);
        }
        let tenants = self.waiting.iter().filter(|w| w.who.tenant == tenant);
        let why = if self.config.max_size == 0 {
            RejectReason::Disabled
        } else if end.is_some_and(|(end, _)| end <= self.now) {
            end.unwrap().1
        } else if self
            .config
            .max_size_per_tenant
            .is_some_and(|most| tenants.count() > most)
        {
            RejectReason::TenantFull
        } else {
            let lowest = if self.overfull(lane) {
                self.lowest_and_latest(|w| self.sections[w.lane].id == self.sections[lane].id)
            } else if self.waiting.len() + self.reserved > self.config.max_size {
                self.lowest_and_latest(|_| true)
            } else {
                self.latest = latest;
                return None;
            };
            if self.config.displace && self.waiting[lowest].level > level {
                self.answer(lowest, Answer::Not(RejectReason::Displaced));
                self.latest = latest;
                return None;
            }
            RejectReason::Full
        };
        self.leave(id);
        Some(Answer::Not(why))
    }

    pub(crate) fn bed_is_back(&mut self, ward: usize) {
        self.wards[ward].taken -= 1;
        self.catch_up();
        self.seat_all();
    }

    pub(crate) fn leave(&mut self, id: Id) {
        let i = self.waiting.iter().position(|w| w.who.id == id).unwrap();
        self.take_out(i);
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        while !self.waiting.is_empty() {
            let lowest = self.lowest_and_latest(|_| true);
            self.answer(lowest, Answer::Not(RejectReason::ShuttingDown));
        }
    }

    pub(crate) fn set_beds(&mut self, ward: usize, beds: usize) {
        self.wards[ward].beds = beds;
        self.catch_up();
        self.seat_all();
    }

    pub(crate) fn set_treats(&mut self, lane: usize, treats: Treats) {
        self.catch_up();
        let before = self.clone();
        self.lanes[lane] = treats;
        self.move_over(&before, self.config.clone());
        self.send_away_from_sections();
        self.seat_all();
    }

    pub(crate) fn set_sections(&mut self, sections: Vec<Partition>) {
        self.catch_up();
        let before = self.clone();
        self.sections = sections;
        self.move_over(&before, self.config.clone());
        self.send_away_from_sections();
        self.seat_all();
    }

    pub(crate) fn reconfigure(&mut self, config: WaitingRoomConfig) {
        self.catch_up();
        let before = self.clone();
        self.move_over(&before, config);
        self.catch_up();
        if let Some(most) = self.config.max_size_per_tenant {
            for id in self.latest_first() {
                let i = self.waiting.iter().position(|w| w.who.id == id).unwrap();
                let tenant = self.waiting[i].who.tenant;
                if self
                    .waiting
                    .iter()
                    .filter(|w| w.who.tenant == tenant)
                    .count()
                    > most
                {
                    self.answer(i, Answer::Not(RejectReason::TenantFull));
                }
            }
        }
        self.send_away_from_sections();
        while self.waiting.len() > self.config.max_size {
            let why = if self.config.max_size == 0 {
                RejectReason::Disabled
            } else {
                RejectReason::Full
            };
            self.answer(self.lowest_and_latest(|_| true), Answer::Not(why));
        }
        self.seat_all();
    }

    fn send_away_from_sections(&mut self) {
        for id in self.latest_first() {
            let i = self.waiting.iter().position(|w| w.who.id == id).unwrap();
            if self.overfull(self.waiting[i].who.lane) {
                self.answer(i, Answer::Not(RejectReason::Full));
            }
        }
    }

    // What can be asked.

    /// Whether more wait in the lane's section than it has chairs.
    pub(crate) fn overfull(&self, lane: usize) -> bool {
        let section = self.sections[lane];
        let waiting = self.waiting();
        let inside = waiting.filter(|w| self.sections[w.lane].id == section.id);
        section
            .max_size
            .is_some_and(|max_size| inside.count() > max_size)
    }

    pub(crate) fn discipline(&self, lane: usize) -> Discipline {
        let own = self.sections[lane].discipline;
        own.unwrap_or(self.config.discipline)
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Arrival> {
        self.waiting.iter().map(|w| &w.who)
    }

    pub(crate) fn tenants(&self) -> BTreeMap<&'static str, usize> {
        let mut tenants = BTreeMap::new();
        self.waiting()
            .for_each(|w| *tenants.entry(w.tenant).or_default() += 1);
        tenants
    }

    pub(crate) fn next_end(&self) -> Option<Time> {
        self.waiting().filter_map(|w| Some(self.end(w)?.0)).min()
    }

    pub(crate) fn first(&self) -> Option<Id> {
        let best = self.best(|_| true)?;
        Some(self.waiting[best].who.id)
    }

    /// Those who wait for the same wards, in the order in which they would be served now.
    pub(crate) fn order_for(&self, treats: &Treats) -> Vec<Id> {
        let mut model = self.clone();
        let mut order = Vec::new();
        while let Some(best) = model.best(|w| model.lanes[w.lane] == *treats) {
            order.push(model.waiting[best].who.id);
            model.pay(best);
            model.take_out(best);
        }
        order
    }

    // The order.

    /// Of the best of each discipline, the one of the highest level, and of these the first to come.
    fn best(&self, among: impl Fn(&Arrival) -> bool) -> Option<usize> {
        let best_of = |discipline| {
            let waiting = (0..self.waiting.len()).filter(|&i| among(&self.waiting[i].who));
            waiting
                .filter(|&i| self.discipline(self.waiting[i].who.lane) == discipline)
                .min_by_key(|&i| self.rank(i))
        };
        let disciplines = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];
        let bests = disciplines.into_iter().filter_map(best_of);
        bests.min_by_key(|&i| (self.waiting[i].level, i))
    }

    /// Whoever has the least of its discipline goes first.
    fn rank(&self, i: usize) -> (u8, u64, u64, usize) {
        let Waiter { who, level, .. } = &self.waiting[i];
        let (first, second) = match self.discipline(who.lane) {
            Discipline::Deadline => (self.end(who).map_or(u64::MAX, |(end, _)| end), 0),
            Discipline::Fair => {
                let key = self.flow_of(i);
                let flow = self.flows[&key];
                let head = (0..=i).find(|&other| self.flow_of(other) == key).unwrap();
                (flow.begun + self.price(&self.waiting[head].who), flow.turn)
            }
            _ => (0, 0),
        };
        (*level, first, second, i)
    }

    fn price(&self, who: &Arrival) -> u64 {
        let weight = self.config.weights.get(who.tenant.as_bytes()).copied();
        u64::from(who.cost.max(1)) * SHARE / u64::from(weight.unwrap_or(1).max(1))
    }

    fn seat_all(&mut self) {
        loop {
            let never = |w: &Waiter| self.lanes[w.who.lane].is_empty();
            if let Some(i) = self.waiting.iter().position(never) {
                self.answer(i, Answer::Not(RejectReason::Unservable("no ward")));
                continue;
            }
            let fits = |who: &Arrival| choose(&self.wards, &self.lanes[who.lane]);
            let Some(best) = self.best(|who| fits(who).is_some()) else {
                return;
            };
            let ward = fits(&self.waiting[best].who).unwrap();
            self.wards[ward].taken += 1;
            self.pay(best);
            self.answer(best, Answer::Bed(ward));
        }
    }

    fn pay(&mut self, i: usize) {
        let (key, price) = (self.flow_of(i), self.price(&self.waiting[i].who));
        if self.discipline(key.0) != Discipline::Fair {
            return;
        }
        let clock = (self.lanes[key.0].clone(), key.1);
        self.turns += 1;
        let flow = self.flows.get_mut(&key).unwrap();
        flow.begun += price;
        flow.turn = self.turns;
        let clock = self.clocks.entry(clock).or_default();
        *clock = flow.begun.max(*clock);
    }

    // Coming and going.

    fn flow_of(&self, i: usize) -> FlowKey {
        let Waiter { who, level, .. } = &self.waiting[i];
        (who.lane, *level, who.tenant)
    }

    fn join(&mut self, i: usize, stood: Option<Flow>) {
        let key = self.flow_of(i);
        let clock = (self.lanes[key.0].clone(), key.1);
        let begun = *self.clocks.entry(clock).or_default();
        self.turns += 1;
        let turn = self.turns;
        self.flows
            .entry(key)
            .or_insert(stood.unwrap_or(Flow { begun, turn }));
    }

    fn take_out(&mut self, i: usize) {
        let key = self.flow_of(i);
        self.waiting.remove(i);
        if !(0..self.waiting.len()).any(|i| self.flow_of(i) == key) {
            self.flows.remove(&key);
        }
    }

    fn answer(&mut self, i: usize, answer: Answer) {
        self.answered.push((self.waiting[i].who.id, answer));
        self.take_out(i);
    }

    fn lowest_and_latest(&self, among: impl Fn(&Arrival) -> bool) -> usize {
        (0..self.waiting.len())
            .filter(|&i| among(&self.waiting[i].who))
            .max_by_key(|&i| (self.waiting[i].level, i))
            .unwrap()
    }

    fn latest_first(&self) -> Vec<Id> {
        let mut all: Vec<usize> = (0..self.waiting.len()).collect();
        all.sort_by_key(|&i| std::cmp::Reverse((self.waiting[i].level, i)));
        all.into_iter().map(|i| self.waiting[i].who.id).collect()
    }

    /// Everyone keeps level by name, order, and how far it has come in its round.
    fn move_over(&mut self, before: &Self, config: WaitingRoomConfig) {
        let base = self.clocks.values().copied().max().unwrap_or(0);
        let stood: Vec<Option<Flow>> = (0..self.waiting.len())
            .map(|i| {
                let key = self.flow_of(i);
                let Flow { begun, turn } = self.flows[&key];
                if before.discipline(key.0) != Discipline::Fair {
                    return None;
                }
                let behind = self.clocks[&(before.lanes[key.0].clone(), key.1)] - begun;
                let begun = base - behind;
                Some(Flow { begun, turn })
            })
            .collect();
        let old = std::mem::replace(&mut self.config, config).levels;
        self.flows.clear();
        for level in 0..32 {
            let all = self.lanes.iter().map(|lane| ((lane.clone(), level), base));
            self.clocks.extend(all);
        }
        for i in 0..self.waiting.len() {
            let name = old.name(tower_triage::Priority(self.waiting[i].who.priority));
            let named = self
                .config
                .levels
                .names()
                .position(|n| n.eq_ignore_ascii_case(name));
            let default = self.config.levels.default_priority().0;
            self.waiting[i].who.priority = named.map_or(default, |n| n as u8);
            self.waiting[i].level = self.risen_to(&self.waiting[i].who);
        }
        (0..self.waiting.len()).for_each(|i| self.join(i, stood[i]));
    }

    // Time.

    fn lowest_level(&self) -> u8 {
        self.config.levels.count() as u8 - 1
    }

    fn risen_to(&self, who: &Arrival) -> u8 {
        let waited = self.now.saturating_sub(who.arrival);
        let risen = self
            .config
            .promote_after
            .map_or(0, |every| waited / every.as_secs());
        who.priority.saturating_sub(risen.min(32) as u8)
    }

    fn end(&self, who: &Arrival) -> Option<(Time, Why)> {
        let longest = self
            .config
            .max_wait
            .map(|wait| who.arrival + wait.as_secs());
        let own = who
            .deadline
            .map(|end| (end, 0, RejectReason::DeadlinePassed));
        let rooms = longest.map(|end| (end, 1, RejectReason::TimedOut));
        let first = own
            .into_iter()
            .chain(rooms)
            .min_by_key(|&(end, nth, _)| (end, nth));
        first.map(|(end, _, why)| (end, why))
    }

    fn catch_up(&mut self) {
        while let Some((i, (_, why))) = (0..self.waiting.len())
            .filter_map(|i| Some((i, self.end(&self.waiting[i].who)?)))
            .filter(|(_, (end, _))| *end <= self.now)
            .min_by_key(|(i, (end, _))| (*end, *i))
        {
            self.answer(i, Answer::Not(why));
        }
        let Some(every) = self.config.promote_after else {
            return;
        };
        let rises =
            |w: &Waiter| w.who.arrival + every.as_secs() * u64::from(w.who.priority - w.level + 1);
        while let Some(i) = (0..self.waiting.len())
            .filter(|&i| self.waiting[i].level > 0 && rises(&self.waiting[i]) <= self.now)
            .min_by_key(|&i| (rises(&self.waiting[i]), self.waiting[i].who.id))
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
