//! An inner service that all clones of a queue share.
//!
//! It must be the only one behind its waiting room. It keeps what it reserved in `poll_ready` until it is called; so two
//! of them could deadlock, each with what the other waits for, while the requests of both are in one queue.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use tower_service::Service;

/// An inner service that all clones share. Sound only behind a queue with `concurrency = "inner"`, where one request at
/// a time polls it, and the request that finds it ready is the one that calls it.
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

/// Which inner services are behind one waiting room with `concurrency = "inner"`: any number, each cloned per request, or
/// one that is shared.
#[derive(Debug, Default)]
pub(super) struct InnerServices {
    /// Settled by the first that is added or announced.
    is_shared: OnceLock<bool>,
    /// Whether the shared one was added.
    has_shared: AtomicBool,
}

impl InnerServices {
    /// Adds one that is cloned per request. `false` if there is a shared one, or one was announced.
    pub(super) fn add_cloned(&self) -> bool {
        !self.is_shared.get_or_init(|| false)
    }

    /// Announces one that is shared. `false` unless it is the only one.
    pub(super) fn claim(&self) -> bool {
        self.is_shared.set(true).is_ok()
    }

    /// Adds the one that was announced. `false` if it was added before.
    pub(super) fn add_shared(&self) -> bool {
        !self.has_shared.swap(true, Relaxed) // no other memory depends on it
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
