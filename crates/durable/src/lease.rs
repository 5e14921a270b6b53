//! The right of a worker to run a request that it has taken from a store.

use std::time::SystemTime;

use bytes::Bytes;

use super::{QueueHead, RequestId, RequestInfo};

/// The right to run one attempt of a request and to record its outcome.
///
/// A store takes the lease away if its worker was silent for too long or if the request has ended meanwhile. From then
/// on, the store ignores every outcome that the worker records with this lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    id: RequestId,
    attempt: u32,
    fence: String,
}

impl Lease {
    /// Returns a lease for one attempt. The store recognizes the attempt by `fence`, a mark of its own choice.
    #[must_use]
    pub fn new(id: RequestId, attempt: u32, fence: String) -> Self {
        Self { id, attempt, fence }
    }

    /// Returns the identifier of the request.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Returns the number of this attempt, where the first one is 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the mark by which the store recognizes this attempt.
    #[must_use]
    pub fn fence(&self) -> &str {
        &self.fence
    }
}

/// A request that a worker has taken from a store in order to run it now.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fetched {
    /// The right to run this attempt and to record its outcome.
    pub lease: Lease,
    /// The description of the request at the time when the worker took it.
    pub info: RequestInfo,
    /// The request itself, in the form in which it was stored.
    pub request: Bytes,
    /// `true` while every other request of the queue has to wait, so the next one that may begin is a
    /// [change](super::Store::changed) of the backlog. The default of `false` means that the store does not know.
    pub is_last: bool,
    /// The head of the queue behind this request, so that the worker does not have to [ask](super::Store::backlog) for
    /// it. The default of `None` means that the store does not know or that the queue has none.
    pub next: Option<Box<QueueHead>>,
}

impl Fetched {
    /// Returns a request that a worker has taken, with `is_last` and `next` at their defaults.
    #[must_use]
    pub fn new(lease: Lease, info: RequestInfo, request: Bytes) -> Self {
        Self {
            lease,
            info,
            request,
            is_last: false,
            next: None,
        }
    }

    /// Returns the time at which the attempt has to stop, if the request has a deadline.
    #[must_use]
    pub fn deadline(&self) -> Option<SystemTime> {
        self.info.deadline
    }
}

/// The reason why an attempt has to stop before it has an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The request was cancelled, or its deadline has passed.
    Canceled,
    /// The store took the lease away, so another worker may have the request by now.
    Lost,
}
