//! A request in memory.

use std::time::Duration;

use crate::admit::WaiterId;
use crate::durable::{RequestId, RequestStatus};

use super::super::time::Time;

/// A request, without its body and its response.
pub(super) struct Record {
    pub(super) id: RequestId,
    /// Its number: the time at which it was stored in nanoseconds, made unique.
    pub(super) seq: u64,
    pub(super) created: Time,
    pub(super) deadline: Option<Time>,
    pub(super) not_before: Option<Time>,
    pub(super) started: Option<Time>,
    pub(super) ended: Option<Time>,
    pub(super) phase: Phase,
    pub(super) extra: Option<Box<Extra>>,
    pub(super) queue: u32,
    pub(super) tenant: u32,
    pub(super) cost: u32,
    pub(super) attempts: u32,
    pub(super) segment: u32,
    pub(super) response_status: Option<u16>,
    pub(super) level: u8,
    pub(super) is_listed: bool,
}

/// Fields that few requests have, boxed so that the others need no memory for them.
#[derive(Debug, Default)]
pub(super) struct Extra {
    pub(super) key: Option<(String, [u8; 32])>,
    pub(super) reason: Option<String>,
    pub(super) webhook: Option<String>,
    /// The number of times that the webhook was told.
    pub(super) tries: u32,
    /// The time at which the webhook is told; `None` if there is nothing to tell.
    pub(super) webhook_due: Option<Time>,
    /// The number of the response's last piece.
    pub(super) chunks: u64,
    /// The number of the last piece of attempts before the latest one.
    pub(super) dropped: u64,
}

/// Returns the time at which a request is forgotten: after its retention, and not before its webhook is settled.
pub(super) fn forgotten_at(ended: Time, webhook_due: Option<Time>, retention: Duration) -> Time {
    match webhook_due {
        Some(_) => ended.after(retention.max(LONGEST_WEBHOOK)),
        None => ended.after(retention),
    }
}

/// The time after which an ended request is forgotten though its webhook is due: senders give up an hour earlier.
const LONGEST_WEBHOOK: Duration = Duration::from_secs(25 * 60 * 60);

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
    pub(super) fn status(&self) -> RequestStatus {
        match self.phase {
            Phase::Outside | Phase::Ready(_) | Phase::Delayed | Phase::Held => {
                RequestStatus::Queued
            }
            Phase::Running {
                is_called: false, ..
            } => RequestStatus::Starting,
            Phase::Running { .. } => RequestStatus::Processing,
            Phase::Ended(status) => status,
        }
    }

    pub(super) fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Returns the time at which it is forgotten, if it has ended.
    pub(super) fn forgotten_at(&self, retention: Duration) -> Option<Time> {
        let due = self.extra.as_ref().and_then(|extra| extra.webhook_due);
        Some(forgotten_at(self.ended?, due, retention))
    }

    pub(super) fn reason(&self) -> Option<&str> {
        self.extra.as_ref()?.reason.as_deref()
    }

    /// Returns the time from which on it counts as waiting, in nanoseconds: a request that comes back keeps its place.
    pub(super) fn arrival(&self) -> u64 {
        match self.not_before {
            Some(begin) if self.attempts == 0 => self.seq.max(begin.nanos()),
            _ => self.seq,
        }
    }
}
