//! Descriptions of stored requests, as a store returns them.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::RequestId;

/// The state of a stored request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RequestStatus {
    /// It waits for a worker, or for the time from which it may begin.
    Queued,
    /// A worker has it, and has not called the inner service yet.
    Starting,
    /// The inner service works on it.
    Processing,
    /// It ended with a response whose status is below 400.
    Succeeded,
    /// It ended with another response, or its worker was lost.
    Failed,
    /// It was cancelled, or its time was up while it ran.
    Canceled,
    /// Its time was up before it was started.
    Aborted,
}

impl RequestStatus {
    /// All of them, in the order in which a request may pass through them.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Starting,
        Self::Processing,
        Self::Succeeded,
        Self::Failed,
        Self::Canceled,
        Self::Aborted,
    ];

    /// Returns its name in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Processing => "processing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Aborted => "aborted",
        }
    }

    /// Returns the status of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Returns `true` if no other status follows.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::Canceled | Self::Aborted
        )
    }
}

impl fmt::Display for RequestStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A stored request, without its body and its response.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RequestInfo {
    /// Its name.
    pub id: RequestId,
    /// The queue that it belongs to.
    pub queue: String,
    /// The index of its level: 0 is the most urgent.
    pub level: u8,
    /// The tenant that it belongs to; empty if it named none.
    pub tenant: Vec<u8>,
    /// Its state.
    pub status: RequestStatus,
    /// The number of times that a worker has started it.
    pub attempts: u32,
    /// The time at which it was stored.
    pub created: SystemTime,
    /// The time at which its latest attempt was started.
    pub started: Option<SystemTime>,
    /// The time at which it ended.
    pub ended: Option<SystemTime>,
    /// The time at which it is stopped.
    pub deadline: Option<SystemTime>,
    /// The time from which it may begin, of its next attempt if it was started before.
    pub not_before: Option<SystemTime>,
    /// The reason of its end, in a word such as `worker_lost`, unless it succeeded.
    pub reason: Option<String>,
    /// The HTTP status of its response.
    pub response_status: Option<u16>,
    /// `false` for one that lists leave out.
    pub is_listed: bool,
}

impl RequestInfo {
    /// Returns a request that was just stored.
    #[must_use]
    pub fn queued(id: RequestId, created: SystemTime) -> Self {
        Self {
            id,
            queue: String::new(),
            level: 0,
            tenant: Vec::new(),
            status: RequestStatus::Queued,
            attempts: 0,
            created,
            started: None,
            ended: None,
            deadline: None,
            not_before: None,
            reason: None,
            response_status: None,
            is_listed: true,
        }
    }
}

/// The requests that are asked for, the newest first.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Listing {
    /// Only those of this status.
    pub status: Option<RequestStatus>,
    /// Only those of this tenant.
    pub tenant: Option<Vec<u8>>,
    /// The largest number of requests.
    pub limit: usize,
    /// Only those that are older than this one.
    pub after: Option<RequestId>,
}

/// A part of a list.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The requests, the newest first.
    pub requests: Vec<RequestInfo>,
    /// `true` if older ones follow.
    pub has_more: bool,
}

/// The requests that one level of one queue holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueDepth {
    /// The queue.
    pub queue: String,
    /// The index of the level.
    pub level: u8,
    /// The number of requests that wait, delayed ones included.
    pub queued: u64,
    /// The number of requests that workers have.
    pub running: u64,
    /// The time for which the oldest that may begin has waited. A delay (`Not-Before`) does not count.
    pub oldest: Option<Duration>,
}

impl QueueDepth {
    /// Returns the depth of an empty level.
    #[must_use]
    pub fn empty(queue: String, level: u8) -> Self {
        Self {
            queue,
            level,
            queued: 0,
            running: 0,
            oldest: None,
        }
    }
}

/// The number of times that something has happened to requests of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueTotal {
    /// The queue. Queues beyond the first few thousand are counted together, under the empty name.
    pub queue: String,
    /// The event.
    pub event: QueueEvent,
    /// The number of times that it has happened.
    pub count: u64,
}

impl QueueTotal {
    /// Returns a total.
    #[must_use]
    pub fn new(queue: String, event: QueueEvent, count: u64) -> Self {
        Self {
            queue,
            event,
            count,
        }
    }
}

/// An event that a store counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueEvent {
    /// A request ended.
    Ended {
        /// The status of its end.
        status: RequestStatus,
        /// The reason in a word, unless it succeeded.
        reason: Option<String>,
    },
    /// A request was taken from its worker, which was silent for too long or has died.
    WorkerLost,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_a_name_of_its_own() {
        for status in RequestStatus::ALL {
            assert_eq!(RequestStatus::from_name(status.as_str()), Some(status));
        }
        assert_eq!(RequestStatus::from_name("Queued"), None);
    }
}
