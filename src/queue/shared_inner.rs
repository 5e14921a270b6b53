//! An inner service that all clones of a queue share.
//!
//! The shared service must be the only one behind its waiting room, because it keeps its reservation from `poll_ready`
//! until it is called. With two shared services and one queue for the requests of both, each could hold a resource that
//! the other waits for, which is a deadlock.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use tower_service::Service;

/// An inner service that all clones of a queue share.
///
/// Sharing is sound only behind a queue with `concurrency = "inner"`. There one request at a time polls the service,
/// and the request that finds it ready is the one that calls it.
#[derive(Debug)]
pub struct SharedInner<S>(Arc<Mutex<S>>);

impl<S> SharedInner<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(Arc::new(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Clone for SharedInner<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
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
        self.lock().poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> S::Future {
        self.lock().call(request)
    }
}
