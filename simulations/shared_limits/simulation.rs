//! Gateways, endpoints and ledgers in virtual time: a discrete-event simulation.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tower_triage_redis::shared_limits::{Ask, Grant, LeaseTimes, Ledger, Need, Share};

/// What is simulated. Times are microseconds unless their name says otherwise.
pub(crate) struct Setting {
    pub(crate) gateways: usize,
    pub(crate) endpoints: usize,
    /// The slots of each endpoint.
    pub(crate) slots: u32,
    /// The mean time of a request.
    pub(crate) seconds: f64,
    /// Arrivals, as a share of what the slots can serve.
    pub(crate) load: f64,
    /// The arrivals of the busiest gateway for each of the least busy one.
    pub(crate) skew: f64,
    pub(crate) patience: u64,
    pub(crate) lease: u64,
    /// The time between two deaths of a gateway.
    pub(crate) death: u64,
    /// The time of a message between a gateway and Redis.
    pub(crate) network: u64,
    /// The time between two looks of a gateway at what waits.
    pub(crate) look: u64,
    /// The seconds that are measured, after a minute that is not.
    pub(crate) measured: u64,
    pub(crate) seed: u64,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            gateways: 100,
            endpoints: 1_000,
            slots: 8,
            seconds: 5.0,
            load: 1.5,
            skew: 10.0,
            patience: 30 * SECOND,
            lease: 30 * SECOND,
            death: 60 * SECOND,
            network: 500,
            look: 5_000,
            measured: 600,
            seed: 1,
        }
    }
}

pub(crate) const SECOND: u64 = 1_000_000;
const WARM_UP: u64 = 60 * SECOND;

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// The share of the slots that were in use, over time.
    pub(crate) in_use: f64,
    /// The most requests that an endpoint ever had.
    pub(crate) most: u32,
    /// Requests per second whose slots were found.
    pub(crate) served: f64,
    /// Questions per second to Redis: a script each.
    pub(crate) questions: f64,
    /// Notices per second from Redis.
    pub(crate) notices: f64,
    /// The share of its requests that the busiest gateway has served.
    pub(crate) busiest: f64,
    pub(crate) least_busy: f64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    /// A request has ended.
    End(usize, usize, u32),
    /// Something may have changed for an endpoint.
    Changed(usize, usize, u32),
    Look(usize, u32),
    Question(usize, usize, u32, Copied<Ask>),
    Answer(usize, usize, u32, u64, Copied<Grant>),
    Notice(usize, usize, u32, Copied<Grant>),
    Death,
}

/// A value that has no order: events of one time go in any.
#[derive(Debug, Clone, Copy)]
struct Copied<T>(T);

impl<T> PartialEq for Copied<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl<T> Eq for Copied<T> {}
impl<T> PartialOrd for Copied<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Copied<T> {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

struct Gateway {
    /// How many there were in its place before.
    life: u32,
    at: Vec<Option<Local>>,
    /// The endpoints to look at.
    changed: Vec<usize>,
    is_look_due: bool,
    arrived: u64,
    served: u64,
}

/// What a gateway knows of an endpoint.
struct Local {
    share: Share,
    /// The ends of the patience of those that wait.
    waiting: VecDeque<u64>,
    running: u32,
    is_changed: bool,
    wakes_at: u64,
}

struct World<'a> {
    setting: &'a Setting,
    rng: Rng,
    start: Instant,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    next_event: u64,
    gateways: Vec<Gateway>,
    /// The sums of the weights up to each gateway.
    weights: Vec<f64>,
    ledgers: Vec<Ledger<(usize, u32)>>,
    /// The requests that each endpoint has.
    load: Vec<u32>,
    running: u64,
    /// Since `running` is what it is.
    since: u64,
    busy: u64,
    most: u32,
    served: u64,
    questions: u64,
    notices: u64,
}

/// Simulates `setting`.
pub(crate) fn simulate(setting: &Setting) -> Figures {
    let mut world = World::new(setting);
    world.run_until(WARM_UP);
    world.forget();
    let end = WARM_UP + setting.measured * SECOND;
    world.run_until(end);
    world.figures()
}

impl<'a> World<'a> {
    fn new(setting: &'a Setting) -> Self {
        let weight = |nth: usize| {
            let part = nth as f64 / (setting.gateways.max(2) - 1) as f64;
            setting.skew + (1.0 - setting.skew) * part
        };
        let weights = (0..setting.gateways).scan(0.0, |sum, nth| {
            *sum += weight(nth);
            Some(*sum)
        });
        let mut world = Self {
            setting,
            rng: Rng::with_seed(setting.seed),
            start: Instant::now(),
            now: 0,
            events: BinaryHeap::new(),
            next_event: 0,
            gateways: Vec::new(),
            weights: weights.collect(),
            ledgers: (0..setting.endpoints).map(|_| Ledger::default()).collect(),
            load: vec![0; setting.endpoints],
            running: 0,
            since: 0,
            busy: 0,
            most: 0,
            served: 0,
            questions: 0,
            notices: 0,
        };
        world.gateways = (0..setting.gateways).map(|_| world.gateway(0)).collect();
        world.push(0, Event::Arrival);
        world.push(setting.death, Event::Death);
        world
    }

