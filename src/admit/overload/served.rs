//! A request that got a slot after it waited, until its answer begins or its caller gives up.

use std::time::Instant;

use crate::admit::nanos::{Epoch, NEVER, Nanos};
use crate::admit::waiters::WaiterMeta;
use crate::admit::{Tenant, Ticket};

/// A request that is served, as far as a waiting room learns from it. Made by
/// [`WaitingRoom::served`](crate::admit::WaitingRoom::served).
#[derive(Debug)]
pub struct Served {
    /// Boxed, because most requests name none.
    tenant: Option<Box<Tenant>>,
    pub(crate) arrival: Nanos,
    pub(crate) started: Nanos,
    /// Identifies its lane in the service times.
    pub(crate) lane_hash: u32,
    /// Whether its caller named a deadline.
    pub(crate) has_deadline: bool,
}

static NO_TENANT: Tenant = Tenant::NONE;

impl Served {
    pub(crate) fn new(ticket: &Ticket, lane_hash: u32, epoch: Epoch, now: Instant) -> Self {
        let tenant = Some(&ticket.tenant).filter(|tenant| !tenant.as_bytes().is_empty());
        let started = epoch.nanos(now);
        Self {
            tenant: tenant.cloned().map(Box::new),
            arrival: ticket
                .arrival
                .map_or(started, |arrival| epoch.nanos(arrival)),
            started,
            lane_hash,
            has_deadline: ticket.deadline.is_some(),
        }
    }

    /// A waiter that was granted a slot, and takes it at `started`.
    pub(crate) fn from_waiter(meta: WaiterMeta, started: Nanos) -> Self {
        Self {
            arrival: meta.limits.arrival,
            has_deadline: meta.limits.deadline < NEVER,
            lane_hash: meta.lane_hash,
            tenant: meta.into_tenant(),
            started,
        }
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        self.tenant.as_deref().unwrap_or(&NO_TENANT)
    }
}
