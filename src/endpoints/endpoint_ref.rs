//! An endpoint in service, which is its configuration with its live state.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http::{HeaderValue, Uri};

use super::Endpoint;
use super::ejection::Ejection;
use super::endpoint_word::{Admissible, EndpointWord, HealthFlags};
use super::health::{EndpointHealth, HealthRecord};
use super::latency::{CoarseInstant, Latency};
use super::refusals::Refusals;
use super::slot_lease::SlotLease;
use super::strategy::{Candidate, forbid_in_strategy};
use super::tenants::TenantRecord;
use crate::admit::{Limiter, PoolId};

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
    extensions: Extensions,
}

/// The live state of an endpoint in service, which outlives changes of the configuration.
///
/// A decision reads the state of each candidate. It is aligned to a cache line, so that each read costs one line and
/// requests to other endpoints do not write it.
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
    /// `true` if a launcher starts the endpoint when requests wait for it. It is here as well as in the configuration because
    /// each request reads it.
    pub(crate) is_on_demand: bool,
}

/// The part of the state that a decision skips, unless the request has failed elsewhere.
#[derive(Debug)]
pub(crate) struct ColdState {
    /// The time and the reason of the last change of the endpoint's health.
    pub(crate) health: HealthRecord,
    /// The number of requests that the endpoint failed.
    pub(crate) failures: AtomicU64,
    /// The number of requests that were tried again after they failed at the endpoint.
    pub(crate) retries: AtomicU64,
    /// The number of requests that the endpoint refused because it was full.
    pub(crate) refused: AtomicU64,
    /// The bound that refusals put on the limit.
    pub(crate) refusals: Refusals,
    /// The tenants that the endpoint served, and those that had trouble there.
    pub(crate) tenants: TenantRecord,
    /// The number of times that the endpoint became the last resort because it answered nobody. It wraps around.
    pub(crate) silences: AtomicU32,
    /// The number of parts of responses that the endpoint has sent, without the answers to checks. It wraps around. A
    /// backend with one thread misses checks while it streams, and this count shows that it still works.
    pub(crate) activity: AtomicU32,
    pub(crate) id: EndpointId,
    /// The bound on the limit by leased slots. It is read after each slot that is taken if the endpoint has only leased
    /// slots.
    pub(super) lease: SlotLease,
    /// The measurements that find the limit, or `None` while the limit is fixed.
    pub(super) limiter: Mutex<Option<Limiter>>,
    /// The link to the gate, for a limit that is set from outside.
    gate_notice: GateNotice,
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
    /// Returns `true` if this endpoint is in service, so that another one may be ejected. One that has yet to answer counts only
    /// while it is idle and has not failed a request, because it may turn out not to work.
    pub(super) fn can_stand_in(&self) -> bool {
        let seen = self.word.load();
        let was_asked = seen.in_use() > 0 || self.ejection.failures.is_running();
        let flags = seen.flags();
        match flags.admissible() {
            Admissible::Always => true,
            Admissible::LastResort => !was_asked,
            Admissible::Probe | Admissible::Never => false,
        }
    }

    /// Makes the gate look at its waiters again. It takes the gate's lock.
    pub(crate) fn tell_gate(&self) {
        self.cold.gate_notice.send();
    }

    /// Gives back the slot that `choice` has just taken, and takes all slots away from the endpoint, if the lease of its
    /// slots has ended. Returns `true` then.
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

impl EndpointRef {
    /// Makes an endpoint that enters service, with its slots in `pool`.
    pub(super) fn new(endpoint: Endpoint, pool: PoolId, gate_notice: GateNotice) -> Self {
        let limiter = endpoint.limit.as_ref().map(Limiter::new);
        let limiter = limiter.transpose();
        let slots = endpoint.initial_slots();
        let state = EndpointState {
            word: EndpointWord::new(slots),
            latency: Latency::default(),
            ejection: Ejection::default(),
            cold: Box::new(ColdState {
                health: HealthRecord::new(),
                failures: AtomicU64::new(0),
                retries: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                refusals: Refusals::default(),
                tenants: TenantRecord::default(),
                silences: AtomicU32::new(0),
                activity: AtomicU32::new(0),
                id: EndpointId::next(),
                lease: SlotLease::new(slots),
                limiter: Mutex::new(limiter.expect("a registry has no limits that make no sense")),
                gate_notice,
            }),
            pool,
            hash: hash(&endpoint.name),
            is_on_demand: endpoint.is_on_demand(),
        };
        Self::with(endpoint, Arc::new(state))
    }

