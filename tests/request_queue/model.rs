//! A naive model of the queue: one list of all items, searched from end to end.

use std::collections::BTreeMap;

use tower_triage::batch::{OnOversize, TooLarge};
use tower_triage::{Discipline, RejectReason, WaitingRoomConfig};

pub(crate) type Id = usize;
pub(crate) type Why = RejectReason<TooLarge>;
/// Seconds.
pub(crate) type Time = u64;

#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) id: Id,
    pub(crate) priority: u8,
    pub(crate) tenant: &'static str,
    /// How long before `enqueue` it arrived, if its ticket says so.
    pub(crate) age: Option<Time>,
    /// Its own deadline, counted from its arrival.
    pub(crate) timeout: Option<Time>,
    /// What its tenant is charged.
    pub(crate) share: u32,
    /// In units of a batch's budget.
    pub(crate) cost: u64,
}

#[derive(Debug, Clone)]
struct Waiter {
    arrival: Arrival,
    arrived: Time,
    /// Its own deadline.
    own_end: Option<Time>,
    /// Its level, promotions included.
    level: u8,
    /// How many items overtook it because it did not fit.
    overtaken: u32,
    skipped: bool,
}

/// The items of one level and tenant.
type FlowKey = (u8, &'static str);
/// The virtual start time of a flow, and what breaks ties.
#[derive(Debug, Clone, Copy)]
struct Flow {
    virtual_start: u64,
    turn: u64,
}

/// Later than the age of any ticket.
const BEGIN: Time = 1_000;
/// Divisible by all weights of the tests.
const SHARE: u64 = 4;
pub(crate) const MAX_SKIPPED: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) config: WaitingRoomConfig,
    pub(crate) budget: u64,
    pub(crate) on_oversize: OnOversize,
    pub(crate) now: Time,
    pub(crate) closed: bool,
    /// In the order of arrival.
    waiting: Vec<Waiter>,
    flows: BTreeMap<FlowKey, Flow>,
    clocks: [u64; 32],
    turns: u64,
    pub(crate) cancelled: u64,
    /// The items that were rejected since the last comparison.
    pub(crate) rejected: Vec<(Id, Why)>,
}

impl Model {
    pub(crate) fn new(config: WaitingRoomConfig, budget: u64, on_oversize: OnOversize) -> Self {
        Self {
            config,
            budget,
            on_oversize,
            now: BEGIN,
            closed: false,
            waiting: Vec::new(),
            flows: BTreeMap::new(),
            clocks: [0; 32],
            turns: 0,
            cancelled: 0,
            rejected: Vec::new(),
        }
    }

    // Events.

    pub(crate) fn pass(&mut self, seconds: Time) {
        self.now += seconds;
        self.advance();
    }

    /// Time passes, and the next event comes before a timer runs.
    pub(crate) fn pass_without_timer(&mut self, seconds: Time) {
        self.now += seconds;
    }

    pub(crate) fn enqueue(&mut self, mut arrival: Arrival) -> Result<(), Why> {
        if self.closed {
            return Err(RejectReason::ShuttingDown);
        }
        self.advance();
        let (cost, budget) = (arrival.cost, self.budget);
        if cost > budget {
            return Err(RejectReason::Unservable(TooLarge { cost, budget }));
        }
        if self.config.max_size == 0 {
            return Err(RejectReason::Disabled);
        }
        arrival.priority = arrival.priority.min(self.config.levels.count() as u8 - 1);
        let tenant = arrival.tenant;
        let mut new = Waiter {
            arrived: self.now - arrival.age.unwrap_or(0),
            own_end: (arrival.timeout).map(|own| self.now - arrival.age.unwrap_or(0) + own),
            level: arrival.priority,
            arrival,
            overtaken: 0,
            skipped: false,
        };
        let level = self.level_of(&new);
        new.level = level;
        if let Some((end, why)) = self.end(&new)
            && end <= self.now
        {
            return Err(why);
        }
        let of_tenant = self.waiting.iter().filter(|w| w.arrival.tenant == tenant);
        let max = self.config.max_size_per_tenant;
        if max.is_some_and(|max| of_tenant.count() >= max) {
            return Err(RejectReason::TenantFull);
        }
        let is_full = self.waiting.len() >= self.config.max_size;
        self.waiting.push(new);
        let newcomer = self.waiting.len() - 1;
        self.join(newcomer, None);
        if is_full {
            let evicted = self.evicted_first();
            if !self.config.displace || self.claim(evicted) <= self.claim(newcomer) {
                self.take_out(newcomer);
                return Err(RejectReason::Full);
            }
            self.reject(evicted, RejectReason::Displaced);
        }
        Ok(())
    }

    pub(crate) fn dequeue(&mut self) -> Option<Id> {
        self.advance();
        let best = self.best()?;
        Some(self.serve(best))
    }

