//! A request in memory.

use super::by_id::NONE;
use crate::admit::WaiterId;
use crate::durable::{RequestId, RequestStatus};

use super::super::rows::KeyRow;
use super::super::time::Time;

/// A request, without its body and its response.
pub(super) struct Record {
    pub(super) id: RequestId,
    /// Its number: the time at which it was stored in nanoseconds, made unique.
    pub(super) seq: u64,
    pub(super) deadline: Option<Time>,
    pub(super) phase: Phase,
    extra: Option<Box<Extra>>,
    /// The slot of the next record whose name has the same hash.
    pub(super) next: u32,
    pub(super) queue: u32,
    pub(super) tenant: u32,
    pub(super) cost: u32,
    pub(super) segment: u32,
    pub(super) level: u8,
    pub(super) is_listed: bool,
}

/// Fields that few of the requests that wait have, boxed so that the others need no memory for them.
#[derive(Debug, Default)]
pub(super) struct Extra {
    pub(super) attempts: u32,
    /// The number of times that the webhook was told.
    pub(super) tries: u32,
    pub(super) not_before: Option<Time>,
    pub(super) started: Option<Time>,
    pub(super) ended: Option<Time>,
    /// The time at which the webhook is told; `None` if there is nothing to tell.
    pub(super) webhook_due: Option<Time>,
    /// The number of the response's last piece.
    pub(super) chunks: u64,
    /// The number of the last piece of attempts before the latest one.
    pub(super) dropped: u64,
    pub(super) key: Option<KeyRow>,
    pub(super) webhook: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) response_status: Option<u16>,
}

/// The extra fields of a request without any.
static NO_EXTRA: Extra = Extra {
    attempts: 0,
    tries: 0,
    not_before: None,
    started: None,
    ended: None,
    webhook_due: None,
    chunks: 0,
    dropped: 0,
    key: None,
    webhook: None,
    reason: None,
    response_status: None,
};

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is in no order yet, or no more.
    Outside,
    /// It may begin, and is in the order of its queue.
    Ready(WaiterId),
    /// It may begin later.
    Delayed,
    /// Its tenant is paused.
    Held,
    /// As many requests of its tenant run as may, or did when it was its turn.
    Aside,
    /// A worker has it.
    Running {
        /// The number of this start among all.
        start: u64,
        /// `true` once the inner service was called.
        is_called: bool,
    },
    /// It has ended.
    Ended(RequestStatus),
}

impl Record {
    /// Returns a request of the first queue and tenant that is in no order yet.
    pub(super) fn new(id: RequestId, seq: u64) -> Self {
        Self {
            id,
            seq,
            deadline: None,
            phase: Phase::Outside,
            extra: None,
            next: NONE,
            queue: 0,
            tenant: 0,
            cost: 1,
            segment: 0,
            level: 0,
            is_listed: true,
        }
    }

    pub(super) fn status(&self) -> RequestStatus {
        match self.phase {
            Phase::Outside | Phase::Ready(_) | Phase::Delayed | Phase::Held | Phase::Aside => {
                RequestStatus::Queued
            }
            Phase::Running {
                is_called: false, ..
            } => RequestStatus::Starting,
            Phase::Running { .. } => RequestStatus::Processing,
            Phase::Ended(status) => status,
        }
    }

    pub(super) fn extra(&self) -> &Extra {
        self.extra.as_deref().unwrap_or(&NO_EXTRA)
    }

    pub(super) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Returns the time at which it was stored.
    pub(super) fn created(&self) -> Time {
        Time::of_seq(self.seq)
    }

    /// Returns the time from which on it counts as waiting, in nanoseconds: a request that comes back keeps its place.
    pub(super) fn arrival(&self) -> u64 {
        match self.extra().not_before {
            Some(begin) if self.extra().attempts == 0 => self.seq.max(begin.nanos()),
            _ => self.seq,
        }
    }
}
