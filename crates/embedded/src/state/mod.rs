//! The state of a store, as a state machine that runs no task and gets the time as an argument.
//!
//! A method brings the state up to date and returns the answer. It leaves two things for the caller: the rows to [write
//! to the disk](State::take_writes), and the callers to [wake up](State::take_news). Once the end of a request is on
//! the disk, the request leaves the state and is looked up in the [archive](Archive). Bodies and responses are never in
//! the state.
//!
//! - Data: `record.rs` holds a request, `by_id.rs` finds requests by id, and `names.rs` numbers queues and tenants.
//!   `order.rs` decides which request of a queue is next, and `segments.rs` decides when data is dropped from the disk.
//! - Operations: `enqueue.rs`, `run.rs`, `limits.rs`, `end.rs`, `pauses.rs` and `webhooks.rs`. Reports about requests
//!   and queues are in `report.rs` and `totals.rs`.
//! - Recovery: `recover.rs` rebuilds the state from the rows on the disk.

mod by_id;
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
mod segments;
mod totals;
mod webhooks;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use slab::Slab;

use self::by_id::ById;
use self::names::Names;
use self::order::{Order, Place, Rules};
use self::record::{Phase, Record};
use self::segments::Segments;
use self::totals::Totals;
use super::archive::Archive;
use super::keys::Name;
use super::rows::{Retention, StateRow, Stored, forgotten_at};
use super::time::Time;
use super::write::{MOST_MOVED, Write};
use tower_triage_durable::{Pause, RequestId, RequestStatus, StoreConfig, StoreError};

pub(crate) use self::recover::Recovery;
pub(crate) use self::report::Pieces;
pub(crate) use self::run::Started;

/// The time after which a segment is looked at again, whose bytes could not be dropped.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The waiting and running requests of a store, their order, and the events that are due.
pub(crate) struct State {
    config: StoreConfig,
    rules: Rules,
    /// A random number of this opening of the store. It is part of each lease, so leases of earlier openings are
    /// rejected.
    opening: u64,
    /// The number of starts so far.
    starts: u64,
    /// The number of the latest request.
    latest: u64,
    requests: Slab<Record>,
    by_id: ById,
    by_key: HashMap<Name, u32>,
    /// Listed requests that have not ended, by tenant and age.
    listed: BTreeMap<(u32, u64), u32>,
    /// Requests that are with workers, by age.
    running: BTreeMap<u64, u32>,
    queues: Names<str, Queue>,
    tenants: Names<[u8], Tenant>,
    /// The number of requests that have not ended.
    live: u64,
    /// Requests that their tenants' limits hold up, by tenant, queue and age.
    aside: BTreeMap<(u32, u32, u64), u32>,
    pauses: Vec<Pause>,
    /// Requests by their deadline, at which they are ended.
    deadlines: BTreeSet<(Time, u32)>,
    /// Delayed requests by the time from which they may start, and then by age.
    delayed: BTreeSet<(Time, u64, u32)>,
    /// Ended requests that are still in memory, by the time at which they are forgotten.
    forgets: BTreeSet<(Time, u32)>,
    /// Requests that have ended since the last call of [`take_ended`](State::take_ended).
    ended: Vec<RequestId>,
    webhooks: BTreeSet<(Time, u32)>,
    segments: Segments,
    totals: Totals,
    writes: Vec<Write>,
    undo: Vec<Undo>,
    news: News,
}

/// A change that can be undone, as long as its request has not changed again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Undo {
    /// A request that was stored.
    Enqueue(RequestId),
    /// A piece of this many bytes that was added to the response of a request.
    Append(RequestId, u64),
}

/// The order and the levels of one queue.
struct Queue {
    order: Order,
    levels: Vec<Level>,
}

/// The requests of one level of a queue.
#[derive(Default)]
struct Level {
    /// The requests that may start, by the time since which they wait.
    queued: BTreeSet<(u64, u32)>,
    /// The number of requests that are still delayed.
    delayed: u64,
    running: u64,
}

/// The name and the request counts of one tenant.
struct Tenant {
    /// The name of the tenant in the form that the queues use.
    name: tower_triage::admit::Tenant,
    /// The number of the tenant's requests that have not ended.
    live: u64,
    /// The number of the tenant's requests that run.
    running: u64,
}

/// Changes that callers wait for.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Requests that have ended, were lost to their workers, or have a new piece of their response.
    pub(crate) requests: Vec<RequestId>,
    /// `true` if the backlog may have changed.
    pub(crate) has_backlog: bool,
}

