//! The order of the requests of one queue that may begin.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::admit::{Priority, Tenant, Ticket, WaitQueue, WaiterId};
use crate::{Discipline, WaitingRoomConfig};

/// The order of the requests of one queue: the crate's own, without bounds and times.
pub(super) struct Order {
    queue: WaitQueue<(), u32>,
    rules: Rules,
    /// The latest arrival so far. One that comes before it is put where its arrival belongs.
    latest: u64,
    /// The number of requests that came or went so far.
    changes: usize,
    positions: RefCell<Positions>,
}

/// The positions of all requests, as they were some changes ago: to find one takes as long as to find all.
#[derive(Default)]
struct Positions {
    /// Slots with their positions, by slot.
    by_slot: Vec<(u32, u32)>,
    changes: usize,
    /// The number of requests that were taken since.
    taken: u32,
    /// The number of the latest request then.
    latest: u64,
}

/// The settings that all orders of a store have in common.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    config: WaitingRoomConfig,
    /// The instant that stands for 1970. Only differences count.
    origin: Instant,
}

/// The properties of a request that decide on its place.
pub(super) struct Place<'a> {
    pub(super) level: u8,
    pub(super) tenant: &'a Tenant,
    pub(super) cost: u32,
    /// The time from which it may begin, in nanoseconds since 1970.
    pub(super) arrival: u64,
    /// The time at which it is stopped, in nanoseconds since 1970.
    pub(super) deadline: Option<u64>,
}

impl Rules {
    pub(super) fn new(config: &WaitingRoomConfig) -> Self {
        let config = config
            .clone()
            .max_size(usize::MAX)
            .max_size_per_tenant(None)
            .max_concurrent_per_tenant(None)
            .max_wait(None)
            .promote_after(None);
        Self {
            config,
            origin: Instant::now(),
        }
    }

    /// Returns the index of the lowest level.
    pub(super) fn lowest(&self) -> u8 {
        u8::try_from(self.config.levels.count().saturating_sub(1)).unwrap_or(u8::MAX)
    }

    /// Returns the instant; `None` for one that no clock reaches.
    fn instant(&self, nanos: u64) -> Option<Instant> {
        self.origin.checked_add(Duration::from_nanos(nanos))
    }
}

impl Order {
    /// The largest number of requests among which positions are exact.
    const EXACT: usize = 1_000;

    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            queue: WaitQueue::new(rules.config.clone(), rules.origin),
            rules: rules.clone(),
            latest: 0,
            changes: 0,
            positions: RefCell::default(),
        }
    }

    pub(super) fn push(&mut self, slot: u32, place: &Place<'_>) -> WaiterId {
        self.changes += 1;
        let arrival = self.rules.instant(place.arrival);
        let arrival = arrival.unwrap_or(self.rules.origin);
        let mut ticket = Ticket::new(Priority(place.level), arrival).cost(place.cost);
        match self.rules.config.discipline {
            // Only here a tenant decides: elsewhere its name need not be kept with each request.
            Discipline::Fair => {
                ticket = ticket.tenant(place.tenant.clone());
            }
            // After the arrival, because the queue takes nothing in whose wait is over.
            Discipline::Deadline => {
                let end = place.deadline.map(|end| end.max(place.arrival + 1));
                ticket.deadline = end.and_then(|end| self.rules.instant(end));
            }
            _ => {}
        }
        if place.arrival < self.latest {
            ticket = ticket.requeued();
        }
        self.latest = self.latest.max(place.arrival);
        match self.queue.push(ticket, (), arrival, |_| slot) {
            Ok(pushed) => pushed.id,
            // It has no bound, is never closed, and no wait in it has ended.
            Err(reason) => unreachable!("an order without bounds refused a request: {reason:?}"),
        }
    }

    /// Returns the most urgent request.
    pub(super) fn peek(&self) -> Option<u32> {
        self.queue.peek().map(|id| *self.queue.get(id))
    }

    /// Takes the most urgent request, to be run.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let next = self.queue.peek()?;
        self.changes += 1;
        self.positions.get_mut().taken += 1;
        self.queue.pop(next)
    }

    /// Takes a request out that is not run.
    pub(super) fn remove(&mut self, id: WaiterId) {
        self.changes += 1;
        self.queue.remove(id);
    }

    /// Returns the position of a request that is in it: 1 is next. `seq` is the request's number, `latest` that of the latest
    /// of all. Exact among up to [`EXACT`](Self::EXACT) requests; among more, as it was some changes ago, less those that
    /// were taken since.
    pub(super) fn position(&self, slot: u32, seq: u64, latest: u64) -> u64 {
        let mut positions = self.positions.borrow_mut();
        let changes = self.changes - positions.changes;
        if changes > 0 && (self.len() <= Self::EXACT || changes > self.len() / 16) {
            *positions = self.positions(latest);
        }
        let found = positions
            .by_slot
            .binary_search_by_key(&slot, |entry| entry.0);
        match found {
            // A later request may be in the slot of one that was there then.
            Ok(nth) if seq <= positions.latest => {
                let (_, position) = positions.by_slot[nth];
                u64::from(position.saturating_sub(positions.taken).max(1))
            }
            _ => self.len() as u64,
        }
    }

    fn positions(&self, latest: u64) -> Positions {
        let order = self.queue.in_order().into_iter();
        let by_slot = order.zip(1..).map(|(id, nth)| (*self.queue.get(id), nth));
        let mut by_slot: Vec<_> = by_slot.collect();
        by_slot.sort_unstable();
        Positions {
            by_slot,
            changes: self.changes,
            taken: 0,
            latest,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
