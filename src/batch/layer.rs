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
use crate::admit::WaitingRoomConfig;
use crate::http::HeaderClassifier;
use crate::queue::DefaultPriority;

/// Turns a service of many requests at a time into one of single requests.
///
/// The inner service is a `Service<Vec<Req>>` that answers with a `Vec` of answers, in order; or, with
/// [`per_item`](Self::per_item), of results. Requests wait for their batch in a
/// [`RequestQueue`](super::RequestQueue), and so by priority, discipline and deadline. A batch goes
///
/// - when it is full, by count or by cost; when the waiting room is full, so that no other request can join; or when
///   the request that arrived first has waited `max_delay`;
/// - and the inner service is ready. Meanwhile more may arrive, and the best of all by then are taken.
///
/// A wait for more requests counts as a wait: one whose deadline, or the room's `max_wait`, ends before is rejected.
///
/// How many batches run at a time is the inner service's to say, by when it is ready: put a
/// [`ConcurrencyLimit`](https://docs.rs/tower/0.5/tower/limit/struct.ConcurrencyLimit.html) around it for one.
///
/// If the inner service panics, in `poll_ready`, `call` or its future, the requests of the batch that it was asked for
/// get [`BatchError::Lost`], and the next batch is tried as if nothing had happened.
///
/// A caller that goes away leaves its batch if that has not gone yet. When all callers of one that has gone are
/// gone, it is dropped. If the inner service was ready for requests that left, it is kept so for the next ones.
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
/// Each service that the layer makes has a queue of its own, for it has an inner service of its own; its clones
/// share both. A task drives the batches. It is spawned by the first call, in the runtime of that. It ends, and drops the
/// inner service, when the last clone was dropped and the last request has gone with its batch.
pub struct BatchLayer<Req, K = DefaultPriority, M = InOrder> {
    limits: BatchLimits,
    room: WaitingRoomConfig,
    cost: Option<Arc<dyn Cost<Req>>>,
    on_oversize: OnOversize,
    classify: K,
    answers: PhantomData<fn() -> M>,
}

impl<Req> BatchLayer<Req> {
    /// Batches of at most `max_count` requests (0 counts as 1), which wait for each other for at most
    /// `max_delay`, in whole milliseconds. With zero, a request that finds the inner service ready goes at once, and
    /// batches are of those that arrived while it was not.
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
    /// The waiting room's configuration. Default: [`WaitingRoomConfig::default`], whose `max_size` of 100 is also the
    /// most that a batch can have.
    #[must_use]
    pub fn room(mut self, room: WaitingRoomConfig) -> Self {
        self.room = room;
        self
    }

    /// What requests cost, and how much a batch may cost at most. A request that costs more than that is rejected.
    /// Default: a batch is full by its count alone.
    #[must_use]
    pub fn cost(mut self, budget: u64, cost: impl Cost<Req>) -> Self {
        self.limits.budget = budget;
        self.cost = Some(Arc::new(cost));
        self
    }

    /// What happens when the next in order does not fit into a batch. Default: the batch ends there.
    #[must_use]
    pub fn on_oversize(mut self, on_oversize: OnOversize) -> Self {
        self.on_oversize = on_oversize;
        self
    }

    /// Reads tickets with `classify`: a closure `Fn(&Req, Instant) -> Ticket`, or a
    /// [`Classify`](crate::queue::Classify); [`FromHeaders`](crate::queue::FromHeaders) reads the level of an HTTP
    /// request from its `x-priority`. Default: the default priority. It is called for every request, because every one
    /// waits.
    #[must_use]
    pub fn classify<N>(self, classify: N) -> BatchLayer<Req, N, M> {
        BatchLayer {
            limits: self.limits,
            room: self.room,
            cost: self.cost,
            on_oversize: self.on_oversize,
            classify,
            answers: PhantomData,
        }
    }

    /// The inner service answers each request with a result of its own.
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
            .track_oldest()
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

/// Where [`FromHeaders`](crate::queue::FromHeaders) finds the name of the level.
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
