//! The enums among the fields of a [`QueueConfig`](super::QueueConfig).

use crate::admit::AdaptiveLimit;

/// How many requests run at a time.
///
/// In a configuration file: a positive integer, `"inner"`, or `"auto"`, with which there may be a table `limit` beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Concurrency {
    /// This many, from 1 to [`SlotPool::MAX`](crate::SlotPool::MAX), to which larger numbers are lowered.
    Limit(usize),
    /// As many as the inner service is ready for. Only the request that is next polls its readiness.
    ///
    /// Keeps the order in front of a rate limit, a buffer or a load balancer. All services of one layer share one queue:
    /// while the inner service of the request that is next is not ready, requests to the others wait, too. Excludes
    /// [`reserve`](crate::WaitingRoomConfig::reserve), as it is not known how many slots there are.
    Inner,
    /// As many as measurements say that the service can take. For a service whose limit is unknown or changes.
    ///
    /// Measured is the time from when a request has its slot until the head of its response, or the response of a service
    /// that is not HTTP. A status of 429 or 503 and an error count as overload; a request that is dropped before its
    /// response counts for nothing.
    ///
    /// A request that is measured costs an allocation, a lock and two readings of the clock, also where it finds a slot
    /// free. For engines of language models, whose latency grows with the batch by design, use
    /// [`LimitAlgorithm::Aimd`](crate::admit::LimitAlgorithm::Aimd).
    Adaptive(AdaptiveLimit),
}

impl Concurrency {
    /// What an adaptive limit is found by.
    pub(crate) fn adaptive(&self) -> Option<&AdaptiveLimit> {
        match self {
            Self::Adaptive(limit) => Some(limit),
            _ => None,
        }
    }
}

/// `Limit(1)`: only the operator knows what the service can take, and 1 overloads none.
impl Default for Concurrency {
    fn default() -> Self {
        Self::Limit(1)
    }
}

/// What a service does when its waiting room is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Overflow {
    /// It is ready, and answers the call with a rejection. Servers such as axum and tonic, which clone the service
    /// for each request, need this.
    #[default]
    Reject,
    /// It is not ready until there is room. Being ready reserves a place for the call that follows. For callers that
    /// can wait before they have a request.
    ///
    /// Where there will never be room, because the queue is closed or has no places, it is ready, and the call is rejected.
    /// With a place, too, a call may be rejected for what its ticket says: its tenant has as many requests waiting as may,
    /// or its deadline has passed. There is no [`target_wait`](crate::WaitingRoomConfig::target_wait).
    Backpressure,
}

/// What happens to a request for a stream of events when every slot is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Streaming {
    /// It waits like any other.
    #[default]
    Queue,
    /// It is rejected, so that its client can say so at once or go elsewhere.
    Reject,
}

/// For how long a request holds its slot.
///
/// **An upgraded connection holds none.** The response to an upgrade (101, or 2xx to `CONNECT`) has no body,
/// and hyper hands the connection from the server to the handler past every layer. A handler that is to hold
/// a slot for as long as its connection is open acquires a [`Permit`](crate::gate::Permit) from a
/// [`Gate`](crate::Gate), and keeps it in the task that serves the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Hold {
    /// Until the response's body ends, fails or is dropped.
    #[default]
    Body,
    /// Until the response's head is there. For large downloads that cost the service nothing.
    Headers,
}