    /// Returns the same endpoint with another configuration, so that it keeps its live state.
    pub(super) fn changed_to(&self, endpoint: Endpoint) -> Self {
        let changed = Self::with(endpoint, Arc::clone(self.state()));
        if changed.config().health.is_none() {
            _ = changed.state().word.set(HealthFlags::UNKNOWN, false); // only requests show if it works
        }
        changed.reconfigure_limiter();
        changed
    }

    fn with(endpoint: Endpoint, state: Arc<EndpointState>) -> Self {
        let header = HeaderValue::from_bytes(endpoint.name.as_bytes())
            .expect("a registry has no names with control characters");
        let models = endpoint.models.iter();
        let model_headers = models.map(|model| HeaderValue::from_bytes(model.name.as_bytes()).ok());
        Self(Arc::new(Inner {
            model_headers: model_headers.collect(),
            extensions: Extensions::default(),
            endpoint,
            header,
            state,
        }))
    }

    /// Returns the name of the endpoint.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.endpoint.name
    }

    /// Returns the name of the endpoint as the value of a response header.
    pub(crate) fn header_value(&self) -> &HeaderValue {
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
        self.config().priority.min(100)
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

    /// Sets the number of requests that the endpoint may serve at a time. In a router, waiting requests get new slots at
    /// once. For a [`Gate`](crate::Gate) of your own, call [`Gate::capacity_changed`](crate::Gate::capacity_changed)
    /// afterwards.
    ///
    /// If more requests are in flight, they continue, and the slots that they give back are retired. With 0, requests that
    /// only this endpoint can serve wait. A limit that adapts continues from the new limit, unless that is 0.
    ///
    /// # Panics
    ///
    /// Panics if a [`Strategy`](super::Strategy) calls it, because it waits for the lock under which the strategy runs.
    pub fn set_limit(&self, slots: u32) {
        forbid_in_strategy("EndpointRef::set_limit");
        self.set_own_limit(slots);
        self.state().tell_gate();
    }

    /// Sets the limit of the endpoint, and leaves it to the caller to notify the gate.
    pub(super) fn set_own_limit(&self, slots: u32) {
        let state = self.state();
        state.cold.lease.set_own(&state.word, slots);
    }

    /// Returns `true` if the endpoint passes its checks and is not ejected because of failed requests.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.state().word.flags().is_healthy()
    }

    /// Records whether the endpoint is healthy, as its checks do, and returns `true` if anything changed. Requests in
    /// flight continue. Call [`Gate::capacity_changed`](crate::Gate::capacity_changed) afterwards, because waiters may be
    /// served, or may not be servable any more.
    pub fn set_healthy(&self, healthy: bool) -> bool {
        self.state().word.set_up(healthy).is_new()
    }

    /// Returns `true` while the operator keeps new requests away from the endpoint.
    #[must_use]
    pub fn draining(&self) -> bool {
        self.state().word.flags().contains(HealthFlags::DRAINING)
    }

    /// Returns the state of the endpoint's health, the time since it changed, and the reason.
    ///
    /// ```
    /// use tower_triage::RouteLayer;
    /// use tower_triage::endpoints::{Endpoint, HealthState, Registry};
    ///
    /// let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"));
    /// let handle = RouteLayer::builder(Registry::new(vec![gpu])?).build().handle();
    /// let endpoint = &handle.endpoints()[0];
    /// assert_eq!(endpoint.health().state, HealthState::Healthy); // it has no check
    /// handle.set_healthy(endpoint, false);
    /// assert_eq!(endpoint.health().state, HealthState::Down);
    /// # Ok::<(), tower_triage::endpoints::InvalidRegistry>(())
    /// ```
    #[must_use]
    pub fn health(&self) -> EndpointHealth {
        let state = self.state();
        state.cold.health.report(state.word.flags())
    }

