//! The layer that forms batches of requests.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use tower_layer::Layer;
use tower_service::Service;

use super::service::Batch;
use super::worker::{BatchItem, BatchItems, BatchLimits, Worker};
use super::{BatchError, Cost, OnOversize};
use crate::admit::{Ticket, WaitingRoomConfig};
use crate::http::HeaderClassifier;
use crate::queue::{ClassifyContext, DefaultPriority};

/// Turns a service of many requests at a time into one of single requests.
///
/// The inner service is a `Service<Vec<Req>>` that returns a `Vec` of responses in order, or a `Vec` of results with
/// [`per_item`](Self::per_item). Requests wait for their batch in a [`RequestQueue`](super::RequestQueue), and so by
/// priority, discipline and deadline. A batch is sent as soon as both of these hold:
///
/// - One of four events makes it due. The waiting requests fill it by their number or their cost. The waiting room is
///   full, so that other requests cannot join. The first request in the order of arrival, in which early retries are
///   behind all others, has waited for `max_delay`. Or the last clone of the service has been dropped.
/// - The inner service is ready. Until then more requests may arrive, and those that are next by then are taken.
///
/// Waiting for a batch to fill counts as waiting. A request is rejected when its deadline passes, or when it has waited
/// for the room's `max_wait`.
///
/// The inner service controls the number of batches that run at a time by the moments at which it is ready. To run one
/// at a time, put a [`ConcurrencyLimit`](https://docs.rs/tower/0.5/tower/limit/struct.ConcurrencyLimit.html) around it.
///
/// If the inner service panics in `poll_ready`, `call` or its future, the requests of the batch that it was asked for
/// get [`BatchError::Lost`]. The next batch is tried as if nothing had happened.
///
/// When a caller goes away, its request leaves the batch, unless the batch has been sent. When all callers of a batch
/// that was sent are gone, the batch is dropped. If the inner service was ready for a batch that is empty by then, that
/// readiness is kept for the next batch.
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
/// Each service that the layer makes has a queue and an inner service of its own, and its clones share both. A task
/// drives the batches. The first call starts the task in the runtime of that call. The task ends and drops the inner
/// service when the last clone has been dropped and the last request was sent with its batch.
pub struct BatchLayer<Req, K = DefaultPriority, M = InOrder> {
    limits: BatchLimits,
    room: WaitingRoomConfig,
    cost: Option<Arc<dyn Cost<Req>>>,
    on_oversize: OnOversize,
    classify: K,
    answers: PhantomData<fn() -> M>,
}

impl<Req> BatchLayer<Req> {
    /// Creates a layer with batches of at most `max_count` requests, where 0 counts as 1. They wait for each other for
    /// at most `max_delay`, in whole milliseconds. With a `max_delay` of 0, a request that finds the inner service
    /// ready is sent at once, and the requests that arrive while it is busy form the next batch.
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
    /// Sets the waiting room. Its `max_size` also limits the size of a batch. The default is
    /// [`WaitingRoomConfig::default`], which allows 100 waiters.
    #[must_use]
    pub fn room(mut self, room: WaitingRoomConfig) -> Self {
        self.room = room;
        self
    }

    /// Sets the cost of requests, and the total cost that those of a batch may have. A request that costs more than the
    /// budget is rejected. By default, only the number of requests is limited.
    #[must_use]
    pub fn cost(mut self, budget: u64, cost: impl Cost<Req>) -> Self {
        self.limits.budget = budget;
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Sets the reaction to a next request that does not fit into a batch. By default, the batch ends there.
    #[must_use]
    pub fn on_oversize(mut self, on_oversize: OnOversize) -> Self {
        self.on_oversize = on_oversize;
        self
    }

    /// Reads tickets with a closure, which is called for every request because every one waits. By default, all
    /// requests have the default priority.
    #[must_use]
    pub fn classify<F>(self, classify: F) -> BatchLayer<Req, F, M>
    where
        F: Fn(&Req, &ClassifyContext<'_>) -> Ticket,
    {
        self.classify_with(classify)
    }

    /// Reads tickets with a [`Classify`](crate::queue::Classify), which is called for every request because every one
    /// waits. For HTTP requests, [`FromHeaders`](crate::queue::FromHeaders) reads the level from the header
    /// `x-priority`. It reads the deadline, and the mark of a retry, from the same headers as for a queue. By default,
    /// all requests have the default priority.
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

    /// Expects a result for each request from the inner service, so that one request may fail without the others.
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

/// A way to split the answer to a batch into answers to its requests, which is [`InOrder`] or [`PerItem`].
pub trait Answers<R>: sealed::Sealed {
    /// The answer to one request.
    type Answer;
    /// The error of one request that fails while others of its batch succeed.
    type ItemError;

    #[doc(hidden)]
    fn split(response: R) -> Vec<Result<Self::Answer, Self::ItemError>>;
}

mod sealed {
    /// A supertrait that limits the implementations to those of this crate.
    pub trait Sealed {}
}

/// The way to split a `Vec` of answers, which the inner service returns in the order of the requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct InOrder;

/// The way to split a `Vec` of results, which the inner service returns in the order of the requests. Each request
/// fails for itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct PerItem;

impl sealed::Sealed for InOrder {}
impl sealed::Sealed for PerItem {}

impl<A> Answers<Vec<A>> for InOrder {
    type Answer = A;
    type ItemError = Infallible;

    fn split(response: Vec<A>) -> Vec<Result<A, Infallible>> {
        response.into_iter().map(Ok).collect()
    }
}

impl<A, I> Answers<Vec<Result<A, I>>> for PerItem {
    type Answer = A;
    type ItemError = I;

    fn split(response: Vec<Result<A, I>>) -> Vec<Result<A, I>> {
        response
    }
}
