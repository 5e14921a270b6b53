//! The enums among the fields of a [`QueueConfig`](super::QueueConfig).

use crate::admit::AdaptiveLimit;

/// The number of requests that run at a time.
///
/// In a configuration file, this is an integer, `"inner"`, or `"auto"`. A table `limit` may be beside `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Concurrency {
    /// A fixed number of requests, up to 1,048,575 ([`SlotPool::MAX`](crate::SlotPool::MAX)). A larger number is lowered
    /// to that.
    ///
    /// With 0, no request runs. Requests wait as they do while all slots are busy, until the limit is raised or their
    /// wait ends. If they may not wait, they are rejected at once.
    Limit(usize),
    /// As many requests as the inner service is ready for. Only the next request polls its readiness.
    ///
    /// This keeps the order in front of a rate limit, a buffer or a load balancer. All services of one layer share one
    /// queue. So while the inner service of the next request is not ready, requests to the other inner services wait,
    /// too. It excludes [`reserve`](crate::WaitingRoomConfig::reserve), because the number of slots is not known.
    Inner,
    /// As many requests as the service can take according to measurements, for a service whose limit is unknown or
    /// changes.
    ///
    /// The measured time begins when a request has its slot. It ends with the head of its response, or with the
    /// response of a service that is not HTTP. An error and a status of 429 or 503 count as overload. A request that is
    /// dropped before its response is not counted.
    ///
    /// Measuring a request costs an allocation, a lock and two reads of the clock, even if it finds a slot free. For
    /// engines of language models, whose latency grows with the batch by design, use
    /// [`LimitAlgorithm::Aimd`](crate::admit::LimitAlgorithm::Aimd).
    Adaptive(AdaptiveLimit),
}

impl From<usize> for Concurrency {
    /// Returns a fixed limit.
    fn from(limit: usize) -> Self {
        Self::Limit(limit)
    }
}

impl Concurrency {
    /// Returns the settings of a limit that adapts, or `None` for any other concurrency.
    pub(crate) fn adaptive(&self) -> Option<&AdaptiveLimit> {
        match self {
            Self::Adaptive(limit) => Some(limit),
            _ => None,
        }
    }
}

/// Returns `Limit(1)`, because only the operator knows the limit of the service, and every service can take one
/// request.
impl Default for Concurrency {
    fn default() -> Self {
        Self::Limit(1)
    }
}

/// The behaviour of a service towards requests for which its waiting room has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Overflow {
    /// The service stays ready and answers the call with a rejection. Servers such as axum and tonic need this, because
    /// they clone the service for each request.
    #[default]
    Reject,
    /// The service is ready only once the waiting room has room, and reserves a place for the call that follows.
    ///
    /// This is for callers that can wait before they have a request. If waiting is futile, because the queue is closed
    /// or its size is 0, the service is ready and the call is rejected. A call with a place may be rejected, too,
    /// because of its ticket: its tenant may have too many waiters, or its deadline may have passed. The
    /// [`target_wait`](crate::WaitingRoomConfig::target_wait) is off.
    Backpressure,
    /// The service lets no request wait. It rejects each one that finds every slot busy at once, as
    /// [`RejectReason::Shed`](crate::RejectReason::Shed). The size of the waiting room counts as 0.
    ///
    /// A [`QueueLayer`](crate::QueueLayer) rejects without its lock, unless slots are reserved or tenants have a limit.
    Shed,
}

/// The treatment of a request for a stream of events while every slot is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Streaming {
    /// The request waits like any other.
    #[default]
    Queue,
    /// The request is rejected, so that its client can report the failure at once or go elsewhere.
    Reject,
}

/// The time for which a request holds its slot.
///
/// **An upgraded connection is outside the limit.** The response to an upgrade (101, or 2xx to `CONNECT`) has an empty
/// body, and hyper hands the connection from the server to the handler past every layer. A handler can hold a slot for
/// as long as its connection is open: it acquires a [`Permit`](crate::gate::Permit) from a [`Gate`](crate::Gate), and
/// keeps it in the task that serves the connection.
///
/// **An endless stream keeps its slot for as long as it is open.** A dashboard that follows a stream of events holds a
/// slot per open tab, so a few of them take all slots, and other requests wait in vain. Such routes belong outside the
/// limit, or behind a layer of their own that holds slots until the headers. If every stream of events is of that kind,
/// use [`ExceptEventStreams`](Self::ExceptEventStreams).
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_triage::queue::Hold;
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # async fn handler() {}
/// let until_headers = QueueLayer::new(QueueConfig::new(64).hold(Hold::Headers));
/// let events = Router::new().route("/events", get(handler)).layer(until_headers);
/// let app: Router = Router::new()
///     .route("/work", get(handler))
///     .layer(QueueLayer::new(QueueConfig::new(8)))
///     .merge(events); // after the layer, so that it does not count
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Hold {
    /// The slot is held until the response's body ends, fails or is dropped.
    #[default]
    Body,
    /// The slot is held until the response's head is there. This suits large downloads that cost the service nothing.
    Headers,
    /// The slot is held as with [`Body`](Self::Body), but for a stream of events (`text/event-stream`) as with
    /// [`Headers`](Self::Headers). This suits apps whose streams of events are endless.
    ExceptEventStreams,
}
