//! An endpoint in service: its configuration, and its live state.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderValue, Uri};

use super::Endpoint;
use super::ejection::Ejection;
use super::endpoint_limiter::EndpointLimiter;
use super::endpoint_word::EndpointWord;
use super::extensions::Extensions;
use super::latency::{CoarseInstant, Latency};
#[cfg(feature = "swap")]
use super::on_demand::EndedAt;
use super::slot_lease::SlotLease;
use super::strategy::Candidate;
use crate::admit::PoolId;

/// An endpoint in service: its configuration and its live numbers. Clones are cheap and mean the same endpoint.
#[derive(Clone)]
pub struct EndpointRef(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    header: HeaderValue,
    /// The names of its models; `None` where a header cannot carry one.
    model_headers: Box<[Option<HeaderValue>]>,
    state: Arc<EndpointState>,
    /// Finds the limit, if that adapts.
    limiter: Option<EndpointLimiter>,
    extensions: Extensions,
    #[cfg(feature = "swap")]
    ended_at: EndedAt,
}

/// What changes while an endpoint is in service. It outlives changes of the configuration.
///
/// A decision reads one of these per candidate. Aligned to a cache line, each costs one line, and requests to other
/// endpoints do not write it.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct EndpointState {
    pub(crate) word: EndpointWord,
    pub(crate) latency: Latency,
    pub(crate) ejection: Ejection,
    pub(crate) cold: Box<ColdState>,
    pub(crate) pool: PoolId,
    /// The hash of the endpoint's name.
    pub(crate) hash: u64,
}

/// What decisions do not read, unless the request has failed elsewhere.
#[derive(Debug)]
pub(crate) struct ColdState {
    /// How many responses and parts of responses it has sent apart from answers to checks; it wraps around. A backend
    /// with one thread answers no check while it streams, and still works. Each frame of each response writes it.
    pub(crate) activity: AtomicU32,
    pub(crate) id: EndpointId,
    /// The slots that it has for a while, if it has no others. Read after each slot that is taken of such an endpoint.
    pub(super) lease: SlotLease,
}

/// Tells endpoints apart for ever. A pool may be another one's once its endpoint has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EndpointId(u64);

impl EndpointId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers are compared.
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

impl EndpointState {
    /// Whether another endpoint may be ejected because this one stays: it is in service, and if it is new, it was not
    /// asked anything yet.
    pub(super) fn can_stand_in(&self) -> bool {
        let seen = self.word.load();
        let was_asked = seen.in_use() > 0 || self.ejection.is_failing();
        self.word.is_in_service() && !(seen.flags().is_new() && was_asked)
    }

    /// Returns the slot that was just taken by `choice` if the lease of the endpoint's slots has ended, and takes all of
    /// them away then. Returns `true` if it did.
    pub(super) fn return_after_lease(&self, choice: &Candidate<'_>) -> bool {
        if !self.cold.lease.has_ended() {
            return false;
        }
        self.cold.lease.end(&self.word);
        if choice.is_probe() {
            self.word.return_probe(choice.seen.next_probe());
        }
        self.word.release();
        true
    }
}

/// Numbers above this count as this.
const LOWEST_PRIORITY: u8 = 100;

impl EndpointRef {
    /// An endpoint that enters service, with its slots in `pool`. With `answers_first`, it gets one request at a time
    /// until it has answered one or passed a check. With `leases_slots`, it has no slots but those that it is leased, unless
    /// it is started on demand.
    pub(super) fn new(
        endpoint: Endpoint,
        pool: PoolId,
        answers_first: bool,
        leases_slots: bool,
    ) -> Self {
        let state = EndpointState {
            word: EndpointWord::new(endpoint.initial_slots()),
            latency: Latency::default(),
            ejection: Ejection::default(),
            cold: Box::new(ColdState {
                activity: AtomicU32::new(0),
                id: EndpointId::next(),
                lease: SlotLease::default(),
            }),
            pool,
            hash: hash(&endpoint.name),
        };
        #[cfg(feature = "swap")]
        if endpoint.on_demand.is_some() {
            _ = state.word.set_stopped(true);
        }
        if answers_first && !endpoint.is_on_demand() {
            state.word.set_unknown(endpoint.health.is_some());
        }
        if leases_slots && !endpoint.is_on_demand() {
            state.cold.lease.begin(&state.word);
        }
        let limiter = EndpointLimiter::of(&endpoint);
        Self::with(endpoint, Arc::new(state), limiter)
    }