impl State {
    /// Returns a state without requests. `opening` is a number that is unique to this opening of the store.
    pub(crate) fn new(config: StoreConfig, opening: u64) -> Self {
        let segments = Segments::new(config.retention);
        Self {
            rules: Rules::new(&config.order),
            config,
            opening,
            starts: 0,
            latest: 0,
            requests: Slab::new(),
            by_id: ById::default(),
            by_key: HashMap::new(),
            listed: BTreeMap::new(),
            running: BTreeMap::new(),
            queues: Names::new(),
            tenants: Names::new(),
            live: 0,
            aside: BTreeMap::new(),
            pauses: Vec::new(),
            deadlines: BTreeSet::new(),
            delayed: BTreeSet::new(),
            forgets: BTreeSet::new(),
            ended: Vec::new(),
            webhooks: BTreeSet::new(),
            segments,
            totals: Totals::default(),
            writes: Vec::new(),
            undo: Vec::new(),
            news: News::default(),
        }
    }

    /// Returns the rows to write to the disk since the last call, in the order of the changes.
    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    /// Adds a row to write that belongs to the caller and not to the state, such as a value.
    pub(crate) fn write(&mut self, write: Write) {
        self.writes.push(write);
    }

    /// Returns the changes since the last call that need disk space, so that they can be undone.
    pub(crate) fn take_undo(&mut self) -> Vec<Undo> {
        std::mem::take(&mut self.undo)
    }

    /// Undoes changes that could not be written to the disk, the latest first.
    pub(crate) fn undo(&mut self, changes: Vec<Undo>) {
        for change in changes.into_iter().rev() {
            match change {
                Undo::Enqueue(id) => self.undo_enqueue(id),
                Undo::Append(id, bytes) => self.undo_append(id, bytes),
            }
        }
    }

