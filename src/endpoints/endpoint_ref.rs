//! Whoever serves a request must know where it goes, and whoever watches, how busy it is there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Uri};

use super::Endpoint;
use super::endpoint_word::EndpointWord;
use super::extensions::Extensions;
use crate::PoolId;
use crate::endpoints::activity::Activity;
use crate::endpoints::ejection::Ejection;
use crate::endpoints::latency::{CoarseInstant, Latency};

/// An endpoint in service: where it is, and how busy. Clones are cheap and mean the same endpoint.
#[derive(Clone)]
pub struct EndpointRef(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    header: HeaderValue,
    /// The names of its models, of those that a header can carry.
    model_headers: Box<[Option<HeaderValue>]>,
    state: Arc<EndpointState>,
    extensions: Extensions,
}

/// What changes while an endpoint is in service. It outlives changes of what is configured.
///
/// A decision looks at one of these per candidate: on a cache line of its own, that is one line each, which
/// nobody writes who is busy with another endpoint.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct EndpointState {
    pub(crate) word: EndpointWord,
    pub(crate) latency: Latency,
    pub(crate) ejection: Ejection,
    /// Elsewhere in memory: a decision does not read it, and every piece of every answer writes it.
    pub(crate) activity: Box<Activity>,
    pub(crate) pool: PoolId,
    /// Of the endpoint's name.
    pub(crate) hash: u64,
}

impl EndpointState {
    /// Whether others may rely on it when they are taken out of service: it is in service, and if it has never
    /// answered, nothing but that it was never asked is to blame.
    pub(super) fn can_stand_in(&self) -> bool {
        let seen = self.word.load();
        let was_asked = seen.in_use() > 0 || self.ejection.is_failing();
        self.word.is_in_service() && !(seen.flags().is_new() && was_asked)
    }
}

/// Every priority beyond is as low as this.
const LOWEST_PRIORITY: u8 = 100;

impl EndpointRef {
    /// One that enters service, with its slots in `pool`. It may have to answer first, before it gets more than
    /// one request at a time.
    pub(super) fn new(endpoint: Endpoint, pool: PoolId, answers_first: bool) -> Self {
        let state = EndpointState {
            word: EndpointWord::new(endpoint.max_concurrent),
            latency: Latency::default(),
            ejection: Ejection::default(),
            activity: Box::default(),
            pool,
            hash: hash(&endpoint.name),
        };
        if answers_first {
            state.word.set_unknown(endpoint.health.is_some());
        }
        Self::with(endpoint, Arc::new(state))
    }

    /// The same endpoint, as it is configured now.
    pub(super) fn changed_to(&self, endpoint: Endpoint) -> Self {
        if endpoint.health.is_none() {
            self.state().word.expect_no_check();
        }
        Self::with(endpoint, Arc::clone(&self.0.state))
    }

    fn with(endpoint: Endpoint, state: Arc<EndpointState>) -> Self {
        let header = HeaderValue::from_bytes(endpoint.name.as_bytes())
            .expect("a registry has no names with control characters");
        let model_headers = endpoint.models.iter();
        let model_headers =
            model_headers.map(|model| HeaderValue::from_bytes(model.name.as_bytes()).ok());
        Self(Arc::new(Inner {
            model_headers: model_headers.collect(),
            extensions: Extensions::default(),
            endpoint,
            header,
            state,
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
    pub(crate) fn model_header(&self, nth: u16) -> Option<&HeaderValue> {
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
        self.0.state.pool
    }

    /// How many requests it serves now.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.state().word.load().in_use()
    }

    /// How many requests it may serve at a time.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.state().word.load().limit()
    }

    /// Changes how many requests it may serve at a time.
    ///
    /// Below what is in flight, nothing is interrupted: slots that come back are retired. With 0 it takes
    /// nothing new, and who can only be served here waits. After a rise, tell the gate: it can now seat
    /// who waits.
    pub fn set_limit(&self, slots: u32) {
        self.state().word.set_limit(slots);
    }

    /// Whether it is well: neither its checks nor its failures speak against it.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.state().word.is_healthy()
    }

    /// Says whether it is well, as its checks do. What is in flight is not interrupted. Returns whether that
    /// is new, as it is when nothing was known of it.
    ///
    /// Tell the gate afterwards: it can seat those who wait for an endpoint that is back, and must answer
    /// those who have none left.
    pub fn set_healthy(&self, healthy: bool) -> bool {
        self.state().word.set_up(healthy).is_new()
    }

    /// Whether it is given nothing new, by the operator's wish.
    #[must_use]
    pub fn draining(&self) -> bool {
        self.state().word.is_draining()
    }

    /// How long it took of late until the head of an answer was there, on average. It halves every 8 seconds
    /// in which there was none; zero before the first.
    #[must_use]
    pub fn first_byte_latency(&self) -> Duration {
        let average = &self.state().latency.first_byte;
        Duration::from_micros(average.micros(CoarseInstant::now()).into())
    }

    /// How long it took of late until an answer had ended, on average, as
    /// [`first_byte_latency`](Self::first_byte_latency).
    #[must_use]
    pub fn total_latency(&self) -> Duration {
        let average = &self.state().latency.total;
        Duration::from_micros(average.micros(CoarseInstant::now()).into())
    }

    /// A value of type `T` that is kept with the endpoint as it is configured now, made by `make` when it is first
    /// asked for: a client of its own, prepared headers. Reading it takes no lock.
    ///
    /// Each type has one value, so make `T` a type of your own. An endpoint that is configured differently begins
    /// without values.
    ///
    /// ```
    /// use tower_triage::endpoints::{Endpoint, EndpointRef, Endpoints, Registry};
    ///
    /// struct Host(String);
    ///
    /// fn host(endpoint: &EndpointRef) -> &str {
    ///     let host = endpoint.extension(|endpoint| {
    ///         Host(endpoint.url.host().unwrap_or_default().to_owned())
    ///     });
    ///     &host.0
    /// }
    ///
    /// let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://gpu-1.example:9001"));
    /// let endpoints = Endpoints::new(Registry::new(vec![gpu])?);
    /// assert_eq!(host(&endpoints.endpoints()[0]), "gpu-1.example");
    /// # Ok::<(), tower_triage::endpoints::InvalidRegistry>(())
    /// ```
    pub fn extension<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Endpoint) -> T) -> &T {
        self.0.extensions.get_or_init(|| make(&self.0.endpoint))
    }

    pub(crate) fn state(&self) -> &EndpointState {
        &self.0.state
    }

    pub(super) fn state_handle(&self) -> Arc<EndpointState> {
        Arc::clone(&self.0.state)
    }

    /// Whether both are the same endpoint, however it is configured.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.state, &other.0.state)
    }
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
