//! Whoever serves a request must know where it goes, and whoever watches, how busy it is there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "client")]
use http::header::{HOST, HeaderMap};
use http::{HeaderValue, Uri};

use crate::admit::PoolId;
use crate::route::Endpoint;
use crate::route::availability::Availability;
use crate::route::ejection::Ejection;
#[cfg(feature = "client")]
use crate::route::forward::host;
use crate::route::latency::{Latency, Moment};
#[cfg(feature = "metrics")]
use crate::route::meter::Series;
use crate::route::signs_of_life::SignsOfLife;

/// An endpoint in service: where it is, and how busy. Clones are cheap and mean the same endpoint.
#[derive(Clone)]
pub struct EndpointRef(Arc<Record>);

struct Record {
    endpoint: Endpoint,
    header: HeaderValue,
    /// The names of its models, of those that a header can carry.
    model_headers: Box<[Option<HeaderValue>]>,
    #[cfg(feature = "client")]
    headers: HeaderMap,
    live: Arc<Live>,
    #[cfg(feature = "metrics")]
    series: Series,
}

/// What changes while an endpoint is in service. It outlives changes of what is configured.
///
/// A decision looks at one of these per candidate: on a cache line of its own, that is one line each, which
/// nobody writes who is busy with another endpoint.
#[derive(Debug)]
#[repr(align(64))]
pub(in crate::route) struct Live {
    pub(in crate::route) availability: Availability,
    pub(in crate::route) latency: Latency,
    pub(in crate::route) ejection: Ejection,
    /// Elsewhere in memory: a decision does not read it, and every piece of every answer writes it.
    pub(in crate::route) signs: Box<SignsOfLife>,
    pub(in crate::route) pool: PoolId,
    /// Of the endpoint's name.
    pub(in crate::route) hash: u64,
}

impl Live {
    /// Whether others may rely on it when they are taken out of service: it is in service, and if it has never
    /// answered, nothing but that it was never asked is to blame.
    pub(super) fn can_stand_in(&self) -> bool {
        let seen = self.availability.slots.load();
        let was_asked = seen.in_use() > 0 || self.ejection.is_failing();
        self.availability.is_open() && !(seen.marks().is_new() && was_asked)
    }
}

/// Every priority beyond is as low as this.
const LOWEST_PRIORITY: u8 = 100;

impl EndpointRef {
    /// One that enters service, with its slots in `pool`. It may have to answer first, before it gets more than
    /// one request at a time.
    pub(super) fn new(endpoint: Endpoint, pool: PoolId, answers_first: bool) -> Self {
        let live = Live {
            availability: Availability::new(endpoint.max_concurrent),
            latency: Latency::default(),
            ejection: Ejection::default(),
            signs: Box::default(),
            pool,
            hash: hash(&endpoint.name),
        };
        if answers_first {
            live.availability.begin_unknown(endpoint.health.is_some());
        }
        Self::with(endpoint, Arc::new(live))
    }

    /// The same endpoint, as it is configured now.
    pub(super) fn changed_to(&self, endpoint: Endpoint) -> Self {
        if endpoint.health.is_none() {
            self.live().availability.expect_no_check();
        }
        Self::with(endpoint, Arc::clone(&self.0.live))
    }

    fn with(endpoint: Endpoint, live: Arc<Live>) -> Self {
        let header = HeaderValue::from_bytes(endpoint.name.as_bytes())
            .expect("a registry has no names with control characters");
        let model_headers = endpoint.models.iter();
        let model_headers =
            model_headers.map(|model| HeaderValue::from_bytes(model.name.as_bytes()).ok());
        Self(Arc::new(Record {
            model_headers: model_headers.collect(),
            #[cfg(feature = "client")]
            headers: headers(&endpoint),
            #[cfg(feature = "metrics")]
            series: Series::new(endpoint.models.len()),
            endpoint,
            header,
            live,
        }))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.endpoint.name
    }

    /// Its name as the value of a response header.
    #[must_use]
    pub fn header_value(&self) -> &HeaderValue {
        &self.0.header
    }

    /// The name of one of its models as the value of a response header.
    pub(in crate::route) fn model_header(&self, nth: u16) -> Option<&HeaderValue> {
        self.0.model_headers.get(usize::from(nth))?.as_ref()
    }

    /// Where it is. The path is put before that of a request.
    #[must_use]
    pub fn url(&self) -> &Uri {
        &self.0.endpoint.url
    }

    /// What is configured.
    #[must_use]
    pub fn config(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// Lower is preferred: 0 to 100.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.priority_byte().into()
    }

    pub(super) fn priority_byte(&self) -> u8 {
        let byte = u8::try_from(self.0.endpoint.priority);
        byte.map_or(LOWEST_PRIORITY, |byte| byte.min(LOWEST_PRIORITY))
    }

    /// Which pool of [`Endpoints`](super::Endpoints) its slots are.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        self.0.live.pool
    }

    /// How many requests it serves now.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.live().availability.slots.load().in_use()
    }

    /// How many requests it may serve at a time.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.live().availability.slots.load().limit()
    }

    /// Changes how many requests it may serve at a time.
    ///
    /// Below what is in flight, nothing is interrupted: slots that come back are retired. With 0 it takes
    /// nothing new, and who can only be served here waits. After a rise, tell the gate: it can now seat
    /// who waits.
    pub fn set_limit(&self, slots: u32) {
        self.live().availability.slots.set_limit(slots);
    }

    /// Whether it is well: neither its checks nor its failures speak against it.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.live().availability.is_healthy()
    }

    /// Says whether it is well, as its checks do. What is in flight is not interrupted. Returns whether that
    /// is new, as it is when nothing was known of it.
    ///
    /// Tell the gate afterwards: it can seat those who wait for an endpoint that is back, and must answer
    /// those who have none left.
    pub fn set_healthy(&self, healthy: bool) -> bool {
        self.live().availability.set_up(healthy).is_new()
    }

    /// Whether it is given nothing new, by the operator's wish.
    #[must_use]
    pub fn draining(&self) -> bool {
        self.live().availability.is_draining()
    }

    /// How long it took of late until the head of an answer was there, on average. It halves every 8 seconds
    /// in which there was none; zero before the first.
    #[must_use]
    pub fn first_byte_latency(&self) -> Duration {
        let average = &self.live().latency.first_byte;
        Duration::from_micros(average.micros(Moment::now()).into())
    }

    /// How long it took of late until an answer had ended, on average, as
    /// [`first_byte_latency`](Self::first_byte_latency).
    #[must_use]
    pub fn total_latency(&self) -> Duration {
        let average = &self.live().latency.total;
        Duration::from_micros(average.micros(Moment::now()).into())
    }

    /// What requests to it carry, in place of the client's: `Host`, and what is configured.
    #[cfg(feature = "client")]
    pub(in crate::route) fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    /// The keys of what is counted of its requests.
    #[cfg(feature = "metrics")]
    pub(in crate::route) fn series(&self) -> &Series {
        &self.0.series
    }

    pub(in crate::route) fn live(&self) -> &Live {
        &self.0.live
    }

    pub(super) fn live_handle(&self) -> Arc<Live> {
        Arc::clone(&self.0.live)
    }

    /// Whether both are the same endpoint, however it is configured.
    pub(in crate::route) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.live, &other.0.live)
    }
}

#[cfg(feature = "client")]
fn headers(endpoint: &Endpoint) -> HeaderMap {
    let mut headers = endpoint.headers.clone();
    headers.insert(HOST, host(&endpoint.url));
    headers
}

/// FNV-1a: the same in every process, so that a restart leaves warm endpoints warm.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
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
