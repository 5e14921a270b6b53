//! The state of a store, as a pure state machine: no disk, no task, and time is an argument.
//!
//! A method brings the state up to date, returns the answer, and leaves behind what follows from it: what is to be [written
//! down](State::take_writes), and what is to be [woken](State::take_news). Bodies and responses are not in it.
//!
//! - `record.rs`: a request; `names.rs`: queues and tenants as numbers; `order.rs`: which request of a queue goes next.
//! - `enqueue.rs`, `run.rs`, `limits.rs`, `end.rs`, `pauses.rs`, `webhooks.rs`: the operations; `report.rs`: what is told of it all.
//! - `recover.rs`: the state from what was written down.

mod end;
mod enqueue;
mod limits;
mod names;
mod order;
mod pauses;
mod record;
mod recover;
mod report;
mod run;
mod webhooks;

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use slab::Slab;

use self::names::Names;
use self::order::{Order, Place, Rules};
use self::record::{Phase, Record};
use super::row::StateRow;
use super::time::Time;
use super::write::Write;
use crate::durable::{Pause, RequestId, StoreConfig};

pub(crate) use self::recover::Recovered;
pub(crate) use self::run::Started;

/// All requests of a store, their order, and what is due when.
pub(crate) struct State {
    config: StoreConfig,
    rules: Rules,
    /// A number that no other opening of the store has, so that its leases are known.
    opening: u64,
    /// The number of starts so far.
    starts: u64,
    /// The number of the latest request.
    latest: u64,
    requests: Slab<Record>,
    by_id: HashMap<RequestId, u32>,
    by_key: HashMap<(u32, String), u32>,
    by_age: BTreeMap<u64, u32>,
    by_tenant: BTreeMap<(u32, u64), u32>,
    queues: Names<str, Queue>,
    tenants: Names<[u8], Tenant>,
    /// The number of requests that have not ended.
    live: u64,
    /// The number of requests that run.
    running: u64,
    /// Requests that their tenants' limits hold up, by tenant, queue and age.
    aside: BTreeMap<(u32, u32, u64), u32>,
    pauses: Vec<Pause>,
    /// Requests by the time at which they are stopped.
    deadlines: BTreeSet<(Time, u32)>,
    /// Delayed requests by the time from which they may begin, and by age.
    delayed: BTreeSet<(Time, u64, u32)>,
    /// Ended requests by the time at which they are forgotten.
    forgets: BTreeSet<(Time, u32)>,
    webhooks: BTreeSet<(Time, u32)>,
    segments: Segments,
    writes: Vec<Write>,
    undo: Vec<Undo>,
    news: News,
}

/// A change that can be undone, as long as no other change of its request has followed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Undo {
    /// The request was stored.
    Enqueue(RequestId),
    /// A piece was added to its response.
    Append(RequestId),
}

/// The requests of a queue.
struct Queue {
    order: Order,
    levels: Vec<Level>,
}

/// The requests of one level of a queue.
#[derive(Default)]
struct Level {
    /// The requests that wait, by age.
    queued: BTreeSet<u64>,
    running: u64,
}

/// The count of one tenant's requests.
#[derive(Default)]
struct Tenant {
    /// The number of its requests that have not ended.
    live: u64,
    /// The number of its requests that run.
    running: u64,
}

/// The number of known requests of each segment.
struct Segments {
    length: Duration,
    requests: BTreeMap<u32, u64>,
}

/// The changes that callers wait for.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Requests that have ended, were lost to their workers, or have a new piece of their response.
    pub(crate) requests: Vec<RequestId>,
    /// `true` if the backlog may have changed.
    pub(crate) has_backlog: bool,
}

impl State {
    /// Returns a state without requests. `opening`: a number that no other opening of the store has.
    pub(crate) fn new(config: StoreConfig, opening: u64) -> Self {
        let segments = Segments::new(config.retention);
        Self {
            rules: Rules::new(&config.order),
            config,
            opening,
            starts: 0,
            latest: 0,
            requests: Slab::new(),
            by_id: HashMap::new(),
            by_key: HashMap::new(),
            by_age: BTreeMap::new(),
            by_tenant: BTreeMap::new(),
            queues: Names::new(),
            tenants: Names::new(),
            live: 0,
            running: 0,
            aside: BTreeMap::new(),
            pauses: Vec::new(),
            deadlines: BTreeSet::new(),
            delayed: BTreeSet::new(),
            forgets: BTreeSet::new(),
            webhooks: BTreeSet::new(),
            segments,
            writes: Vec::new(),
            undo: Vec::new(),
            news: News::default(),
        }
    }

    /// Returns what is to be written down, in this order.
    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    /// Adds something that is to be written down, beside what the state has to say.
    pub(crate) fn write(&mut self, write: Write) {
        self.writes.push(write);
    }

    /// Returns the changes since the last call that need space.
    pub(crate) fn take_undo(&mut self) -> Vec<Undo> {
        std::mem::take(&mut self.undo)
    }

    /// Undoes changes that could not be written down.
    pub(crate) fn undo(&mut self, changes: Vec<Undo>, now: Time) {
        for change in changes.into_iter().rev() {
            match change {
                Undo::Enqueue(id) => self.undo_enqueue(id, now),
                Undo::Append(id) => self.undo_append(id),
            }
        }
    }

    /// Returns what has changed.
    pub(crate) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// Brings the state up to `now`: ends requests whose time is up, lets delayed ones begin, forgets ended ones.
    pub(crate) fn advance(&mut self, now: Time) {
        self.end_pauses(now);
        while let Some(&(deadline, slot)) = self.deadlines.first()
            && deadline <= now
        {
            self.expire(slot, now);
        }
        while let Some(&(begin, _, slot)) = self.delayed.first()
            && begin <= now
        {
            self.leave_order(slot);
            self.enter_order(slot, now);
        }
        while let Some(&(until, slot)) = self.forgets.first()
            && until <= now
        {
            self.forget(slot, now);
        }
    }

