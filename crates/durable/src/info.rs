//! Descriptions of stored requests, as a store returns them to fronts and workers.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::RequestId;

/// The state of a stored request, from its arrival to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RequestStatus {
    /// The request waits for a worker or for the time from which it may begin.
    Queued,
    /// A worker has taken the request and has yet to call the inner service.
    Starting,
    /// The inner service works on the request.
    Processing,
    /// The request ended with a response of a status below 400.
    Succeeded,
    /// The request ended with another response or without one, for example because its worker was lost.
    Failed,
    /// The request was cancelled, or its deadline passed while it ran.
    Canceled,
    /// The deadline of the request passed before a worker started it.
    Aborted,
}

impl RequestStatus {
    /// All states, in the order in which a request may pass through them.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Starting,
        Self::Processing,
        Self::Succeeded,
        Self::Failed,
        Self::Canceled,
        Self::Aborted,
    ];

    /// Returns the name of the state in lower case.
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

    /// Returns the state with this name in lower case, or `None` for an unknown name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Returns `true` if the request has ended, so only a [retry](super::Operate::retry) can change its state.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::Canceled | Self::Aborted
        )
    }

    pub(crate) fn is_running(self) -> bool {
        matches!(self, Self::Starting | Self::Processing)
    }

    /// Returns `true` if the request has ended by its caller or at its deadline.
    pub(crate) fn is_withdrawn(self) -> bool {
        matches!(self, Self::Canceled | Self::Aborted)
    }
}

impl fmt::Display for RequestStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A stored request without its body and its response.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RequestInfo {
    /// The identifier under which its caller and its workers find the request.
    pub id: RequestId,
    /// The queue that the request waits in, such as the name of a model.
    pub queue: String,
    /// The index of the priority level of the request, where 0 is the most urgent.
    pub level: u8,
    /// The tenant that the request belongs to, empty if its caller left the tenant open.
    pub tenant: Vec<u8>,
    /// The state of the request at the time of this description.
    pub status: RequestStatus,
    /// The number of times that a worker has started the request.
    pub attempts: u32,
    /// The time at which the store accepted the request.
    pub created: SystemTime,
    /// The time at which a worker started the latest attempt.
    pub started: Option<SystemTime>,
    /// The time at which the request ended, with or without a response.
    pub ended: Option<SystemTime>,
    /// The time at which the store stops the request if it has not ended by then.
    pub deadline: Option<SystemTime>,
    /// The time before which the first or the next attempt may not begin.
    pub not_before: Option<SystemTime>,
    /// The reason of the end in one word such as `worker_lost`, unless the request succeeded.
    pub reason: Option<String>,
    /// The HTTP status of the response, if the request has ended with one.
    pub response_status: Option<u16>,
    /// `true` while the request appears in lists. It is `false` for requests such as the lines of a batch.
    pub is_listed: bool,
}

impl RequestInfo {
    /// Returns the description of a request that was just stored, in the default queue and at the most urgent level.
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

/// The filter and the bounds of a list of requests, which begins with the newest one.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Listing {
    /// The status of the requests to list, or `None` for every status.
    pub status: Option<RequestStatus>,
    /// The tenant of the requests to list, or `None` for all tenants.
    pub tenant: Option<Vec<u8>>,
    /// The largest number of requests that the page may have.
    pub limit: usize,
    /// The last request of the page before, so that only older requests follow.
    pub after: Option<RequestId>,
}

/// One page of a list of requests.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The requests of this page, the newest first.
    pub requests: Vec<RequestInfo>,
    /// `true` while older requests follow after this page.
    pub has_more: bool,
}

/// The number of requests that one level of one queue holds, and the age of the oldest one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueDepth {
    /// The name of the queue, empty for the queue of the whole service.
    pub queue: String,
    /// The index of the level, where 0 is the most urgent.
    pub level: u8,
    /// The number of requests that wait, with those whose start is delayed.
    pub queued: u64,
    /// The number of requests that workers have taken and that have not ended.
    pub running: u64,
    /// The time for which the oldest request that may begin has waited. The time before `Not-Before` does not count.
    pub oldest: Option<Duration>,
}

impl QueueDepth {
    /// Returns the depth of a level that holds zero requests.
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

/// The number of times that one kind of event has happened to the requests of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueTotal {
    /// The name of the queue. A store counts the queues beyond the first few thousand together, under the empty name.
    pub queue: String,
    /// The kind of event that is counted.
    pub event: QueueEvent,
    /// The number of times that the event has happened.
    pub count: u64,
}

impl QueueTotal {
    /// Returns a total of `count` events of this kind in `queue`.
    #[must_use]
    pub fn new(queue: String, event: QueueEvent, count: u64) -> Self {
        Self {
            queue,
            event,
            count,
        }
    }
}

/// A kind of event that a store counts for each queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueEvent {
    /// A request ended, with or without a response.
    Ended {
        /// The final state of the requests that are counted.
        status: RequestStatus,
        /// The reason of the end in one word, unless the requests succeeded.
        reason: Option<String>,
    },
    /// A store took a request away from its worker, because the worker died or was silent for too long.
    WorkerLost,
}

#[cfg(test)]
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