    /// Returns the requests that have ended since the last call. Once their end is on the disk, the caller can
    /// [release](Self::release_ended) them.
    pub(crate) fn take_ended(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.ended)
    }

    /// Releases the memory of ended requests, once their end is on the disk. A request with a due webhook stays in
    /// memory.
    pub(crate) fn release_ended(&mut self, ended: &[RequestId]) {
        for &id in ended {
            if let Some(slot) = self.slot(id)
                && self.record(slot).has_ended()
                && self.record(slot).extra().webhook_due.is_none()
            {
                self.remove(slot);
            }
        }
    }

    /// Returns the changes since the last call that callers wait for.
    pub(crate) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// Brings the state up to `now`: ends requests at their deadline, lets delayed ones start, and drops forgotten
    /// ones.
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
            self.remove(slot);
        }
        self.segments.advance(now, self.latest, &mut self.writes);
        for segment in self.segments.take_held_up(now) {
            self.drop_bytes(segment, now);
        }
    }

    /// Drops the bodies and responses of the forgotten requests of a segment, in which others still wait. Puts it off while
    /// one of these runs or has ended, because then there is more to keep than its body.
    fn drop_bytes(&mut self, segment: u32, now: Time) {
        let records = self.requests.iter().map(|(_, record)| record);
        let held: Vec<_> = records.filter(|record| record.segment == segment).collect();
        if held
            .iter()
            .any(|record| record.status() != RequestStatus::Queued)
        {
            self.segments.hold_up_until(segment, now.after(LOOK_AGAIN));
            return;
        }
        let bytes: u64 = held.iter().map(|record| record.body_bytes).sum();
        if bytes > MOST_MOVED {
            return; // the segment is dropped with its last request
        }
        let kept = held.iter().map(|record| record.seq).collect();
        let bytes = |record: &&Record| (self.tenants.name(record.tenant), record.body_bytes);
        self.segments.keep_bytes(segment, held.iter().map(bytes));
        self.writes.push(Write::DropBytes { segment, kept });
        // Pieces of earlier attempts are dropped, too.
        let of_pieces = |(_, record): &(usize, &Record)| {
            record.segment == segment && record.extra().response_bytes > 0
        };
        let slots = self.requests.iter().filter(of_pieces);
        let slots: Vec<u32> = slots.map(|(slot, _)| slot as u32).collect();
        for slot in slots {
            self.record_mut(slot).extra_mut().response_bytes = 0;
            self.write_state(slot);
        }
    }

    /// Returns the time at which to call [`advance`](Self::advance) next.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let events = [
            self.deadlines.first().map(|&(time, _)| time),
            self.delayed.first().map(|&(time, _, _)| time),
            self.forgets.first().map(|&(time, _)| time),
            self.segments.next_event(),
            self.next_end_of_pause(),
        ];
        events.into_iter().flatten().min()
    }

    fn slot(&self, id: RequestId) -> Option<u32> {
        self.by_id.get(&self.requests, id)
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

    /// Returns the time for which ended requests are kept, together with the current time.
    pub(crate) fn retention(&self, now: Time) -> Retention {
        let time = self.config.retention;
        Retention { time, now }
    }

    /// Returns the time at which a request is forgotten, or `None` if it has not ended.
    fn forgotten_at(&self, slot: u32) -> Option<Time> {
        let extra = self.record(slot).extra();
        let retention = self.config.retention;
        Some(forgotten_at(extra.ended?, extra.webhook_due, retention))
    }

    /// Returns an ended request from the archive, if it is not yet forgotten.
    fn archived(
        &self,
        archive: Archive<'_>,
        id: RequestId,
        now: Time,
    ) -> Result<Option<Stored>, StoreError> {
        let retention = self.retention(now);
        let found = archive.by_id(id)?;
        Ok(found.filter(|found| found.is_kept(retention)))
    }

    /// Puts a request where it waits: into its queue, or beside it until its delay or its tenant's pause is over.
    fn enter_order(&mut self, slot: u32, now: Time) {
        self.news.has_backlog = true;
        let record = &self.requests[slot as usize];
        let begin = record.extra().not_before.filter(|&begin| begin > now);
        let seq = record.seq;
        let phase = if let Some(begin) = begin {
            self.delayed.insert((begin, seq, slot));
            Phase::Delayed
        } else if self.is_held(record.tenant) {
            Phase::Held
        } else {
            let place = Place {
                level: record.level,
                tenant: &self.tenants[record.tenant].name,
                cost: record.cost,
                arrival: record.arrival(),
                deadline: record.deadline.map(Time::nanos),
            };
            Phase::Ready(self.queues[record.queue].order.push(slot, &place))
        };
        self.waits(slot, phase);
    }

    /// Records the place where a request waits, and counts the request at its level.
    fn waits(&mut self, slot: u32, phase: Phase) {
        let is_delayed = phase == Phase::Delayed;
        self.record_mut(slot).phase = phase;
        let arrival = self.record(slot).arrival();
        let level = self.level_mut(slot);
        match is_delayed {
            true => level.delayed += 1,
            false => drop(level.queued.insert((arrival, slot))),
        }
    }

    /// Takes a request out of the place where it waits.
    fn leave_order(&mut self, slot: u32) {
        let record = &self.requests[slot as usize];
        match record.phase {
            Phase::Ready(id) => self.queues[record.queue].order.remove(id),
            Phase::Delayed => {
                let begin = record.extra().not_before.unwrap_or(record.created());
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

    /// Records that a request has stopped waiting. The caller has already taken it out of its queue.
    fn left_order(&mut self, slot: u32) {
        self.news.has_backlog = true;
        let record = self.record(slot);
        let (is_delayed, arrival) = (record.phase == Phase::Delayed, record.arrival());
        let level = self.level_mut(slot);
        match is_delayed {
            true => level.delayed -= 1,
            false => drop(level.queued.remove(&(arrival, slot))),
        }
        self.record_mut(slot).phase = Phase::Outside;
    }

    /// Adds a write of all fields of a request that can change.
    fn write_state(&mut self, slot: u32) {
        let record = self.record(slot);
        let extra = record.extra();
        let row = StateRow {
            status: record.status().as_str().to_owned(),
            attempts: extra.attempts,
            started: extra.started,
            ended: extra.ended,
            deadline: record.deadline,
            not_before: extra.not_before,
            reason: extra.reason.clone(),
            response_status: extra.response_status,
            tries: extra.tries,
            retries: extra.retries,
            webhook_due: extra.webhook_due,
            chunks: extra.chunks,
            dropped: extra.dropped,
            response_bytes: extra.response_bytes,
        };
        let is_in_lists = record.has_ended() && record.is_listed;
        let tenant = || self.tenants.name(record.tenant).to_vec();
        let write = Write::State {
            segment: record.segment,
            seq: record.seq,
            row: Box::new(row),
            listed: is_in_lists.then(tenant),
        };
        self.writes.push(write);
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
