//! The queue as one list of everybody, searched from end to end.

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
    /// How long ago its ticket says that it arrived, if it does.
    pub(crate) late: Option<Time>,
    /// How long it waits since then.
    pub(crate) patience: Option<Time>,
    /// Of its tenant's share.
    pub(crate) share: u32,
    /// Of a batch's budget.
    pub(crate) cost: u64,
}

#[derive(Debug, Clone)]
struct Waiter {
    who: Arrival,
    came: Time,
    /// When it waits no longer by its own ticket.
    own_end: Option<Time>,
    /// The level it has risen to.
    level: u8,
    /// How many went before it because it did not fit.
    overtaken: u32,
    aside: bool,
}

/// A tenant's requests of one level, and how far it has come.
type FlowKey = (u8, &'static str);
#[derive(Debug, Clone, Copy)]
struct Flow {
    begun: u64,
    turn: u64,
}

/// Nobody's ticket is older.
const BEGIN: Time = 1_000;
/// Weights of tests divide it.
const SHARE: u64 = 4;
pub(crate) const LONGEST_LOOK: usize = 64;

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
    /// Who was rejected since it was last asked.
    pub(crate) told: Vec<(Id, Why)>,
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
            told: Vec::new(),
        }
    }

    // What happens.

    pub(crate) fn time_passes(&mut self, seconds: Time) {
        self.now += seconds;
        self.catch_up();
    }

    pub(crate) fn enqueue(&mut self, mut who: Arrival) -> Result<(), Why> {
        if self.closed {
            return Err(RejectReason::ShuttingDown);
        }
        self.catch_up();
        let (cost, budget) = (who.cost, self.budget);
        if cost > budget {
            return Err(RejectReason::Unservable(TooLarge { cost, budget }));
        }
        if self.config.max_size == 0 {
            return Err(RejectReason::Disabled);
        }
        who.priority = who.priority.min(self.config.levels.count() as u8 - 1);
        let tenant = who.tenant;
        let mut newcomer = Waiter {
            came: self.now - who.late.unwrap_or(0),
            own_end: (who.patience).map(|own| self.now - who.late.unwrap_or(0) + own),
            level: who.priority,
            who,
            overtaken: 0,
            aside: false,
        };
        let level = self.risen_to(&newcomer);
        newcomer.level = level;
        if let Some((end, why)) = self.end(&newcomer)
            && end <= self.now
        {
            return Err(why);
        }
        let of_tenant = self.waiting.iter().filter(|w| w.who.tenant == tenant);
        let most = self.config.max_size_per_tenant;
        if most.is_some_and(|most| of_tenant.count() >= most) {
            return Err(RejectReason::TenantFull);
        }
        let is_full = self.waiting.len() >= self.config.max_size;
        let lowest = self.lowest_and_latest();
        let displaces =
            self.config.displace && self.waiting.get(lowest).is_some_and(|w| w.level > level);
        if is_full && !displaces {
            return Err(RejectReason::Full);
        }
        self.waiting.push(newcomer);
        self.join(self.waiting.len() - 1, None);
        if is_full {
            self.reject(lowest, RejectReason::Displaced);
        }
        Ok(())
    }

    pub(crate) fn dequeue(&mut self) -> Option<Id> {
        self.catch_up();
        let best = self.best()?;
        Some(self.serve(best))
    }

    pub(crate) fn take_batch(&mut self, count: usize, mut budget: u64) -> Vec<Id> {
        self.catch_up();
        let mut batch = Vec::new();
        while batch.len() < count
            && let Some(best) = self.best()
        {
            let cost = self.waiting[best].who.cost;
            let times = match self.on_oversize {
                OnOversize::Backfill {
                    max_overtakes: times,
                } => times,
                _ => 0,
            };
            let is_aside = |w: &&Waiter| w.aside;
            let passed = self.waiting.iter().filter(is_aside);
            if cost > budget {
                if self.waiting[best].overtaken >= times || passed.count() == LONGEST_LOOK {
                    break;
                }
                self.waiting[best].aside = true;
                continue;
            }
            if passed.clone().any(|w| w.overtaken >= times) {
                break;
            }
            budget -= cost;
            let passed = self.waiting.iter_mut().filter(|w| w.aside);
            passed.for_each(|w| w.overtaken += 1);
            batch.push(self.serve(best));
        }
        self.waiting.iter_mut().for_each(|w| w.aside = false);
        batch
    }

    pub(crate) fn remove(&mut self, id: Id) -> bool {
        let found = self.waiting.iter().position(|w| w.who.id == id);
        if let Some(i) = found {
            self.cancelled += 1;
            self.take_out(i);
        }
        found.is_some()
    }

    pub(crate) fn clear(&mut self) -> Vec<Id> {
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
        while !self.waiting.is_empty() {
            self.reject(self.lowest_and_latest(), RejectReason::ShuttingDown);
        }
    }

    pub(crate) fn reconfigure(&mut self, config: WaitingRoomConfig) {
        self.catch_up();
        self.move_over(config);
        self.catch_up();
        if let Some(most) = self.config.max_size_per_tenant {
            for id in self.latest_first() {
                let i = self.waiting.iter().position(|w| w.who.id == id).unwrap();
                let tenant = self.waiting[i].who.tenant;
                let of_tenant = self.waiting.iter().filter(|w| w.who.tenant == tenant);
                if of_tenant.count() > most {
                    self.reject(i, RejectReason::TenantFull);
                }
            }
        }
        while self.waiting.len() > self.config.max_size {
            let why = match self.config.max_size {
                0 => RejectReason::Disabled,
                _ => RejectReason::Full,
            };
            self.reject(self.lowest_and_latest(), why);
        }
    }

    // What can be asked.

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn contains(&self, id: Id) -> bool {
        self.waiting.iter().any(|w| w.who.id == id)
    }

    /// All who wait, in the order in which they would be taken one by one.
    pub(crate) fn order(&self) -> Vec<Id> {
        let mut model = self.clone();
        let next = || Some(model.best()).flatten().map(|best| model.serve(best));
        std::iter::from_fn(next).collect()
    }

    // The order.

    fn best(&self) -> Option<usize> {
        let waiting = (0..self.waiting.len()).filter(|&i| !self.waiting[i].aside);
        waiting.min_by_key(|&i| self.rank(i))
    }

    /// Whoever has the least goes first.
    fn rank(&self, i: usize) -> (u8, u64, u64, usize) {
        let waiter = &self.waiting[i];
        let (first, second) = match self.config.discipline {
            Discipline::Deadline => (self.end(waiter).map_or(u64::MAX, |(end, _)| end), 0),
            Discipline::Fair => {
                let key = self.flow_of(i);
                let flow = self.flows[&key];
                let of_flow =
                    |&other: &usize| self.flow_of(other) == key && !self.waiting[other].aside;
                let head = (0..=i).find(of_flow).unwrap();
                (flow.begun + self.price(head), flow.turn)
            }
            _ => (0, 0),
        };
        (waiter.level, first, second, i)
    }

    fn price(&self, i: usize) -> u64 {
        let who = &self.waiting[i].who;
        let weight = self.config.weights.get(who.tenant.as_bytes()).copied();
        u64::from(who.share.max(1)) * SHARE / u64::from(weight.unwrap_or(1).max(1))
    }

    /// It goes, and its tenant pays.
    fn serve(&mut self, i: usize) -> Id {
        let id = self.waiting[i].who.id;
        if self.config.discipline == Discipline::Fair {
            let (key, price) = (self.flow_of(i), self.price(i));
            self.turns += 1;
            let flow = self.flows.get_mut(&key).unwrap();
            flow.begun += price;
            flow.turn = self.turns;
            let clock = &mut self.clocks[usize::from(key.0)];
            *clock = flow.begun.max(*clock);
        }
        self.take_out(i);
        id
    }

    // Coming and going.

    fn flow_of(&self, i: usize) -> FlowKey {
        (self.waiting[i].level, self.waiting[i].who.tenant)
    }

    fn join(&mut self, i: usize, stood: Option<Flow>) {
        let key = self.flow_of(i);
        self.turns += 1;
        let (begun, turn) = (self.clocks[usize::from(key.0)], self.turns);
        let flow = stood.unwrap_or(Flow { begun, turn });
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
        self.told.push((self.waiting[i].who.id, why));
        self.take_out(i);
    }

    fn lowest_and_latest(&self) -> usize {
        let all = 0..self.waiting.len();
        all.max_by_key(|&i| (self.waiting[i].level, i)).unwrap_or(0)
    }

    fn latest_first(&self) -> Vec<Id> {
        let mut all: Vec<usize> = (0..self.waiting.len()).collect();
        all.sort_by_key(|&i| std::cmp::Reverse((self.waiting[i].level, i)));
        all.into_iter().map(|i| self.waiting[i].who.id).collect()
    }

    /// Everyone keeps order, and how far it has come in its round.
    fn move_over(&mut self, config: WaitingRoomConfig) {
        let was_fair = self.config.discipline == Discipline::Fair;
        let base = self.clocks.into_iter().max().unwrap_or(0);
        let stood: Vec<Option<Flow>> = (0..self.waiting.len())
            .map(|i| {
                let key = self.flow_of(i);
                let Flow { begun, turn } = self.flows[&key];
                let behind = self.clocks[usize::from(key.0)] - begun;
                let begun = base - behind;
                was_fair.then_some(Flow { begun, turn })
            })
            .collect();
        self.config = config;
        self.flows.clear();
        self.clocks = [base; 32];
        for (i, stood) in stood.into_iter().enumerate() {
            self.waiting[i].level = self.risen_to(&self.waiting[i]);
            self.join(i, stood);
        }
    }

    // Time.

    fn risen_to(&self, waiter: &Waiter) -> u8 {
        let every = self.config.promote_after.map(|every| every.as_secs());
        let risen = every.map_or(0, |every| (self.now - waiter.came) / every);
        waiter.who.priority.saturating_sub(risen.min(32) as u8)
    }

    fn end(&self, waiter: &Waiter) -> Option<(Time, Why)> {
        let own = waiter
            .own_end
            .map(|end| (end, RejectReason::DeadlinePassed));
        let longest = self.config.max_wait.map(|wait| wait.as_secs());
        let rooms = longest.map(|longest| (waiter.came + longest, RejectReason::TimedOut));
        // The first of two that are the same.
        own.into_iter().chain(rooms).min_by_key(|&(end, _)| end)
    }

    fn catch_up(&mut self) {
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
        let rises = |w: &Waiter| w.came + every.as_secs() * u64::from(w.who.priority - w.level + 1);
        while let Some(i) = (0..self.waiting.len())
            .filter(|&i| self.waiting[i].level > 0 && rises(&self.waiting[i]) <= self.now)
            .min_by_key(|&i| (rises(&self.waiting[i]), i))
        {
            let key = self.flow_of(i);
            self.waiting[i].level -= 1;
            self.forget_if_empty(key);
            self.join(i, None);
        }
    }
}