    /// Returns the number of requests that the endpoint failed since it entered service: those without a response, those
    /// with a status of 5xx that is no [refusal](Self::refusals), and those whose response broke off. Each attempt of a request counts.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.state().cold.failures.load(Relaxed)
    }

    /// Returns the number of requests that the endpoint refused because it was full: with 429, 529, or 503 and a
    /// `Retry-After`. They are neither failures nor successes, and most of them are served later or elsewhere.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.state().cold.refused.load(Relaxed)
    }

    /// Returns the number of requests that were tried again after they failed at this endpoint.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.state().cold.retries.load(Relaxed)
    }

    /// Returns the average time until the head of a response arrives. It halves about every 8 s without a response, and
    /// is zero before the first one.
    #[must_use]
    pub fn first_byte_latency(&self) -> Duration {
        let average = &self.state().latency.first_byte;
        Duration::from_micros(average.micros(CoarseInstant::now()).into())
    }

    /// Returns the average time until a response has ended. It halves about every 8 s without a response, and is zero
    /// before the first one.
    #[must_use]
    pub fn total_latency(&self) -> Duration {
        let average = &self.state().latency.total;
        Duration::from_micros(average.micros(CoarseInstant::now()).into())
    }

    /// Returns the value of type `T` that is stored with this endpoint, such as a client of its own. The first call makes
    /// it by `make`, and later calls return it without a lock.
    ///
    /// Each type has one value, so make `T` a type of your own. The values belong to the configuration, so an endpoint that
    /// is configured differently starts without them.
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

    /// Returns `true` if a launcher starts the endpoint when requests wait for it.
    #[inline]
    pub(crate) fn is_on_demand(&self) -> bool {
        self.0.state.is_on_demand
    }

    pub(crate) fn state(&self) -> &Arc<EndpointState> {
        &self.0.state
    }
}

/// Two are equal if they are the same endpoint, whatever its configuration.
impl PartialEq for EndpointRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.state, &other.0.state)
    }
}

impl Eq for EndpointRef {}

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

/// A link from all endpoints of a capacity to its gate, by which waiters get new slots at once. A limit may be set through
/// an [`EndpointRef`], which knows no gate. The link does nothing until the router has connected it.
#[derive(Clone, Default)]
pub(crate) struct GateNotice(Arc<OnceLock<Notify>>);

/// A callback that makes the gate look at its waiters again.
type Notify = Box<dyn Fn() + Send + Sync>;

impl GateNotice {
    /// Connects the endpoints to the gate that `notify` reaches. Later calls are ignored.
    pub(crate) fn connect(&self, notify: impl Fn() + Send + Sync + 'static) {
        _ = self.0.set(Box::new(notify));
    }

    /// Makes the gate look at its waiters again. It takes the gate's lock.
    fn send(&self) {
        if let Some(notify) = self.0.get() {
            notify();
        }
    }
}

impl fmt::Debug for GateNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateNotice")
            .field("connected", &self.0.get().is_some())
            .finish()
    }
}

/// A list of values of different types. Each value is made at its first use, and is read without a lock.
#[derive(Default)]
struct Extensions(OnceLock<Box<Node>>);

struct Node {
    value: Box<dyn Any + Send + Sync>,
    next: Extensions,
}

impl Extensions {
    /// Returns the value of type `T`. The first call makes it by `make`.
    fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let mut make = Some(make);
        let mut list = self;
        loop {
            let node = list.0.get_or_init(|| {
                // The closure runs at most once, because the node that it makes has the right type and ends the loop.
                let make = make.take().unwrap_or_else(|| unreachable!("made once"));
                Box::new(Node {
                    value: Box::new(make()),
                    next: Self::default(),
                })
            });
            match node.value.downcast_ref() {
                Some(value) => return value,
                None => list = &node.next,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn each_type_has_one_value() {
        let extensions = Extensions::default();
        assert_eq!(*extensions.get_or_init(|| 1_u8), 1);
        assert_eq!(*extensions.get_or_init(|| "a"), "a");
        assert_eq!(*extensions.get_or_init(|| 2_u8), 1);
        assert_eq!(*extensions.get_or_init(|| "b"), "a");
    }

    #[test]
    fn threads_that_make_a_value_at_once_agree() {
        let extensions = &Extensions::default();
        thread::scope(|scope| {
            let tasks = [1_u32, 2, 3].map(|n| {
                scope.spawn(move || {
                    extensions.get_or_init(|| u64::from(n));
                    *extensions.get_or_init(|| n)
                })
            });
            let seen = tasks.map(|task| task.join().unwrap());
            assert!(seen.iter().all(|&n| n == seen[0]), "{seen:?}");
        });
    }
}
