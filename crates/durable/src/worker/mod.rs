//! The worker, which takes requests from a store when it has slots for them, and runs them in a service.

mod attempt;
mod direct;
mod dispatch;
mod events;
mod guard;
mod place;
mod queue;
mod response;
mod retry;
mod slots;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::store_health::StoreHealth;
use super::{OnCrash, Store};
use dispatch::dispatch;

pub use retry::RetryPolicy;
#[cfg(feature = "webhooks")]
pub(crate) use retry::retry_after;
pub use slots::{NoSlot, Slot, SlotWait, Slots};

/// A worker that takes requests from a [`Store`] and runs them in a Tower service.
///
/// # Late binding
///
/// A worker only holds requests that it can start at once. For each queue with a backlog it waits for a slot, as a
/// single waiter with the level, tenant and cost of the queue's most urgent request. When it gets the slot, it takes
/// the request that is the most urgent by then. So an urgent request that arrives meanwhile goes first, on whichever
/// machine it arrived. A level below those of the online traffic gets exactly the slots that the online traffic leaves
/// free.
///
/// A store on Redis lets a request begin in the step that stores it, if the worker of the same process has a free slot and
/// no other request of the queue waits.
///
/// The slots come from a [`Gate`](tower_triage::Gate) that [`slots`](Self::slots) sets. A slot travels in the extensions of
/// its request, where the layer of that gate finds it and so skips its own wait. The gate's bounds on waiters and waits
/// do not apply to stored requests. Without a gate, a worker runs as many requests as the service's `poll_ready`
/// admits, so it would call an unbounded service with the whole backlog at once.
///
/// # Attempts
///
/// The service gets the request as its caller sent it, without the headers that steer the storing. The worker adds
/// `x-triage-request-id` and `x-triage-attempt`, which counts from 1. The worker drops the call when the request is
/// cancelled, at its deadline, and after [`attempt_timeout`](Self::attempt_timeout). It frees the slot before it stores
/// the outcome. While the store is unavailable, the worker keeps the outcome and tries to store it again.
///
/// With [`OnCrash::Fail`], a router inside the service leaves a request at the first endpoint that may have worked on
/// it. Other layers that retry requests must be configured to do the same.
///
/// A response with any status is the outcome of its request, unless a [`RetryPolicy`] lets the request run again after a pause.
/// A request without a response fails with one of these
/// reasons:
///
/// | reason | cause |
/// |---|---|
/// | `attempt_timeout` | the attempt took too long |
/// | `invalid_request` | the worker can't decode the stored request |
/// | `response_too_large` | the response is larger than [`response_limit`](Self::response_limit) |
/// | `service_failed` | the service returned an error, or the response's body broke off |
/// | `worker_panicked` | the service panicked; the worker goes on |
/// | `worker_lost` | the worker was dropped while it ran, and [`on_crash`](Self::on_crash) does not allow another attempt |
///
/// ```
/// use std::sync::Arc;
/// use tower_triage_durable::{Store, Worker};
/// # use bytes::Bytes;
/// # use http::{Request, Response};
/// # use http_body_util::Full;
/// # use tower::{Layer, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # fn start(store: Arc<dyn Store>) {
/// let layer = QueueLayer::new(QueueConfig::new(8));
/// let gate = layer.handle().gate().expect("it has slots of its own").clone();
/// # let backend = service_fn(|_: Request<Full<Bytes>>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(Full::from("")))
/// # });
/// let service = layer.layer(backend); // it may serve online traffic, too
/// tokio::spawn(Worker::new(store, service).slots(gate).run());
/// # }
/// ```
#[must_use = "a worker does nothing unless it is run"]
pub struct Worker<S> {
    store: Arc<dyn Store>,
    service: S,
    settings: Settings,
    shutdown: CancellationToken,
}

/// The settings of a worker and its attempts.
struct Settings {
    slots: Option<Arc<dyn Slots>>,
    attempt_timeout: Duration,
    response_limit: usize,
    on_crash: OnCrash,
    retry: RetryPolicy,
}

/// The state that all tasks of one worker share.
struct Shared {
    store: Arc<dyn Store>,
    settings: Settings,
    health: StoreHealth,
    shutdown: CancellationToken,
}

impl<S> Worker<S> {
    /// Creates a worker that runs the requests of this store in this service.
    pub fn new(store: Arc<dyn Store>, service: S) -> Self {
        Self {
            store,
            service,
            settings: Settings {
                slots: None,
                attempt_timeout: Duration::from_secs(3_600),
                response_limit: 100 << 20,
                on_crash: OnCrash::Fail,
                retry: RetryPolicy::default(),
            },
            shutdown: CancellationToken::new(),
        }
    }

    /// Sets the source of slots, such as the [`Gate`](tower_triage::Gate) of a layer that is the service or inside of it.
    pub fn slots(mut self, slots: impl Slots) -> Self {
        self.settings.slots = Some(Arc::new(slots));
        self
    }

    /// Sets the longest time that an attempt may take, with the reading of its response. The default is one hour.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.settings.attempt_timeout = timeout;
        self
    }

    /// Sets the largest body of a response in bytes, 100 MiB by default.
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.settings.response_limit = bytes;
        self
    }

    /// Sets the fate of the requests that run when the worker is dropped, [`OnCrash::Fail`] by default. Use the value
    /// of the store's [own setting](super::StoreConfig::on_crash).
    pub fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.settings.on_crash = on_crash;
        self
    }

    /// Sets the rule by which requests run again whose attempt failed. By default, each one ends with its first attempt.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// Sets a token that stops the worker. Once it is cancelled, the worker stops taking requests, and
    /// [`run`](Self::run) returns when the running ones have ended.
    pub fn shutdown(mut self, token: CancellationToken) -> Self {
        self.shutdown = token;
        self
    }

    /// Takes requests and runs them until the [shutdown](Self::shutdown), or until the gate of its slots is closed. It
    /// then waits until all running requests have ended and their outcomes are stored.
    ///
    /// The store stays open, because a front may still read from it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops all running calls. As [`on_crash`](Self::on_crash) says, their requests either fail
    /// with the reason `worker_lost` or get another attempt.
    pub async fn run<B>(self)
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        S::Future: Send,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let shared = Shared {
            store: self.store,
            settings: self.settings,
            health: StoreHealth::default(),
            // This token is a child, because a closed gate must end this worker alone.
            shutdown: self.shutdown.child_token(),
        };
        dispatch(Arc::new(shared), self.service).await;
    }
}

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("attempt_timeout", &self.settings.attempt_timeout)
            .field("response_limit", &self.settings.response_limit)
            .finish_non_exhaustive()
    }
}
