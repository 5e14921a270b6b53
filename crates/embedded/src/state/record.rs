//! A request in memory.

use super::by_id::NONE;
use tower_triage::admit::WaiterId;
use tower_triage_durable::{RequestId, RequestStatus};

use super::super::rows::KeyRow;
use super::super::time::Time;

/// A request, without its body and its response.
pub(super) struct Record {
    pub(super) id: RequestId,
    /// The number of the request: the time at which it was stored, in nanoseconds since 1970, made unique.
    pub(super) seq: u64,
    pub(super) deadline: Option<Time>,
    pub(super) phase: Phase,
    extra: Option<Box<Extra>>,
    /// The slot of the next record with the same hash of its id.
    pub(super) next: u32,
    pub(super) queue: u32,
    pub(super) tenant: u32,
    pub(super) cost: u32,
    pub(super) segment: u32,
    /// The size of the body in bytes.
    pub(super) body_bytes: u64,
    pub(super) level: u8,
    pub(super) is_listed: bool,
}

/// Fields that few of the waiting requests use, boxed so that the other requests need no memory for them.
#[derive(Debug, Default)]
pub(super) struct Extra {
    pub(super) attempts: u32,
    /// The number of times that the webhook was called.
    pub(super) tries: u32,
    /// The number of times that an operator has retried the request.
    pub(super) retries: u32,
    pub(super) not_before: Option<Time>,
    pub(super) started: Option<Time>,
    pub(super) ended: Option<Time>,
    /// The time at which the webhook is called next. `None` if there is nothing to send.
    pub(super) webhook_due: Option<Time>,
    /// The number of the response's last piece.
    pub(super) chunks: u64,
    /// The number of the last piece of all attempts before the latest one.
    pub(super) dropped: u64,
    pub(super) key: Option<KeyRow>,
    pub(super) webhook: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) response_status: Option<u16>,
    /// The size in bytes of the responses and their pieces.
    pub(super) response_bytes: u64,
}

/// The extra fields of a request that uses none of them.
static NO_EXTRA: Extra = Extra {
    attempts: 0,
    tries: 0,
    retries: 0,
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
    response_bytes: 0,
};

/// The phase of a request in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The request has left the waiting requests, or has not joined them yet. This phase lasts only during an
    /// operation.
    Outside,
    /// The request may start, and is in the order of its queue.
    Ready(WaiterId),
    /// The request waits for its delay to pass.
    Delayed,
    /// The request waits for the end of its tenant's pause.
    Held,
    /// The request was set aside when its turn came, because its tenant already ran as many requests as it may.
    Aside,
    /// The request is with a worker.
    Running {
        /// The number of this start among all starts of the store.
        start: u64,
        /// `true` once the inner service was called.
        is_called: bool,
    },
    /// The request has ended with this status.
    Ended(RequestStatus),
}

impl Record {
    /// Returns the record of a request of queue 0 and tenant 0, which is in no order yet.
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
            body_bytes: 0,
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

    /// Returns the time at which the request was stored.
    pub(super) fn created(&self) -> Time {
        Time::of_seq(self.seq)
    }

    /// Returns the time from which on the request counts as waiting, in nanoseconds. Only the delay before the first
    /// attempt counts, so a request that comes back keeps its position.
    pub(super) fn arrival(&self) -> u64 {
        match self.extra().not_before {
            Some(begin) if self.extra().attempts == 0 => self.seq.max(begin.nanos()),
            _ => self.seq,
        }
    }
}
