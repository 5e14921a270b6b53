//! The layer that makes batches of requests.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use tower_layer::Layer;
use tower_service::Service;

use super::answers::{Answers, InOrder, PerItem};
use super::batch_item::{BatchItem, BatchItems};
use super::service::Batch;
use super::worker::{BatchLimits, Worker};
use super::{BatchError, Cost, OnOversize};
use crate::admit::{Ticket, WaitingRoomConfig};
use crate::http::HeaderClassifier;
use crate::queue::{ClassifyContext, DefaultPriority};

/// Turns a service of many requests at a time into one of single requests.
///
/// The inner service is a `Service<Vec<Req>>` that returns a `Vec` of responses, in order; or, with
/// [`per_item`](Self::per_item), of results. Requests wait for their batch in a
/// [`RequestQueue`](super::RequestQueue), and so by priority, discipline and deadline. A batch is sent
///
/// - when the waiting requests fill it, by their number or their cost; when the waiting room is full, so that no other
///   request can join; or when the first in the order of arrival, in which early retries are behind all others, has waited
///   for `max_delay`; or when the last clone of the service has been dropped;
/// - and the inner service is ready. Until then more may arrive, and those that are next by then are taken.
///
/// Waiting for a batch to fill counts as waiting: a request is rejected when its deadline passes, or when it has waited
/// for the room's `max_wait`.
///
/// The inner service decides how many batches run at a time, by when it is ready: put a
/// [`ConcurrencyLimit`](https://docs.rs/tower/0.5/tower/limit/struct.ConcurrencyLimit.html) around it for one.
///
/// If the inner service panics, in `poll_ready`, `call` or its future, the requests of the batch that it was asked for
/// get [`BatchError::Lost`], and the next batch is tried as if nothing had happened.
///
/// When a caller goes away, its request leaves the batch, unless that has been sent. When all callers of a batch that
/// was sent are gone, the batch is dropped. Readiness of the inner service that is not used is kept for the next batch.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::batch::BatchLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_triage::batch::BatchError<Infallible>> {
/// let mut lengths = ServiceBuilder::new()
///     .layer(BatchLayer::new(32, Duration::from_millis(5)))
///     .service(service_fn(|texts: Vec<String>| async move {
///         Ok::<_, Infallible>(texts.iter().map(String::len).collect::<Vec<usize>>())
///     }));
/// let answer = lengths.ready().await?.call("hello".to_owned()).await?;
/// assert_eq!(answer, 5);
/// # Ok(())
/// # }
/// ```
///
/// Each service that the layer makes has a queue and an inner service of its own; its clones share both. A task drives
/// the batches. It is started by the first call, in that call's runtime. It ends, and drops the inner service, when the
/// last clone has been dropped and the last request was sent with its batch.
pub struct BatchLayer<Req, K = DefaultPriority, M = InOrder> {
    limits: BatchLimits,
    room: WaitingRoomConfig,
    cost: Option<Arc<dyn Cost<Req>>>,
    on_oversize: OnOversize,
    classify: K,
    answers: PhantomData<fn() -> M>,
}

impl<Req> BatchLayer<Req> {
    /// Batches of at most `max_count` requests (0 counts as 1), which wait for each other for at most `max_delay`, in
    /// whole milliseconds. If that is 0, a request that finds the inner service ready is sent at once, and batches are
    /// made of the requests that arrive while it is not.
    #[must_use]
    pub fn new(max_count: usize, max_delay: Duration) -> Self {
        Self {
            limits: BatchLimits {
                max_count: max_count.max(1),
                max_delay,
                budget: u64::MAX,
            },
            room: WaitingRoomConfig::default(),
            cost: None,
            on_oversize: OnOversize::default(),
            classify: DefaultPriority,
            answers: PhantomData,
        }
    }
}

impl<Req, K, M> BatchLayer<Req, K, M> {
    /// The waiting room. Its `max_size` also limits the size of a batch. Default: [`WaitingRoomConfig::default`], where
    /// it is 100.
    #[must_use]
    pub fn room(mut self, room: WaitingRoomConfig) -> Self {
        self.room = room;
        self
    }

