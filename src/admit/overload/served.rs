//! A request that got a slot after it waited, until its answer begins or its caller gives up.

use std::time::Instant;

use crate::admit::nanos::{Epoch, Nanos};
use crate::admit::waiters::WaiterMeta;
use crate::admit::{ClientRetry, Tenant, Ticket};

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
    /// See [`teaches_patience`].
    pub(crate) teaches_patience: bool,
}

/// Whether the age of a request says how long its caller waits: not where the caller named a deadline, or was away for a
/// part of that time.
pub(crate) fn teaches_patience(ticket: &Ticket) -> bool {
    ticket.deadline.is_none() && ticket.client_retry != ClientRetry::Kept
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
            teaches_patience: teaches_patience(ticket),
        }
    }

    /// A waiter that was granted a slot, and takes it at `started`.
    pub(crate) fn from_waiter(meta: WaiterMeta, started: Nanos) -> Self {
        Self {
            arrival: meta.limits.arrival,
            teaches_patience: meta.teaches_patience,
            lane_hash: meta.lane_hash,
            tenant: meta.into_tenant(),
            started,
        }
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        self.tenant.as_deref().unwrap_or(&NO_TENANT)
    }
}