    fn gateway(&self, life: u32) -> Gateway {
        Gateway {
            life,
            at: (0..self.setting.endpoints).map(|_| None).collect(),
            changed: Vec::new(),
            is_look_due: false,
            arrived: 0,
            served: 0,
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((at, self.next_event, event)));
    }

    fn run_until(&mut self, end: u64) {
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= end
        {
            let Some(Reverse((at, _, event))) = self.events.pop() else {
                return;
            };
            self.now = at;
            self.handle(event);
        }
        self.now = end;
        self.note_running();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival => self.arrive(),
            Event::End(gateway, endpoint, life) if self.lives(gateway, life) => {
                self.ended(endpoint);
                self.local(gateway, endpoint).running -= 1;
                self.start(gateway, endpoint);
                self.change(gateway, endpoint);
            }
            Event::Changed(gateway, endpoint, life) if self.lives(gateway, life) => {
                self.change(gateway, endpoint);
            }
            Event::Look(gateway, life) if self.lives(gateway, life) => self.look(gateway),
            // Also of one that has died since.
            Event::Question(gateway, endpoint, life, Copied(ask)) => {
                self.question(gateway, endpoint, life, ask);
            }
            Event::Answer(gateway, endpoint, life, seq, Copied(grant))
                if self.lives(gateway, life) =>
            {
                let now = self.instant();
                self.local(gateway, endpoint)
                    .share
                    .on_answer(seq, grant, now);
                self.start(gateway, endpoint);
                self.change(gateway, endpoint);
            }
            Event::Notice(gateway, endpoint, life, Copied(grant)) if self.lives(gateway, life) => {
                let now = self.instant();
                self.local(gateway, endpoint).share.on_notice(grant, now);
                self.start(gateway, endpoint);
                self.change(gateway, endpoint);
            }
            Event::Death => self.die(),
            _ => {} // of a gateway that is dead
        }
    }

    fn lives(&self, gateway: usize, life: u32) -> bool {
        self.gateways[gateway].life == life
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_micros(self.now)
    }

    fn local(&mut self, gateway: usize, endpoint: usize) -> &mut Local {
        let (now, lease) = (self.instant(), self.setting.lease);
        self.gateways[gateway].at[endpoint].get_or_insert_with(|| Local {
            share: Share::new(LeaseTimes::of(Duration::from_micros(lease)), now),
            waiting: VecDeque::new(),
            running: 0,
            is_changed: false,
            wakes_at: u64::MAX,
        })
    }

    fn arrive(&mut self) {
        let slots = self.setting.slots as f64 * self.setting.endpoints as f64;
        let per_second = self.setting.load * slots / self.setting.seconds;
        let pause = exponential(&mut self.rng, SECOND as f64 / per_second);
        self.push(self.now + pause, Event::Arrival);
        let total = self.weights.last().copied().unwrap_or_default();
        let at = self.rng.f64() * total;
        let gateway = self.weights.partition_point(|&sum| sum <= at);
        let endpoint = self.rng.usize(..self.setting.endpoints);
        let life = self.gateways[gateway].life;
        self.gateways[gateway].arrived += 1;
        let end = self.now + self.setting.patience;
        self.local(gateway, endpoint).waiting.push_back(end);
        self.start(gateway, endpoint);
        if !self.local(gateway, endpoint).waiting.is_empty() {
            self.push(end, Event::Changed(gateway, endpoint, life));
        }
        self.change(gateway, endpoint);
    }

    /// Starts what waits, as far as there are slots.
    fn start(&mut self, gateway: usize, endpoint: usize) {
        let (now, instant) = (self.now, self.instant());
        loop {
            let local = self.local(gateway, endpoint);
            while local.waiting.front().is_some_and(|&end| end <= now) {
                local.waiting.pop_front();
            }
            if local.waiting.is_empty() || local.running >= local.share.cap(instant) {
                return;
            }
            local.waiting.pop_front();
            local.running += 1;
            self.note_running();
            self.running += 1;
            self.load[endpoint] += 1;
            self.most = self.most.max(self.load[endpoint]);
            self.served += 1;
            self.gateways[gateway].served += 1;
            let takes = exponential(&mut self.rng, self.setting.seconds * SECOND as f64);
            let life = self.gateways[gateway].life;
            self.push(now + takes, Event::End(gateway, endpoint, life));
        }
    }

    fn ended(&mut self, endpoint: usize) {
        self.note_running();
        self.running -= 1;
        self.load[endpoint] -= 1;
    }

    fn note_running(&mut self) {
        self.busy += self.running * (self.now - self.since);
        self.since = self.now;
    }

    /// Has the gateway look at an endpoint, when it looks next.
    fn change(&mut self, gateway: usize, endpoint: usize) {
        let local = self.local(gateway, endpoint);
        if std::mem::replace(&mut local.is_changed, true) {
            return;
        }
        let it = &mut self.gateways[gateway];
        it.changed.push(endpoint);
        if !std::mem::replace(&mut it.is_look_due, true) {
            let life = it.life;
            let look = self.setting.look;
            let phase = gateway as u64 * 97 % look;
            let next = (self.now + look - phase) / look * look + phase;
            self.push(next, Event::Look(gateway, life));
        }
    }

    fn look(&mut self, gateway: usize) {
        let life = self.gateways[gateway].life;
        self.gateways[gateway].is_look_due = false;
        let changed = std::mem::take(&mut self.gateways[gateway].changed);
        let (slots, instant, now) = (self.setting.slots, self.instant(), self.now);
        let ahead = slots / (2 * self.setting.gateways as u32);
        for endpoint in changed {
            self.start(gateway, endpoint);
            let local = self.local(gateway, endpoint);
            local.is_changed = false;
            let need = Need {
                running: local.running,
                waiting: local.waiting.len() as u32,
                most: slots,
                ahead,
            };
            local.share.observe(need, instant);
            if local.share.is_due(instant) {
                local.share.offer(instant);
                let ask = local.share.ask(local.running, slots, instant);
                self.send(Event::Question(gateway, endpoint, life, Copied(ask)));
            }
            let (start, local) = (self.start, self.local(gateway, endpoint));
            if let Some(next) = local.share.next_due(instant) {
                let next = (next - start).as_micros() as u64;
                let next = next.max(now + 1);
                if next < local.wakes_at || local.wakes_at <= now {
                    local.wakes_at = next;
                    self.push(next, Event::Changed(gateway, endpoint, life));
                }
            }
        }
    }

    fn send(&mut self, event: Event) {
        self.push(self.now + self.setting.network, event);
    }

    fn question(&mut self, gateway: usize, endpoint: usize, life: u32, ask: Ask) {
        self.questions += 1;
        let (lease, now) = (self.setting.lease / 1_000, self.now / 1_000);
        let ledger = &mut self.ledgers[endpoint];
        let (grant, notices) = ledger.answer(&(gateway, life), &ask, lease, now);
        self.send(Event::Answer(
            gateway,
            endpoint,
            life,
            ask.seq,
            Copied(grant),
        ));
        for ((gateway, life), grant) in notices {
            self.notices += 1;
            self.send(Event::Notice(gateway, endpoint, life, Copied(grant)));
        }
    }

    /// A gateway dies with all that it runs, and another one takes its place.
    fn die(&mut self) {
        self.push(self.now + self.setting.death, Event::Death);
        let gateway = self.rng.usize(..self.setting.gateways);
        let running = self.gateways[gateway].at.iter();
        let running: Vec<u32> = running
            .map(|local| local.as_ref().map_or(0, |local| local.running))
            .collect();
        for (endpoint, running) in running.into_iter().enumerate() {
            (0..running).for_each(|_| self.ended(endpoint));
        }
        let old = &self.gateways[gateway];
        let new = Gateway {
            arrived: old.arrived,
            served: old.served,
            ..self.gateway(old.life + 1)
        };
        self.gateways[gateway] = new;
    }

    /// Forgets what was measured.
    fn forget(&mut self) {
        self.busy = 0;
        self.served = 0;
        self.questions = 0;
        self.notices = 0;
        for gateway in &mut self.gateways {
            (gateway.arrived, gateway.served) = (0, 0);
        }
    }

    fn figures(&self) -> Figures {
        let seconds = self.setting.measured as f64;
        let slots = self.setting.slots as f64 * self.setting.endpoints as f64;
        let served =
            |it: Option<&Gateway>| it.map_or(0.0, |it| it.served as f64 / it.arrived.max(1) as f64);
        Figures {
            in_use: self.busy as f64 / (slots * seconds * SECOND as f64),
            most: self.most,
            served: self.served as f64 / seconds,
            questions: self.questions as f64 / seconds,
            notices: self.notices as f64 / seconds,
            busiest: served(self.gateways.first()),
            least_busy: served(self.gateways.last()),
        }
    }
}

fn exponential(rng: &mut Rng, mean: f64) -> u64 {
    ((1.0 - rng.f64()).ln() * -mean) as u64 + 1
}
