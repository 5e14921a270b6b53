//! The service of single requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tower_service::Service;

use super::future::BatchFuture;
use super::layer::Answers;
use super::shared::Shared;
use super::worker::{BatchItem, BatchItems, InnerFailure, Worker};
use super::{BatchError, EnqueueError};
use crate::admit::RejectReason;
use crate::gate;
use crate::gate::reserve::Reserved;
use crate::http::HeaderClassifier;
use crate::queue::{Classify, ClassifyContext, DefaultPriority};
use crate::service::ReadyState;

/// A service of single requests in front of a service of batches. It is made by [`BatchLayer`](super::BatchLayer).
///
/// Clones share the queue and the inner service. A place that was reserved by `poll_ready` belongs to the clone that
/// was polled, until that clone is called or dropped. A new clone starts without a place. A call without a reservation
/// may be rejected as [`Full`](RejectReason::Full), or displace another request
/// ([`displace`](crate::WaitingRoomConfig::displace)).
pub struct Batch<Req, A, E, I, K = DefaultPriority> {
    common: Arc<Common<Req, A, E, I>>,
    ready: ReadyState<Shared<BatchItem<Req, A, E, I>>>,
    classify: K,
}

struct Common<Req, A, E, I> {
    queue: BatchItems<Req, A, E, I>,
    headers: HeaderClassifier,
    inner_failure: InnerFailure<E>,
    /// The task that drives the batches, or `None` once it is spawned.
    task: Mutex<Option<Task>>,
    /// The runtime in which the task was spawned. Waits end by the clock of that runtime, in whichever runtime the
    /// callers are.
    runtime: OnceLock<Handle>,
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<Req, A, E, I, K> Batch<Req, A, E, I, K> {
    pub(super) fn new<S, M>(
        worker: Worker<S, Req, M>,
        classify: K,
        headers: HeaderClassifier,
    ) -> Self
    where
        S: Service<Vec<Req>, Error = E> + Send + 'static,
        S::Future: Send + 'static,
        M: Answers<S::Response, Answer = A, ItemError = I> + 'static,
        Req: Send + 'static,
        A: Send + 'static,
        E: Send + Sync + 'static,
        I: Send + 'static,
    {
        let common = Common {
            queue: worker.waiting.0.clone(),
            headers,
            inner_failure: Arc::clone(&worker.failure),
            task: Mutex::new(Some(Box::pin(worker.run()))),
            runtime: OnceLock::new(),
        };
        Self {
            ready: ReadyState::IDLE,
            common: Arc::new(common),
            classify,
        }
    }
}

impl<Req, A, E, I, K> Service<Req> for Batch<Req, A, E, I, K>
where
    Req: Send + 'static,
    A: Send + 'static,
    E: Send + Sync + 'static,
    I: Send + 'static,
    K: Classify<Req>,
{
    type Response = A;
    type Error = BatchError<E, I>;
    type Future = BatchFuture<Req, A, E, I>;

    /// Becomes ready once a place in the waiting room is reserved for the call that follows. Returns an error if
    /// batches are not sent any more, because the inner service has failed for good or the runtime of the first call
    /// was shut down.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A closed queue is ready at once and without a place, because the call would be rejected.
        ready!(self.ready.poll_reserve(&self.common.queue.shared, cx));
        Poll::Ready(match self.common.queue.is_closed() {
            true => Err(self.common.failure()),
            false => Ok(()),
        })
    }

    /// Adds the request to the queue, and returns the future of its response.
    ///
    /// # Panics
    ///
    /// Panics if the first call is made outside a Tokio runtime. A runtime without a timer loses every batch.
    fn call(&mut self, request: Req) -> Self::Future {
        // The runtime is entered, so that the queue's timer is armed in the runtime of the task.
        let _runtime = self.common.runtime().enter();
        let now = gate::now();
        let context = ClassifyContext::new(Some(now), &self.common.headers);
        let mut ticket = self.classify.ticket(&request, &context);
        // An arrival in the future is moved to the present, because it would mean a wait without an end.
        ticket.arrival = Some(ticket.arrival.map_or(now, |arrival| arrival.min(now)));
        let (reply, answer) = oneshot::channel();
        let item = BatchItem { request, reply };
        let queue = &self.common.queue;
        // The reservation is kept until it is used, because the cost function may panic.
        let reservation = self.ready.take().and_then(|prepared| prepared.0);
        let enqueued = queue.enqueue_on(reservation.is_some(), item, ticket);
        // `enqueue_on` has ended the reservation, so it must not be given back a second time.
        reservation.into_iter().for_each(Reserved::hand_over);
        match enqueued {
            Ok(id) => BatchFuture::waiting(queue.guard(id), answer),
            Err(EnqueueError { reason, .. }) => BatchFuture::failed(match reason {
                RejectReason::ShuttingDown => self.common.failure(),
                why => BatchError::Rejected(why),
            }),
        }
    }
}

impl<Req, A, E, I> Common<Req, A, E, I> {
    /// Returns the runtime of the task. If the task has not been spawned, spawns it in the current runtime.
    fn runtime(&self) -> &Handle {
        self.runtime.get_or_init(|| {
            // The runtime is looked up before the task is taken, because this panics outside of all runtimes.
            let runtime = Handle::current();
            let task = self
                .task
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            task.into_iter().for_each(|task| drop(runtime.spawn(task)));
            runtime
        })
    }

    /// Returns the reason why requests are not served any more.
    fn failure(&self) -> BatchError<E, I> {
        match self.inner_failure.get() {
            Some(error) => BatchError::Inner(Arc::clone(error)),
            None => BatchError::Lost,
        }
    }
}

/// Requests cannot arrive any more once the last clone is gone, so the queue is drained.
impl<Req, A, E, I> Drop for Common<Req, A, E, I> {
    fn drop(&mut self) {
        self.queue.drain();
    }
}

impl<Req, A, E, I, K: Clone> Clone for Batch<Req, A, E, I, K> {
    fn clone(&self) -> Self {
        Self {
            common: Arc::clone(&self.common),
            // A reservation is for one request, so the clone makes its own.
            ready: ReadyState::IDLE,
            classify: self.classify.clone(),
        }
    }
}

impl<Req, A, E, I, K> fmt::Debug for Batch<Req, A, E, I, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("queue", &self.common.queue)
            .finish_non_exhaustive()
    }
}