    /// The same endpoint with another configuration.
    pub(super) fn changed_to(&self, endpoint: Endpoint) -> Self {
        if endpoint.health.is_none() {
            self.state().word.expect_no_check();
        }
        let limiter = self.changed_limiter(&endpoint);
        Self::with(endpoint, Arc::clone(self.state()), limiter)
    }

    fn with(
        endpoint: Endpoint,
        state: Arc<EndpointState>,
        limiter: Option<EndpointLimiter>,
    ) -> Self {
        let header = HeaderValue::from_bytes(endpoint.name.as_bytes())
            .expect("a registry has no names with control characters");
        let model_headers = endpoint.models.iter();
        let model_headers =
            model_headers.map(|model| HeaderValue::from_bytes(model.name.as_bytes()).ok());
        Self(Arc::new(Inner {
            model_headers: model_headers.collect(),
            extensions: Extensions::default(),
            #[cfg(feature = "swap")]
            ended_at: EndedAt::of(&endpoint),
            endpoint,
            header,
            state,
            limiter,
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

    /// Its configuration.
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
    /// Below what is in flight, nothing is interrupted: slots released then are retired. With 0 it gets nothing new, and
    /// requests that only it can serve wait. After a higher limit, call
    /// [`Gate::capacity_changed`](crate::Gate::capacity_changed).
    ///
    /// A limit that adapts goes on from what was measured with the next response, or the next reading in which requests wait
    /// in its [engine](super::EngineMetrics), except from 0, which stays.
    pub fn set_limit(&self, slots: u32) {
        let state = self.state();
        state.cold.lease.set_own(&state.word, slots);
    }

    /// Whether it is healthy: neither failed checks nor failed requests keep requests away.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.state().word.is_healthy()
    }

    /// Sets whether it is healthy, as its checks do. What is in flight is not interrupted. Returns whether anything
    /// changed.
    ///
    /// Call [`Gate::capacity_changed`](crate::Gate::capacity_changed) afterwards: waiters may be served by an endpoint
    /// that is back, or have none left.
    pub fn set_healthy(&self, healthy: bool) -> bool {
        self.state().word.set_up(healthy).is_new()
    }

    /// Whether the operator keeps new requests away.
    #[must_use]
    pub fn draining(&self) -> bool {
        self.state().word.is_draining()
    }

    /// The average time until the head of a response is there. It halves about every 8 s without a response; zero before the
    /// first.
    #[must_use]
    pub fn first_byte_latency(&self) -> Duration {
        let average = &self.state().latency.first_byte;
        Duration::from_micros(average.micros(CoarseInstant::now()).into())
    }

    /// The average time until a response has ended, as [`first_byte_latency`](Self::first_byte_latency).
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

    pub(super) fn limiter(&self) -> Option<&EndpointLimiter> {
        self.0.limiter.as_ref()
    }

    #[cfg(feature = "swap")]
    pub(super) fn ended_at(&self) -> &EndedAt {
        &self.0.ended_at
    }

    pub(crate) fn state(&self) -> &Arc<EndpointState> {
        &self.0.state
    }

    /// Whether both are the same endpoint, whatever its configuration.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.state, &other.0.state)
    }
}

/// FNV-1a: the same in every process, so that prefixes keep their endpoints over a restart.
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
