//! An endpoint in service, which is its configuration with its live state.

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

/// A handle to an endpoint in service, with its configuration and its live numbers. Clones are cheap and refer to the
/// same endpoint.
#[derive(Clone)]
pub struct EndpointRef(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    header: HeaderValue,
    /// The names of the endpoint's models as header values, with `None` for a name that a header cannot carry.
    model_headers: Box<[Option<HeaderValue>]>,
    state: Arc<EndpointState>,
    /// The limiter that finds the limit by measurement, if the limit adapts.
    limiter: Option<EndpointLimiter>,
    extensions: Extensions,
    #[cfg(feature = "swap")]
    ended_at: EndedAt,
}

/// The live state of an endpoint in service, which outlives changes of the configuration.
///
/// A decision reads the state of each candidate. The state is aligned to a cache line, so that each read costs one line
/// and requests to other endpoints do not write it.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct EndpointState {
    pub(crate) word: EndpointWord,
    pub(crate) latency: Latency,
    pub(crate) ejection: Ejection,
    pub(crate) cold: Box<ColdState>,
    pub(crate) pool: PoolId,
    /// The hash of the endpoint's name, which `prefix_affinity` uses.
    pub(crate) hash: u64,
}

/// The part of the state that a decision skips, unless the request has failed elsewhere. It has its own allocation so
/// that it stays out of the cache line.
#[derive(Debug)]
pub(crate) struct ColdState {
    /// The number of responses and parts of responses that the endpoint has sent, without the answers to checks. It
    /// wraps around. A backend with one thread misses checks while it streams, and this count shows that it still
    /// works. Each frame of each response writes it.
    pub(crate) activity: AtomicU32,
    pub(crate) id: EndpointId,
    /// The bound on the limit by leased slots. It is read after each slot that is taken if the endpoint has only leased
    /// slots.
    pub(super) lease: SlotLease,
}

/// A number that identifies an endpoint forever, while its pool may be used again after the endpoint has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EndpointId(u64);

impl EndpointId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed is enough because the numbers are only compared.
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

impl EndpointState {
    /// Returns `true` if this endpoint is in service, so that another one may be ejected.
    ///
    /// A new endpoint counts only while it is idle and has not failed a request, because it may turn out not to work.
    pub(super) fn can_stand_in(&self) -> bool {
        let seen = self.word.load();
        let was_asked = seen.in_use() > 0 || self.ejection.is_failing();
        self.word.is_in_service() && !(seen.flags().is_new() && was_asked)
    }

    /// Gives back the slot that `choice` has just taken if the lease of the endpoint's slots has ended. It then takes
    /// all slots away from the endpoint, and returns `true`.
    pub(super) fn return_after_lease(&self, choice: &Candidate<'_>) -> bool {
        if !self.cold.lease.has_ended() {
            return false;
        }
        self.cold.lease.end(&self.word);
        // If the request was the probe, the next request may be the probe instead.
        if choice.is_probe() {
            self.word.return_probe(choice.seen.next_probe());
        }
        self.word.release();
        true
    }
}

/// The upper bound of priority numbers. A larger number counts as this one.
const LOWEST_PRIORITY: u8 = 100;

impl EndpointRef {
    /// Makes an endpoint that enters service, with its slots in `pool`.
    ///
    /// With `answers_first`, the endpoint gets one request at a time until it has answered a request or passed a check.
    /// With `leases_slots`, it has only the slots that are leased to it. Both are ignored for an endpoint that is
    /// started on demand.
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
            state.word.stop();
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

    /// Returns the same endpoint with another configuration, so that it keeps its live state.
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

    /// Returns the name of the endpoint.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.endpoint.name
    }

    /// Returns the name of the endpoint as the value of a response header.
    #[must_use]
    pub fn header_value(&self) -> &HeaderValue {
        &self.0.header
    }

    /// Returns the name of the endpoint's `nth` model as the value of a response header.
    pub(crate) fn model_header(&self, nth: u16) -> Option<&HeaderValue> {
        self.0.model_headers.get(usize::from(nth))?.as_ref()
    }

    /// Returns the base URL of the endpoint. Its path is put before the path of a request.
    #[must_use]
    pub fn url(&self) -> &Uri {
        &self.0.endpoint.url
    }

    /// Returns the configuration of the endpoint.
    #[must_use]
    pub fn config(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// Returns the priority number, from 0 to 100. Endpoints with a lower number are preferred.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.priority_byte().into()
    }

    pub(super) fn priority_byte(&self) -> u8 {
        let byte = u8::try_from(self.0.endpoint.priority);
        byte.map_or(LOWEST_PRIORITY, |byte| byte.min(LOWEST_PRIORITY))
    }

    /// Returns the pool of [`Endpoints`](super::Endpoints) that the endpoint's slots belong to.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        self.0.state.pool
    }

    /// Returns the number of requests that the endpoint serves at this moment.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.state().word.load().in_use()
    }

    /// Returns the number of requests that the endpoint may serve at a time.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.state().word.load().limit()
    }

    /// Sets the number of requests that the endpoint may serve at a time.
    ///
    /// If more requests are in flight, they continue, and the slots that they give back are retired. With 0, new
    /// requests stay away, and requests that only this endpoint can serve wait. After you raise the limit, call
    /// [`Gate::capacity_changed`](crate::Gate::capacity_changed).
    ///
    /// A limit that adapts continues from its measurements with the next response, or with the next reading of its
    /// [engine](super::EngineMetrics) in which requests wait. A limit of 0 is the exception and stays.
    pub fn set_limit(&self, slots: u32) {
        let state = self.state();
        state.cold.lease.set_own(&state.word, slots);
    }

    /// Returns `true` if the endpoint is healthy, which means that it is up by its checks and is not ejected because of
    /// failed requests.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.state().word.is_healthy()
    }

    /// Records whether the endpoint is healthy, as its checks do, and returns `true` if anything changed. Requests in
    /// flight continue.
    ///
    /// Call [`Gate::capacity_changed`](crate::Gate::capacity_changed) afterwards, because an endpoint that is back may
    /// serve waiters, and an endpoint that is down may leave waiters that can no longer be served.
    pub fn set_healthy(&self, healthy: bool) -> bool {
        self.state().word.set_up(healthy).is_new()
    }

    /// Returns `true` while the operator keeps new requests away from the endpoint.
    #[must_use]
    pub fn draining(&self) -> bool {
        self.state().word.is_draining()
    }

    /// Returns the average time until the head of a response arrives.
    ///
    /// The average halves about every 8 s without a response, and is zero before the first one.
    #[must_use]
    pub fn first_byte_latency(&self) -> Duration {
        let average = &self.state().latency.first_byte;
        Duration::from_micros(average.micros(CoarseInstant::now()).into())
    }

    /// Returns the average time until a response has ended.
    ///
    /// The average halves about every 8 s without a response, and is zero before the first one.
    #[must_use]
    pub fn total_latency(&self) -> Duration {
        let average = &self.state().latency.total;
        Duration::from_micros(average.micros(CoarseInstant::now()).into())
    }

    /// Returns the value of type `T` that is stored with this endpoint, such as a client of its own or prepared
    /// headers.
    ///
    /// The first call makes the value by `make`, and later calls return it without a lock. Each type has one value, so
    /// make `T` a type of your own. The values belong to the configuration, so an endpoint that is configured
    /// differently starts without them.
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

    /// Returns `true` if both are the same endpoint, whatever its configuration.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.state, &other.0.state)
    }
}

/// Hashes a name by FNV-1a, which is the same in every process, so that prefixes keep their endpoints over a restart.
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
