//! A request that is to be stored.

use std::time::Duration;

use bytes::Bytes;

use super::RequestId;

/// A request on its way into a [`Store`](super::Store).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NewRequest {
    /// Its name. To store it again under the same name changes nothing.
    pub id: RequestId,
    /// The queue that it belongs to: requests of one queue ask for the same slots. A model's name, or empty for the whole
    /// service.
    pub queue: String,
    /// The index of its level: 0 is the most urgent.
    pub level: u8,
    /// The tenant that it belongs to; empty if it names none.
    pub tenant: Vec<u8>,
    /// The part of its tenant's share that it uses, as in [`Ticket::cost`](crate::Ticket::cost). Default 1.
    pub cost: u32,
    /// The time after which it is stopped, counted from when it is stored. Default: none.
    pub cancel_after: Option<Duration>,
    /// The time for which it may not begin, counted from when it is stored. Default: none.
    pub delay: Option<Duration>,
    /// The key under which its caller may send it again without a second effect. Default: none.
    pub idempotency: Option<Idempotency>,
    /// The address that is told when it has ended. Default: none.
    pub webhook: Option<String>,
    /// `false` for one that lists leave out, such as a line of a batch. Default `true`.
    pub is_listed: bool,
    /// The request itself, in a form that the store does not look into.
    pub request: Bytes,
}

/// A key with which a caller marks requests that are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key, which is its tenant's alone.
    pub key: String,
    /// A digest of the request: another one under the same key is a mistake of the caller.
    pub fingerprint: [u8; 32],
}

impl NewRequest {
    /// Returns a request of the empty tenant at the most urgent level, without further wishes.
    #[must_use]
    pub fn new(id: RequestId, request: Bytes) -> Self {
        Self {
            id,
            queue: String::new(),
            level: 0,
            tenant: Vec::new(),
            cost: 1,
            cancel_after: None,
            delay: None,
            idempotency: None,
            webhook: None,
            is_listed: true,
            request,
        }
    }
}
