//! An inner service that all clones of a queue share.
//!
//! The shared service must be the only one behind its waiting room, because it keeps its reservation from `poll_ready`
//! until it is called. With two shared services and one queue for the requests of both, each could hold a resource that
//! the other waits for, which is a deadlock.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use tower_service::Service;
use tracing::error;

use super::handle::QueueHandle;

/// An inner service that all clones of a queue share.
///
/// Sharing is sound only behind a queue with `concurrency = "inner"`. There one request at a time polls the service,
/// and the request that finds it ready is the one that calls it.
///
/// A service whose `poll_ready` fails can't be used again. It is dropped then, and the queue is closed.
#[derive(Debug)]
pub struct SharedInner<S> {
    /// `None` once the service has failed.
    inner: Arc<Mutex<Option<S>>>,
    queue: QueueHandle,
}

impl<S> SharedInner<S> {
    pub(super) fn new(inner: S, queue: QueueHandle) -> Self {
        let inner = Arc::new(Mutex::new(Some(inner)));
        Self { inner, queue }
    }

    fn lock(&self) -> MutexGuard<'_, Option<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the service, and rejects all requests from now on.
    #[cold]
    fn on_failed(&self) {
        let failed = self.lock().take();
        drop(failed); // without the lock
        error!("the inner service is not usable any more, so its queue is closed");
        self.queue.close();
    }
}

impl<S> Clone for SharedInner<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            queue: self.queue.clone(),
        }
    }
}

/// The kind of the inner services behind one waiting room with `concurrency = "inner"`. These are any number of
/// services that are cloned per request, or one that is shared.
#[derive(Debug, Default)]
pub(super) struct InnerServices {
    /// Set by the first service that is added or announced: `true` if that service is shared.
    is_shared: OnceLock<bool>,
    /// `true` once the shared service was added.
    has_shared: AtomicBool,
}

impl InnerServices {
    /// Adds a service that is cloned per request. Returns `false` if a shared service was announced or added.
    pub(super) fn add_cloned(&self) -> bool {
        !self.is_shared.get_or_init(|| false)
    }

    /// Announces a service that is shared. Returns `false` unless it is the only service.
    pub(super) fn claim(&self) -> bool {
        self.is_shared.set(true).is_ok()
    }

    /// Adds the service that was announced. Returns `false` if it was added before.
    pub(super) fn add_shared(&self) -> bool {
        !self.has_shared.swap(true, Relaxed) // relaxed, because other memory does not depend on it
    }
}

impl<Req, S: Service<Req>> Service<Req> for SharedInner<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let ready = match &mut *self.lock() {
            Some(inner) => inner.poll_ready(cx),
            None => Poll::Pending, // the queue is closed, which ends the wait
        };
        if let Poll::Ready(Err(_)) = ready {
            self.on_failed();
        }
        ready
    }

    /// # Panics
    ///
    /// Panics if the service has failed. Requests of a queue can't reach this, because they call a service that is ready.
    fn call(&mut self, request: Req) -> S::Future {
        match &mut *self.lock() {
            Some(inner) => inner.call(request),
            None => panic!("called after `poll_ready` failed"),
        }
    }
}
