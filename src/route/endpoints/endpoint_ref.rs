//! Whoever serves a request must know where it goes, and whoever watches, how busy it is there.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

#[cfg(feature = "client")]
use http::HeaderMap;
use http::{HeaderValue, Uri};

use crate::Pool;
use crate::route::Endpoint;
use crate::route::slots::Slots;

/// An endpoint in service: where it is, and how busy. Clones are cheap and mean the same endpoint.
///
/// In a request's extensions it says where `Forward` sends the request.
#[derive(Clone)]
pub struct EndpointRef(Arc<Record>);

struct Record {
    name: String,
    header: HeaderValue,
    url: Uri,
    #[cfg(feature = "client")]
    headers: HeaderMap,
    priority: u32,
    pool: Pool,
    slots: Slots,
    healthy: AtomicBool,
}

/// Every priority beyond is as low as this.
const LOWEST_PRIORITY: u32 = 100;

impl EndpointRef {
    pub(super) fn new(endpoint: &Endpoint, pool: Pool) -> Self {
        Self(Arc::new(Record {
            name: endpoint.name.clone(),
            header: HeaderValue::from_bytes(endpoint.name.as_bytes())
                .expect("a registry has no names with control characters"),
            url: endpoint.url.clone(),
            #[cfg(feature = "client")]
            headers: endpoint.headers.clone(),
            priority: endpoint.priority.min(LOWEST_PRIORITY),
            pool,
            slots: Slots::new(endpoint.max_concurrent),
            healthy: AtomicBool::new(true),
        }))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its name as the value of a response header.
    #[must_use]
    pub fn header_value(&self) -> &HeaderValue {
        &self.0.header
    }

    /// Where it is. The path is put before that of a request.
    #[must_use]
    pub fn url(&self) -> &Uri {
        &self.0.url
    }

    /// Lower is preferred: 0 to 100.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.0.priority
    }

    /// Which pool of [`Endpoints`](super::Endpoints) its slots are.
    #[must_use]
    pub fn pool(&self) -> Pool {
        self.0.pool
    }

    /// How many requests it serves now.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.0.slots.load().in_use
    }

    /// How many requests it may serve at a time.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.0.slots.load().limit
    }

    /// Changes how many requests it may serve at a time.
    ///
    /// Below what is in flight, nothing is interrupted: slots that come back are retired. With 0 it takes
    /// nothing new, and who can only be served here waits. After a rise, tell the gate: it can now seat
    /// who waits.
    pub fn set_limit(&self, slots: u32) {
        self.0.slots.set_limit(slots);
    }

    /// Whether it is given requests.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.0.healthy.load(SeqCst)
    }

    /// Says whether it is given requests. What is in flight is not interrupted.
    ///
    /// Tell the gate afterwards: it can seat those who wait for an endpoint that is back, and must answer
    /// those who have none left.
    pub fn set_healthy(&self, healthy: bool) {
        self.0.healthy.store(healthy, SeqCst);
    }

    /// What requests to it carry, in place of the client's.
    #[cfg(feature = "client")]
    pub(in crate::route) fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.0.slots
    }
}

impl fmt::Debug for EndpointRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointRef")
            .field("name", &self.name())
            .field("url", self.url())
            .field("in_flight", &self.in_flight())
            .field("limit", &self.limit())
            .field("healthy", &self.healthy())
            .finish()
    }
}
