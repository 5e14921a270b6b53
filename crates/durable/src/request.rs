//! A request that is about to be stored.

use std::time::Duration;

use bytes::Bytes;

use super::RequestId;

/// A request on its way into a [`Store`](super::Store), with the wishes of its caller.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NewRequest {
    /// The identifier of the request. A store ignores a second request with the same identifier.
    pub id: RequestId,
    /// The queue that the request waits in. All requests of one queue ask for the same slots, so it is the name of a
    /// model, or empty for the whole service.
    pub queue: String,
    /// The index of the priority level of the request, where 0 is the most urgent.
    pub level: u8,
    /// The tenant that the request belongs to, empty if its caller left the tenant open.
    pub tenant: Vec<u8>,
    /// The part of the tenant's share that the request uses, as in [`Ticket::cost`](tower_triage::Ticket::cost). The default
    /// is 1.
    pub cost: u32,
    /// The time from the storing of the request to its deadline. With the default of `None`, it may take any time.
    pub cancel_after: Option<Duration>,
    /// The time from the storing of the request to its earliest start. The default of `None` lets it begin at once.
    pub delay: Option<Duration>,
    /// The key under which the caller may safely send the request again. The default is `None`.
    pub idempotency: Option<Idempotency>,
    /// The address of the webhook that the store tells about the end of the request. The default is `None`.
    pub webhook: Option<String>,
    /// `true` while the request appears in lists, which is the default. Lines of a batch set it to `false`.
    pub is_listed: bool,
    /// The encoded request, which the store keeps without looking into it.
    pub request: Bytes,
}

/// A key with which a caller marks repetitions of the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The key that the caller sent. Each tenant has keys of its own, so two tenants may use equal keys.
    pub key: String,
    /// A digest of the request. A store rejects a request with a known key and another digest, as a mistake of the
    /// caller.
    pub fingerprint: [u8; 32],
}

impl NewRequest {
    /// Returns a request of the empty tenant at the most urgent level, with all other fields at their defaults.
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