    /// What requests cost, and what those of a batch may cost together. A request that costs more than that is rejected.
    /// Default: only the number of requests is limited.
    #[must_use]
    pub fn cost(mut self, budget: u64, cost: impl Cost<Req>) -> Self {
        self.limits.budget = budget;
        self.cost = Some(Arc::new(cost));
        self
    }

    /// What happens when the next request in order does not fit into a batch. Default: the batch ends there.
    #[must_use]
    pub fn on_oversize(mut self, on_oversize: OnOversize) -> Self {
        self.on_oversize = on_oversize;
        self
    }

    /// Reads tickets with a closure. It is called for every request, because every one waits. Default: all requests have
    /// the default priority.
    #[must_use]
    pub fn classify<F>(self, classify: F) -> BatchLayer<Req, F, M>
    where
        F: Fn(&Req, &ClassifyContext<'_>) -> Ticket,
    {
        self.classify_with(classify)
    }

    /// Reads tickets with a [`Classify`](crate::queue::Classify); [`FromHeaders`](crate::queue::FromHeaders) reads the level of an HTTP
    /// request from its `x-priority`, and its deadline and whether it is a retry as for a queue. It is called for every
    /// request, because every one waits. Default: all requests have the default priority.
    #[must_use]
    pub fn classify_with<N>(self, classify: N) -> BatchLayer<Req, N, M> {
        BatchLayer {
            limits: self.limits,
            room: self.room,
            cost: self.cost,
            on_oversize: self.on_oversize,
            classify,
            answers: PhantomData,
        }
    }

    /// For an inner service that returns a result for each request: one may fail without the others.
    #[must_use]
    pub fn per_item(self) -> BatchLayer<Req, K, PerItem> {
        BatchLayer {
            limits: self.limits,
            room: self.room,
            cost: self.cost,
            on_oversize: self.on_oversize,
            classify: self.classify,
            answers: PhantomData,
        }
    }
}

impl<S, Req, K, M> Layer<S> for BatchLayer<Req, K, M>
where
    S: Service<Vec<Req>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + Sync + 'static,
    M: Answers<S::Response> + 'static,
    M::Answer: Send + 'static,
    M::ItemError: Send + 'static,
    Req: Send + 'static,
    K: Clone,
{
    type Service = Batch<Req, M::Answer, S::Error, M::ItemError, K>;

    fn layer(&self, inner: S) -> Self::Service {
        let mut queue = BatchItems::builder(self.room.clone())
            .on_oversize(self.on_oversize)
            .on_rejected(|item: BatchItem<Req, _, _, _>, why| {
                item.fail(BatchError::Rejected(why));
            });
        if let Some(cost) = self.cost.clone() {
            queue = queue.cost(self.limits.budget, move |item: &BatchItem<Req, _, _, _>| {
                cost.cost(&item.request)
            });
        }
        let worker = Worker::<S, Req, M>::new(inner, queue.build(), self.limits);
        let levels = self.room.levels.clone();
        let headers = HeaderClassifier::new(levels, PRIORITY_HEADER, None);
        Batch::new(worker, self.classify.clone(), headers)
    }
}

/// The header in which [`FromHeaders`](crate::queue::FromHeaders) finds the name of the level.
const PRIORITY_HEADER: HeaderName = HeaderName::from_static("x-priority");

impl<Req, K: Clone, M> Clone for BatchLayer<Req, K, M> {
    fn clone(&self) -> Self {
        Self {
            limits: self.limits,
            room: self.room.clone(),
            cost: self.cost.clone(),
            on_oversize: self.on_oversize,
            classify: self.classify.clone(),
            answers: PhantomData,
        }
    }
}

impl<Req, K, M> fmt::Debug for BatchLayer<Req, K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchLayer")
            .field("limits", &self.limits)
            .field("room", &self.room)
            .field("on_oversize", &self.on_oversize)
            .finish_non_exhaustive()
    }
}
