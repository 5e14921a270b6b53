//! Workers: they take requests from a store when they have slots for them, and run them.

mod attempt;
mod dispatch;
mod events;
mod guard;
mod place;
mod queue;
mod response;
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

pub use slots::{NoSlot, Slot, SlotWait, Slots};

/// Takes requests from a [`Store`] and runs them in a Tower service.
///
/// # Late binding
///
/// A worker never holds a request that it can't start. For each queue with a backlog it waits for a slot, as one waiter with
/// the level, tenant and cost of the queue's most urgent request. With the slot in hand it takes the most urgent request by
/// then. So an urgent request that arrives meanwhile goes first, on whatever machine it arrived, and a level below those of
/// the online traffic gets exactly the slots that the online traffic leaves.
///
/// The slots are those of a [`Gate`](crate::Gate), given by [`slots`](Self::slots). The slot rides in the request's
/// extensions, where the layer of that gate takes it instead of waiting. Stored requests are not refused by the gate's bounds
/// on waiters and waits. Without a gate, a worker runs as many requests as the service's `poll_ready` admits: an unbounded
/// service would be called with the whole backlog at once.
///
/// # Attempts
///
/// The service gets the request as its caller sent it, without the headers that say how it is stored, and with two more:
/// `x-triage-request-id` and `x-triage-attempt`, from 1. The call is dropped when the request is cancelled, when its time is
/// up and after [`attempt_timeout`](Self::attempt_timeout). Its slot is free before its outcome is stored. While the store is
/// unavailable, the outcome is kept and stored again until that succeeds.
///
/// With [`OnCrash::Fail`], a router inside does not send a request to another endpoint once one may have worked on it.
/// Another layer that retries has to be told by its user.
///
/// A request whose service responds with any status has its outcome. One without a response has failed with a reason:
///
/// | reason | cause |
/// |---|---|
/// | `attempt_timeout` | the attempt took too long |
/// | `response_too_large` | the response is larger than [`response_limit`](Self::response_limit) |
/// | `service_failed` | the service returned an error, or the response's body broke off |
/// | `worker_panicked` | the service panicked; the worker goes on |
/// | `worker_lost` | the worker was dropped while it ran, and [`on_crash`](Self::on_crash) does not have it retried |
///
/// ```
/// use std::sync::Arc;
/// use tower_triage::durable::{Store, Worker};
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

/// The settings of a worker's attempts.
struct Settings {
    slots: Option<Arc<dyn Slots>>,
    attempt_timeout: Duration,
    response_limit: usize,
    on_crash: OnCrash,
}

/// The state that the tasks of one worker share.
struct Shared {
    store: Arc<dyn Store>,
    settings: Settings,
    health: StoreHealth,
    shutdown: CancellationToken,
}

impl<S> Worker<S> {
    /// Makes a worker that runs the store's requests in this service.
    pub fn new(store: Arc<dyn Store>, service: S) -> Self {
        Self {
            store,
            service,
            settings: Settings {
                slots: None,
                attempt_timeout: Duration::from_secs(3_600),
                response_limit: 100 << 20,
                on_crash: OnCrash::Fail,
            },
            shutdown: CancellationToken::new(),
        }
    }

    /// Sets the source of slots, such as a [`Gate`](crate::Gate) whose layer is the service or inside of it.
    pub fn slots(mut self, slots: impl Slots) -> Self {
        self.settings.slots = Some(Arc::new(slots));
        self
    }

    /// Sets the longest time that an attempt may take, its response's body included. Default: one hour.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.settings.attempt_timeout = timeout;
        self
    }

    /// Sets the largest body of a response, in bytes. Default: 100 MiB.
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.settings.response_limit = bytes;
        self
    }

    /// Sets the end of requests that run when the worker is dropped. It should be the store's own
    /// [setting](super::StoreConfig::on_crash). Default: [`OnCrash::Fail`].
    pub fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.settings.on_crash = on_crash;
        self
    }

    /// Stops taking requests when `token` is cancelled. [`run`](Self::run) returns when those that run have ended.
    pub fn shutdown(mut self, token: CancellationToken) -> Self {
        self.shutdown = token;
        self
    }

    /// Takes requests and runs them, until the [shutdown](Self::shutdown) or until the gate of its slots is closed, and then
    /// until the requests that run have ended and their outcomes are stored.
    ///
    /// The store stays open, because a front may still read from it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the calls that run. Their requests have failed with the reason `worker_lost`, or are tried again, as
    /// [`on_crash`](Self::on_crash) says.
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
            // Of its own: a closed gate ends this worker alone.
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
