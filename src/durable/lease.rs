//! A request that a worker has taken from a store.

use std::time::SystemTime;

use bytes::Bytes;

use super::{RequestId, RequestInfo};

/// The right to run one attempt of a request, and to record its outcome.
///
/// A store may take it away: when its worker was silent for too long, or the request has ended meanwhile. What is recorded
/// by a lease that was taken away has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    id: RequestId,
    attempt: u32,
    fence: String,
}

impl Lease {
    /// Returns a lease. `fence`: the store's own mark, by which it knows the attempt again.
    #[must_use]
    pub fn new(id: RequestId, attempt: u32, fence: String) -> Self {
        Self { id, attempt, fence }
    }

    /// Returns the request's name.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Returns the number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the store's own mark.
    #[must_use]
    pub fn fence(&self) -> &str {
        &self.fence
    }
}

/// A request that a worker has taken, to run it now.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fetched {
    /// The right to run it.
    pub lease: Lease,
    /// The request's state.
    pub info: RequestInfo,
    /// The request itself, as it was stored.
    pub request: Bytes,
    /// `true` if no other request of its queue may begin, so that the next one is a [change](super::Store::changed) of the
    /// backlog. Default `false`: it is not known.
    pub is_last: bool,
}

impl Fetched {
    /// Returns a request that was taken.
    #[must_use]
    pub fn new(lease: Lease, info: RequestInfo, request: Bytes) -> Self {
        Self {
            lease,
            info,
            request,
            is_last: false,
        }
    }

    /// Returns the time at which it has to stop.
    #[must_use]
    pub fn deadline(&self) -> Option<SystemTime> {
        self.info.deadline
    }
}

/// The reason why an attempt has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The request was cancelled, or its time is up.
    Canceled,
    /// The lease was taken away: another worker may have the request.
    Lost,
}
