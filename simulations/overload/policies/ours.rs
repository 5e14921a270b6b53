//! This crate's waiting room, before and after it was bounded by time.
//!
//! It is the room itself, with instants that are a base plus the virtual time. All contact with the room is in this file.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tower_triage::admit::{
    AdmitOutcome, Capacity, ServiceSample, TargetWait, Tenant, WaiterId, WaitingRoom, WakeList,
};
use tower_triage::{Discipline, Priority, SlotPool, Ticket, WaitingRoomConfig};

use super::Setting;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};
use crate::workload::Until;

/// Bounded by number alone: 100 places, 30 s.
pub(crate) fn before(setting: &Setting) -> WaitingRoomConfig {
    WaitingRoomConfig::default()
        .max_size(100)
        .max_wait(Duration::from_secs(30))
        .target_wait(TargetWait::Off)
        .displace(false)
        .discipline(discipline(setting))
}

/// The defaults.
pub(crate) fn after(setting: &Setting) -> WaitingRoomConfig {
    WaitingRoomConfig::default().discipline(discipline(setting))
}

fn discipline(setting: &Setting) -> Discipline {
    match setting.is_fair {
        true => Discipline::Fair,
        false => Discipline::Fifo,
    }
}

pub(crate) struct Ours {
    room: WaitingRoom<SlotPool, RequestId>,
    slots: SlotPool,
    /// Virtual time 0.
    base: Instant,
    tenants: Vec<Tenant>,
    leases: HashMap<RequestId, <SlotPool as Capacity>::Lease>,
    waiting: HashMap<RequestId, WaiterId>,
    until: Until,
    /// Requests that run, if the room is told when their answers begin.
    samples: HashMap<RequestId, ServiceSample>,
}

impl Ours {
    pub(crate) fn new(setting: &Setting, config: WaitingRoomConfig) -> Self {
        let base = Instant::now();
        Self {
            room: WaitingRoom::new(config, base),
            slots: SlotPool::new(setting.slots),
            base,
            tenants: (0..=u8::MAX).map(|n| n.to_string().into()).collect(),
            leases: HashMap::new(),
            waiting: HashMap::new(),
            until: setting.until,
            samples: HashMap::new(),
        }
    }

    fn ticket(&self, arrival: &Arrival, now: Instant) -> Ticket {
        let tenant = self.tenants[usize::from(arrival.tenant)].clone();
        let mut ticket = Ticket::new(Priority(arrival.level), now).tenant(tenant);
        ticket.deadline = arrival.deadline.map(|deadline| self.base + deadline);
        ticket
    }

    /// Passes on what the room decided about waiters.
    fn pass_on(
        &mut self,
        wakes: WakeList<RequestId>,
        now: Duration,
        decisions: &mut Vec<Decision>,
    ) {
        for id in wakes {
            let waiter = self.waiting.remove(&id);
            let outcome = waiter.and_then(|waiter| self.room.take_outcome(waiter));
            match outcome.expect("a waiter that is woken has an outcome") {
                Ok(lease) => self.admit(id, lease, now, decisions),
                Err(_) => decisions.push(Decision::Refuse(id)),
            }
        }
    }

    fn admit(
        &mut self,
        id: RequestId,
        lease: <SlotPool as Capacity>::Lease,
        now: Duration,
        decisions: &mut Vec<Decision>,
    ) {
        // The answer to a request that is only to be started in time begins when it is started.
        if self.until == Until::Answered {
            let sample = self.room.served(&self.slots, &(), self.base + now);
            self.samples.insert(id, sample);
        }
        self.leases.insert(id, lease);
        decisions.push(Decision::Admit(id));
    }
}

impl Policy for Ours {
    fn arrive(&mut self, arrival: Arrival, now: Duration, decisions: &mut Vec<Decision>) {
        let instant = self.base + now;
        let ticket = self.ticket(&arrival, instant);
        let mut wakes = WakeList::new();
        let outcome = self
            .room
            .arrive(&self.slots, ticket, (), instant, &mut wakes);
        match outcome {
            AdmitOutcome::Leased(lease) => self.admit(arrival.id, lease, now, decisions),
            AdmitOutcome::Queued(waiter) => {
                self.waiting.insert(arrival.id, waiter);
                let set = self.room.set_waker(waiter, arrival.id);
                set.expect("a waiter that was just queued waits");
            }
            AdmitOutcome::Rejected(_) => decisions.push(Decision::Refuse(arrival.id)),
        }
        self.pass_on(wakes, now, decisions);
    }

    fn release(
        &mut self,
        id: RequestId,
        ended: Ended,
        now: Duration,
        decisions: &mut Vec<Decision>,
    ) {
        let sample = self.samples.remove(&id);
        if let Some(sample) = sample.filter(|_| ended == Ended::Finished) {
            self.room.on_answered(&sample, self.base + now);
        }
        let lease = self.leases.remove(&id).expect("an admitted request");
        let pool = self.slots.release(lease);
        let mut wakes = WakeList::new();
        self.room
            .on_release(&self.slots, pool, self.base + now, &mut wakes);
        self.pass_on(wakes, now, decisions);
    }

    fn leave(&mut self, id: RequestId, now: Duration, _: &mut Vec<Decision>) {
        if let Some(waiter) = self.waiting.remove(&id) {
            // It waits, so it has no lease.
            self.room.cancel(waiter, self.base + now);
        }
    }

    fn next_timeout(&self) -> Option<Duration> {
        self.room.next_timeout().map(|at| at - self.base)
    }

    fn advance(&mut self, now: Duration, decisions: &mut Vec<Decision>) {
        let mut wakes = WakeList::new();
        let instant = self.base + now;
        if self.room.advance(instant, &mut wakes) {
            self.room
                .on_capacity_grown(&self.slots, instant, &mut wakes);
        }
        self.pass_on(wakes, now, decisions);
    }
}
