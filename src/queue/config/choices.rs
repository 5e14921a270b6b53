//! The enums among the fields of a [`QueueConfig`](super::QueueConfig).

/// How many requests run at a time.
///
/// In a configuration file: a positive integer, or `"inner"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Concurrency {
    /// This many, from 1 to [`SlotPool::MAX`](crate::SlotPool::MAX), to which larger numbers are lowered.
    Limit(usize),
    /// As many as the inner service is ready for. Only the request that is next polls its readiness.
    ///
    /// Keeps the order in front of a rate limit, a buffer or a load balancer. All services of one layer share one queue:
    /// while the inner service of the request that is next is not ready, requests to the others wait, too.
    Inner,
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