    pub(crate) fn take_batch(&mut self, count: usize, mut budget: u64) -> Vec<Id> {
        self.advance();
        let mut batch = Vec::new();
        while batch.len() < count
            && let Some(best) = self.best()
        {
            let cost = self.waiting[best].arrival.cost;
            let max_overtakes = match self.on_oversize {
                OnOversize::Backfill { max_overtakes } => max_overtakes,
                _ => 0,
            };
            let is_aside = |w: &&Waiter| w.skipped;
            let skipped = self.waiting.iter().filter(is_aside);
            if cost > budget {
                if self.waiting[best].overtaken >= max_overtakes || skipped.count() == MAX_SKIPPED {
                    break;
                }
                self.waiting[best].skipped = true;
                continue;
            }
            if skipped.clone().any(|w| w.overtaken >= max_overtakes) {
                break;
            }
            budget -= cost;
            let skipped = self.waiting.iter_mut().filter(|w| w.skipped);
            skipped.for_each(|w| w.overtaken += 1);
            batch.push(self.serve(best));
        }
        self.waiting.iter_mut().for_each(|w| w.skipped = false);
        batch
    }

    pub(crate) fn remove(&mut self, id: Id) -> bool {
        let found = self.waiting.iter().position(|w| w.arrival.id == id);
        if let Some(i) = found {
            self.cancelled += 1;
            self.take_out(i);
        }
        found.is_some()
    }

    pub(crate) fn clear(&mut self) -> Vec<Id> {
        self.advance();
        let order = self.order();
        self.cancelled += order.len() as u64;
        self.waiting.clear();
        self.flows.clear();
        order
    }

    pub(crate) fn drain(&mut self) {
        self.closed = true;
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        for id in self.latest_first() {
            let i = self.waiting.iter().position(|w| w.arrival.id == id);
            self.reject(i.unwrap(), RejectReason::ShuttingDown);
        }
    }

    pub(crate) fn reconfigure(&mut self, config: WaitingRoomConfig) {
        self.advance();
        self.apply(config);
        self.advance();
        if let Some(max) = self.config.max_size_per_tenant {
            for id in self.latest_first() {
                let i = self
                    .waiting
                    .iter()
                    .position(|w| w.arrival.id == id)
                    .unwrap();
                let tenant = self.waiting[i].arrival.tenant;
                let of_tenant = self.waiting.iter().filter(|w| w.arrival.tenant == tenant);
                if of_tenant.count() > max {
                    self.reject(i, RejectReason::TenantFull);
                }
            }
        }
        while self.waiting.len() > self.config.max_size {
            let why = match self.config.max_size {
                0 => RejectReason::Disabled,
                _ => RejectReason::Full,
            };
            self.reject(self.evicted_first(), why);
        }
    }

    // Getters.

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn contains(&self, id: Id) -> bool {
        self.waiting.iter().any(|w| w.arrival.id == id)
    }

    /// All items, in the order in which they would be taken one by one.
    pub(crate) fn order(&self) -> Vec<Id> {
        let mut model = self.clone();
        let next = || Some(model.best()).flatten().map(|best| model.serve(best));
        std::iter::from_fn(next).collect()
    }

    // The order.

    fn best(&self) -> Option<usize> {
        let waiting = (0..self.waiting.len()).filter(|&i| !self.waiting[i].skipped);
        waiting.min_by_key(|&i| self.rank(i))
    }

    /// The least rank is next.
    fn rank(&self, i: usize) -> (u8, u64, u64, usize) {
        let waiter = &self.waiting[i];
        let (first, second) = match self.config.discipline {
            Discipline::Deadline => (self.end(waiter).map_or(u64::MAX, |(end, _)| end), 0),
            Discipline::Fair => {
                let key = self.flow_of(i);
                let flow = self.flows[&key];
                let of_flow =
                    |&other: &usize| self.flow_of(other) == key && !self.waiting[other].skipped;
                let head = (0..=i).find(of_flow).unwrap();
                (flow.virtual_start + self.price(head), flow.turn)
            }
            _ => (0, 0),
        };
        (waiter.level, first, second, i)
    }

    fn price(&self, i: usize) -> u64 {
        let arrival = &self.waiting[i].arrival;
        let weight = self.config.weights.get(arrival.tenant.as_bytes()).copied();
        u64::from(arrival.share.max(1)) * SHARE / u64::from(weight.unwrap_or(1).max(1))
    }

    /// Takes an item, and charges its tenant.
    fn serve(&mut self, i: usize) -> Id {
        let id = self.waiting[i].arrival.id;
        if self.config.discipline == Discipline::Fair {
            let (key, price) = (self.flow_of(i), self.price(i));
            self.turns += 1;
            let flow = self.flows.get_mut(&key).unwrap();
            flow.virtual_start += price;
            flow.turn = self.turns;
            let clock = &mut self.clocks[usize::from(key.0)];
            *clock = flow.virtual_start.max(*clock);
        }
        self.take_out(i);
        id
    }

    // Joining and leaving.