    /// Returns the time at which to call [`advance`](Self::advance) next.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let events = [
            self.deadlines.first().map(|&(time, _)| time),
            self.delayed.first().map(|&(time, _, _)| time),
            self.forgets.first().map(|&(time, _)| time),
            self.next_end_of_pause(),
        ];
        events.into_iter().flatten().min()
    }

    fn slot(&self, id: RequestId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    fn record(&self, slot: u32) -> &Record {
        &self.requests[slot as usize]
    }

    fn record_mut(&mut self, slot: u32) -> &mut Record {
        &mut self.requests[slot as usize]
    }

    fn level_mut(&mut self, slot: u32) -> &mut Level {
        let record = &self.requests[slot as usize];
        &mut self.queues[record.queue].levels[usize::from(record.level)]
    }

    fn drop_empty_segments(&mut self, now: Time) {
        let empty = self.segments.take_empty(now);
        self.writes
            .extend(empty.into_iter().map(Write::DropSegment));
    }

    /// Puts a request where it waits: into the order of its queue, or beside it until it may begin.
    fn enter_order(&mut self, slot: u32, now: Time) {
        self.news.has_backlog = true;
        let record = &self.requests[slot as usize];
        let (seq, begin) = (record.seq, record.not_before.filter(|&begin| begin > now));
        let phase = if let Some(begin) = begin {
            self.delayed.insert((begin, seq, slot));
            Phase::Delayed
        } else if self.is_held(record.tenant) {
            Phase::Held
        } else {
            let place = Place {
                level: record.level,
                tenant: self.tenants.name(record.tenant),
                cost: record.cost,
                arrival: record.arrival(),
                deadline: record.deadline.map(Time::nanos),
            };
            Phase::Ready(self.queues[record.queue].order.push(slot, &place))
        };
        self.record_mut(slot).phase = phase;
        self.level_mut(slot).queued.insert(seq);
    }

    /// Takes a request out of where it waits.
    fn leave_order(&mut self, slot: u32) {
        let record = &self.requests[slot as usize];
        match record.phase {
            Phase::Ready(id) => self.queues[record.queue].order.remove(id),
            Phase::Delayed => {
                let begin = record.not_before.unwrap_or(record.created);
                self.delayed.remove(&(begin, record.seq, slot));
            }
            Phase::Aside => {
                let key = (record.tenant, record.queue, record.seq);
                self.aside.remove(&key);
            }
            Phase::Outside | Phase::Held | Phase::Running { .. } | Phase::Ended(_) => {}
        }
        self.left_order(slot);
    }

    /// Notes that a request waits no more.
    fn left_order(&mut self, slot: u32) {
        self.news.has_backlog = true;
        let seq = self.record(slot).seq;
        self.level_mut(slot).queued.remove(&seq);
        self.record_mut(slot).phase = Phase::Outside;
    }

    /// Writes down what has changed of a request.
    fn write_state(&mut self, slot: u32) {
        let record = self.record(slot);
        let extra = record.extra.as_deref();
        let row = StateRow {
            status: record.status().as_str().to_owned(),
            attempts: record.attempts,
            started: record.started,
            ended: record.ended,
            deadline: record.deadline,
            not_before: record.not_before,
            reason: record.reason().map(str::to_owned),
            response_status: record.response_status,
            tries: extra.map_or(0, |extra| extra.tries),
            webhook_due: extra.and_then(|extra| extra.webhook_due),
            chunks: extra.map_or(0, |extra| extra.chunks),
            dropped: extra.map_or(0, |extra| extra.dropped),
        };
        let (segment, id) = (record.segment, record.id);
        let row = Box::new(row);
        self.writes.push(Write::State { segment, id, row });
    }
}

impl Queue {
    fn new(rules: &Rules) -> Self {
        let levels = (0..=rules.lowest()).map(|_| Level::default());
        Self {
            order: Order::new(rules),
            levels: levels.collect(),
        }
    }
}

impl Segments {
    /// The longest time that one segment stands for.
    const LONGEST: Duration = Duration::from_secs(60 * 60);
    /// The shortest, so that a short retention does not make many of them.
    const SHORTEST: Duration = Duration::from_secs(60);

    fn new(retention: Duration) -> Self {
        Self {
            length: (retention / 8).clamp(Self::SHORTEST, Self::LONGEST),
            requests: BTreeMap::new(),
        }
    }

    /// Returns the segment of requests that are stored at this time.
    fn at(&self, time: Time) -> u32 {
        let length = u64::try_from(self.length.as_nanos()).unwrap_or(u64::MAX);
        u32::try_from(time.nanos() / length).unwrap_or(u32::MAX)
    }

    fn add(&mut self, segment: u32) {
        *self.requests.entry(segment).or_default() += 1;
    }

    /// Notes that one request of a segment is known no more.
    fn remove(&mut self, segment: u32) {
        if let Some(requests) = self.requests.get_mut(&segment) {
            *requests -= 1;
        }
    }

    /// Returns the segments that are empty and stay so.
    fn take_empty(&mut self, now: Time) -> Vec<u32> {
        let current = self.at(now);
        let empty = self.requests.range(..current);
        let empty: Vec<u32> = empty
            .filter(|(_, requests)| **requests == 0)
            .map(|(segment, _)| *segment)
            .collect();
        for segment in &empty {
            self.requests.remove(segment);
        }
        empty
    }
}
