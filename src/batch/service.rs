//! The service of single requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tower_service::Service;

use super::answers::Answers;
use super::future::BatchFuture;
use super::member::{Member, Members};
use super::seat::Seat;
use super::worker::{Fate, Worker};
use super::{BatchError, EnqueueError};
use crate::admit::RejectReason;
use crate::gate;
use crate::http::HeaderClassifier;
use crate::queue::{Classify, ClassifyContext, DefaultPriority};

/// A service of single requests in front of one of batches. Made by [`BatchLayer`](super::BatchLayer).
///
/// Clones share the queue and the inner service. A chair that was reserved by `poll_ready` belongs to the clone
/// that was asked, until that is called or dropped: a clone of it starts without. Whoever is called without one may
/// be rejected as [`Full`](RejectReason::Full), or take the chair of another
/// ([`displace`](crate::WaitingRoomConfig::displace)).
pub struct Batch<Req, A, E, I, K = DefaultPriority> {
    common: Arc<Common<Req, A, E, I>>,
    seat: Seat<Member<Req, A, E, I>>,
    classify: K,
}

struct Common<Req, A, E, I> {
    queue: Members<Req, A, E, I>,
    headers: HeaderClassifier,
    fate: Fate<E>,
    /// The task that drives the batches, until it is started.
    task: Mutex<Option<Task>>,
    /// Where it was started. Waits end by that runtime's clock, wherever their callers are.
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
            fate: Arc::clone(&worker.fate),
            task: Mutex::new(Some(Box::pin(worker.run()))),
            runtime: OnceLock::new(),
        };
        Self {
            seat: Seat::new(common.queue.clone()),
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

    /// Ready once a chair is reserved for the call that follows; an error if the inner service has failed for good.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.seat.poll_ready(cx));
        Poll::Ready(match self.common.queue.is_closed() {
            true => Err(self.common.failure()),
            false => Ok(()),
        })
    }

    /// # Panics
    ///
    /// If the first call is made outside a Tokio runtime. One without a timer loses every batch.
    fn call(&mut self, request: Req) -> Self::Future {
        let _runtime = self.common.runtime().enter();
        let now = gate::now();
        let context = ClassifyContext::new(now, &self.common.headers);
        let mut ticket = self.classify.ticket(&request, &context);
        // Nobody waits for one who is still to come.
        ticket.arrival = Some(ticket.arrival.map_or(now, |arrival| arrival.min(now)));
        let (reply, answer) = oneshot::channel();
        let member = Member { request, reply };
        let queue = &self.common.queue;
        let enqueued = queue.enqueue_on(self.seat.has_chair(), member, ticket);
        self.seat.hand_over();
        match enqueued {
            Ok(id) => BatchFuture::waiting(queue.guard(id), answer),
            Err(EnqueueError { why, .. }) => BatchFuture::failed(match why {
                RejectReason::ShuttingDown => self.common.failure(),
                why => BatchError::Rejected(why),
            }),
        }
    }
}

impl<Req, A, E, I> Common<Req, A, E, I> {
    /// Where the task runs: here, if it has not been started.
    fn runtime(&self) -> &Handle {
        self.runtime.get_or_init(|| {
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

    /// Why nobody is served any more.
    fn failure(&self) -> BatchError<E, I> {
        match self.fate.get() {
            Some(error) => BatchError::Inner(Arc::clone(error)),
            None => BatchError::Lost,
        }
    }
}

/// Nobody can come any more.
impl<Req, A, E, I> Drop for Common<Req, A, E, I> {
    fn drop(&mut self) {
        self.queue.drain();
    }
}

impl<Req, A, E, I, K: Clone> Clone for Batch<Req, A, E, I, K> {
    fn clone(&self) -> Self {
        Self {
            common: Arc::clone(&self.common),
            // A reserved chair is one request's; the clone reserves its own.
            seat: Seat::new(self.common.queue.clone()),
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
