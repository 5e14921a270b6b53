//! The questions of a [`QueueConfig`](super::QueueConfig) that have names for answers.

/// How many requests the service takes at a time.
///
/// In a configuration file: a positive integer, or `"inner"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Concurrency {
    /// This many, at least 1; more than [`SlotPool::MAX`](crate::SlotPool::MAX) are as many as that.
    Limit(usize),
    /// As many as it says itself: its `poll_ready` is asked by the request that is next, and by no other.
    ///
    /// Keeps the order in front of a rate limit, a buffer or a load balancer. All services of one layer wait in one
    /// line: while the inner service of the request that is next is not ready, requests to others wait, too.
    Inner,
}

/// Only the operator knows what the service can take, and 1 hurts none.
impl Default for Concurrency {
    fn default() -> Self {
        Self::Limit(1)
    }
}

/// What a service does whose waiting room is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Overflow {
    /// It is always ready, and answers the call with a rejection. What servers such as axum and tonic
    /// need, which make a clone per request.
    #[default]
    Reject,
    /// It is not ready until there is a chair, and being ready holds one for the call that follows. For
    /// callers that can wait before they have a request.
    Backpressure,
}

/// What becomes of a request for a stream of events when every slot is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Streaming {
    /// It waits like any other.
    #[default]
    Queue,
    /// It is rejected, so that its client can show that right away or go elsewhere.
    Reject,
}

/// How long a served request holds its slot.
///
/// **An upgraded connection holds none.** The response to an upgrade (101, or 2xx to `CONNECT`) has no body,
/// and hyper hands the connection from the server to the handler past every layer. A handler that is to hold
/// a slot for as long as its connection is open takes a [`Permit`](crate::gate::Permit) of a
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