    fn flow_of(&self, i: usize) -> FlowKey {
        (self.waiting[i].level, self.waiting[i].arrival.tenant)
    }

    fn join(&mut self, i: usize, kept: Option<Flow>) {
        let key = self.flow_of(i);
        self.turns += 1;
        let (virtual_start, turn) = (self.clocks[usize::from(key.0)], self.turns);
        let flow = kept.unwrap_or(Flow {
            virtual_start,
            turn,
        });
        self.flows.entry(key).or_insert(flow);
    }

    fn take_out(&mut self, i: usize) {
        let key = self.flow_of(i);
        self.waiting.remove(i);
        self.forget_if_empty(key);
    }

    fn forget_if_empty(&mut self, key: FlowKey) {
        if !(0..self.waiting.len()).any(|i| self.flow_of(i) == key) {
            self.flows.remove(&key);
        }
    }

    fn reject(&mut self, i: usize, why: Why) {
        self.rejected.push((self.waiting[i].arrival.id, why));
        self.take_out(i);
    }

    /// The latest item of the lowest level, with `fair` of the tenant that has the most places there for its weight.
    fn evicted_first(&self) -> usize {
        let all = 0..self.waiting.len();
        all.max_by_key(|&i| (self.claim(i), i)).unwrap_or(0)
    }

    fn claim(&self, i: usize) -> (u8, u64) {
        let level = self.waiting[i].level;
        if self.config.discipline != Discipline::Fair {
            return (level, 0);
        }
        let all = 0..self.waiting.len();
        let places = all.filter(|&other| self.flow_of(other) == self.flow_of(i));
        let tenant = self.waiting[i].arrival.tenant.as_bytes();
        let weight = self
            .config
            .weights
            .get(tenant)
            .map_or(1, |&weight| weight.max(1));
        (level, places.count() as u64 * SHARE / u64::from(weight))
    }

    fn latest_first(&self) -> Vec<Id> {
        let mut all: Vec<usize> = (0..self.waiting.len()).collect();
        all.sort_by_key(|&i| std::cmp::Reverse((self.waiting[i].level, i)));
        all.into_iter()
            .map(|i| self.waiting[i].arrival.id)
            .collect()
    }

    /// A new configuration: items keep their order, and flows how far they are behind the clock.
    fn apply(&mut self, config: WaitingRoomConfig) {
        let was_fair = self.config.discipline == Discipline::Fair;
        let base = self.clocks.into_iter().max().unwrap_or(0);
        let flows: Vec<Option<Flow>> = (0..self.waiting.len())
            .map(|i| {
                let key = self.flow_of(i);
                let Flow {
                    virtual_start,
                    turn,
                } = self.flows[&key];
                let behind = self.clocks[usize::from(key.0)] - virtual_start;
                let virtual_start = base - behind;
                was_fair.then_some(Flow {
                    virtual_start,
                    turn,
                })
            })
            .collect();
        self.config = config;
        self.flows.clear();
        self.clocks = [base; 32];
        for (i, flow) in flows.into_iter().enumerate() {
            self.waiting[i].level = self.level_of(&self.waiting[i]);
            self.join(i, flow);
        }
    }

    // Time.

    fn level_of(&self, waiter: &Waiter) -> u8 {
        let every = self.config.promote_after.map(|every| every.as_secs());
        let promotions = every.map_or(0, |every| (self.now - waiter.arrived) / every);
        waiter
            .arrival
            .priority
            .saturating_sub(promotions.min(32) as u8)
    }

    fn end(&self, waiter: &Waiter) -> Option<(Time, Why)> {
        let own = waiter
            .own_end
            .map(|end| (end, RejectReason::DeadlinePassed));
        let longest = self.config.max_wait.map(|wait| wait.as_secs());
        let rooms = longest.map(|longest| (waiter.arrived + longest, RejectReason::TimedOut));
        // The own deadline, if both are the same.
        own.into_iter().chain(rooms).min_by_key(|&(end, _)| end)
    }

    /// Rejects the items whose wait has ended, and promotes.
    pub(crate) fn advance(&mut self) {
        while let Some((i, (_, why))) = (0..self.waiting.len())
            .filter_map(|i| Some((i, self.end(&self.waiting[i])?)))
            .filter(|(_, (end, _))| *end <= self.now)
            .min_by_key(|(i, (end, _))| (*end, *i))
        {
            self.reject(i, why);
        }
        let Some(every) = self.config.promote_after else {
            return;
        };
        let promotion =
            |w: &Waiter| w.arrived + every.as_secs() * u64::from(w.arrival.priority - w.level + 1);
        while let Some(i) = (0..self.waiting.len())
            .filter(|&i| self.waiting[i].level > 0 && promotion(&self.waiting[i]) <= self.now)
            .min_by_key(|&i| (promotion(&self.waiting[i]), i))
        {
            let key = self.flow_of(i);
            self.waiting[i].level -= 1;
            self.forget_if_empty(key);
            self.join(i, None);
        }
    }
}
