//! The order in which the requests of one queue start.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tower_triage::admit::{Priority, Tenant, Ticket, WaitQueue, WaiterId};
use tower_triage::{Discipline, WaitingRoomConfig};

/// The order of the requests of one queue, by the crate's own wait queue. Its size limits and timeouts are switched
/// off.
pub(super) struct Order {
    queue: WaitQueue<(), u32>,
    rules: Rules,
    /// The latest arrival so far. A request with an earlier arrival is inserted at the position that its arrival
    /// demands.
    latest: u64,
    /// The number of requests that came or went so far.
    changes: usize,
    positions: RefCell<Positions>,
}

/// A cache of the positions of all requests at some earlier change. It exists because finding one position takes as
/// long as finding all of them.
#[derive(Default)]
struct Positions {
    /// Pairs of slot and position, sorted by slot.
    by_slot: Vec<(u32, u32)>,
    changes: usize,
    /// The number of requests that were taken since.
    taken: u32,
    /// The number of the latest request at that time.
    latest: u64,
}

/// The settings that all queues of a store have in common.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    config: WaitingRoomConfig,
    /// The instant that stands for 1970. Only differences from it matter.
    origin: Instant,
}

/// The properties of a request that decide on its position.
pub(super) struct Place<'a> {
    pub(super) level: u8,
    pub(super) tenant: &'a Tenant,
    pub(super) cost: u32,
    /// The time from which the request may start, in nanoseconds since 1970.
    pub(super) arrival: u64,
    /// The time at which the request is ended, in nanoseconds since 1970.
    pub(super) deadline: Option<u64>,
}

impl Rules {
    pub(super) fn new(config: &WaitingRoomConfig) -> Self {
        let mut config = config
            .clone()
            .max_size(usize::MAX)
            .max_size_per_tenant(None)
            .max_concurrent_per_tenant(None)
            .max_wait(None)
            .promote_after(None);
        config.tenant_limits.clear();
        Self {
            config,
            origin: Instant::now(),
        }
    }

    /// Returns the index of the lowest level.
    pub(super) fn lowest(&self) -> u8 {
        u8::try_from(self.config.levels.count().saturating_sub(1)).unwrap_or(u8::MAX)
    }

    pub(super) fn level_name(&self, level: u8) -> String {
        self.config.levels.name(Priority(level)).to_owned()
    }

    /// Returns the instant for a time in nanoseconds since 1970, or `None` if an `Instant` can't represent it.
    fn instant(&self, nanos: u64) -> Option<Instant> {
        self.origin.checked_add(Duration::from_nanos(nanos))
    }
}

impl Order {
    /// The largest number of requests for which positions are exact.
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
            // Tenants matter in fair queueing only, so other disciplines need not store a name with each request.
            Discipline::Fair => {
                ticket = ticket.tenant(place.tenant.clone());
            }
            // The deadline is moved after the arrival, because the wait queue rejects requests after their deadline.
            Discipline::Deadline => {
                let end = place.deadline.map(|end| end.max(place.arrival + 1));
                ticket.deadline = end.and_then(|end| self.rules.instant(end));
            }
            _ => {}
        }
        // A request that came back keeps its age, and goes before the requests that arrived since.
        if place.arrival < self.latest {
            ticket = ticket.requeued();
        }
        self.latest = self.latest.max(place.arrival);
        match self.queue.push(ticket, (), arrival, |_| slot) {
            Ok(pushed) => pushed.id,
            // This is unreachable because the queue has no bound, is never closed, and its requests arrive before their
            // deadlines.
            Err(reason) => unreachable!("an order without bounds refused a request: {reason:?}"),
        }
    }

    /// Returns the most urgent request.
    pub(super) fn peek(&self) -> Option<u32> {
        self.queue.peek().map(|id| *self.queue.get(id))
    }

    /// Takes the most urgent request, which is about to run.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let next = self.queue.peek()?;
        self.changes += 1;
        self.positions.get_mut().taken += 1;
        self.queue.pop(next)
    }

    /// Removes a request that will not run now.
    pub(super) fn remove(&mut self, id: WaiterId) {
        self.changes += 1;
        self.queue.remove(id);
    }

    /// Returns the position of a request in the queue, where 1 is next. `seq` is the number of the request, and
    /// `latest` is the number of the latest request of the store. Positions are exact among up to
    /// [`EXACT`](Self::EXACT) requests. In longer queues they may be some changes old, but requests that were taken
    /// since are already subtracted.
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
            // A later request may have reused the slot of a request that has left since.
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
